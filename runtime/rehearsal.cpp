#include "runtime/rehearsal.h"

#include "base/error.h"
#include "base/side_by_side.h"
#include "device/device.h"

namespace tbx::runtime {

namespace {

class IdleStream final : public device::Stream {
public:
  void upload(void*, const void*, size_t) override {}
  void download(void*, const void*, size_t) override {}
  void copy(void*, const void*, size_t) override {}
  void fill(void*, uint8_t, size_t) override {}
  void launch(device::Kernel, const device::LaunchShape&, std::span<void* const>) override {}
  void record(device::Event&) override {}
  void wait(const device::Event&) override {}
  void synchronize() override {}
  void begin_capture() override { refuse(); }
  std::unique_ptr<device::Graph> end_capture() override { refuse(); }
  void begin_piece(std::span<const size_t>) override { refuse(); }
  void join_pieces() override { refuse(); }
  size_t recorded_launches() const override { return 0; }
  void begin_update(device::Graph&, size_t) override { refuse(); }
  device::GraphUpdate end_update() override { refuse(); }
  void launch(device::Graph&) override { refuse(); }
  void* handle() const override { refuse(); }

private:
  [[noreturn]] static void refuse() {
    throw_internal_error("a rehearsed kernel asks for launches alone", __FILE__, __LINE__);
  }
};

} // namespace

void rehearse(const std::vector<RehearsedCall>& calls) {
  if (calls.size() < 2) return;
  IdleStream idle;
  side_by_side(calls.size(), [&](size_t i) {
    const RehearsedCall& call = calls[i];
    call.kernel->run({call.inputs, call.outputs, nullptr, call.workspace, &idle});
  });
}

} // namespace tbx::runtime
