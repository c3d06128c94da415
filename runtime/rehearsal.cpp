#include "runtime/rehearsal.h"

#include <optional>
#include <span>
#include <system_error>

#include "base/error.h"
#include "base/side_by_side.h"
#include "device/device.h"
#include "runtime/device_align.h"

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
    extern_kernels::RunArgs args{call.inputs, call.outputs, nullptr, call.workspace, &idle};
    args.rehearsal = true;
    call.kernel->run(args);
  });
}

namespace {

/// From the first element to the last; nothing where strides lead back.
std::optional<size_t> bytes_of(const extern_kernels::OperandInfo& o) {
  int64_t last = 0;
  for (size_t d = 0; d < o.sizes.size(); ++d) {
    if (o.sizes[d] == 0) return 0;
    if (o.strides[d] < 0) return std::nullopt;
    last += (o.sizes[d] - 1) * o.strides[d];
  }
  return static_cast<size_t>((last + 1) * size_of(o.dtype));
}

/// Operands behind each other, the workspace behind them.
struct Placed {
  std::vector<extern_kernels::TensorRef> operands;
  size_t bytes = 0; ///< of the operands
  extern_kernels::RunArgs args(size_t inputs, uintptr_t base, device::Stream* stream) const {
    const std::span<const extern_kernels::TensorRef> all(operands);
    void* const workspace = reinterpret_cast<void*>(base + bytes);
    extern_kernels::RunArgs args{all.first(inputs), all.subspan(inputs), nullptr, workspace, stream};
    args.rehearsal = true;
    return args;
  }
};

std::optional<Placed> placed(const EarlyCall& call, uintptr_t base) {
  Placed p;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const extern_kernels::OperandInfo& o = call.operands[i];
    if (o.dtype == DType::undefined) { // absent
      p.operands.emplace_back();
      continue;
    }
    const std::optional<size_t> bytes = bytes_of(o);
    if (!bytes) return std::nullopt;
    const size_t offset = call.offsets[i] % kDeviceAlign;
    p.operands.push_back({reinterpret_cast<void*>(base + p.bytes + offset), o.dtype, o.sizes, o.strides});
    p.bytes += device_aligned(offset + *bytes);
  }
  return p;
}

} // namespace

void rehearse_early(const EarlyCall& call) {
  constexpr uintptr_t kSomewhere = uintptr_t{1} << 40;
  IdleStream idle;
  try {
    if (const auto p = placed(call, kSomewhere)) call.kernel->run(p->args(call.inputs, kSomewhere, &idle));
  } catch (...) { // the run says where
  }
}

EarlyMeasurements::EarlyMeasurements(device::Device& device, size_t most) : device_(device), most_(most) {
  try {
    thread_ = std::jthread([this] { work(); });
  } catch (const std::system_error&) { // there is no thread: the run measures
  }
}

EarlyMeasurements::~EarlyMeasurements() {
  {
    std::scoped_lock lock(mutex_);
    ended_ = true;
  }
  changed_.notify_one();
}

void EarlyMeasurements::add(EarlyCall call) {
  {
    std::scoped_lock lock(mutex_);
    calls_.push_back(std::move(call));
  }
  changed_.notify_one();
}

void EarlyMeasurements::work() {
  for (;;) {
    std::vector<EarlyCall> mine;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ended_ || !calls_.empty(); });
      if (calls_.empty()) return;
      mine.swap(calls_);
    }
    for (const EarlyCall& call : mine) try {
        measure(call);
      } catch (...) { // the run says where
      }
  }
}

void EarlyMeasurements::measure(const EarlyCall& call) {
  static std::mutex device_for_itself; // other sessions measure, too
  const auto unknown = placed(call, 0);
  if (!unknown) return;
  const auto asked = unknown->args(call.inputs, 0, nullptr);
  const size_t bytes =
      unknown->bytes + static_cast<size_t>(call.kernel->workspace_bytes(asked.inputs, asked.outputs));
  if (bytes > most_) return; // the run measures where its operands lie
  std::scoped_lock lock(device_for_itself);
  if (!stream_) stream_ = device_.make_stream();
  if (!memory_ || memory_->bytes() < bytes) {
    memory_.reset();
    memory_ = device_.allocate(bytes);
  }
  const auto base = reinterpret_cast<uintptr_t>(memory_->data());
  const auto p = placed(call, base);
  call.kernel->run(p->args(call.inputs, base, stream_.get()));
  stream_->synchronize();
}

} // namespace tbx::runtime
