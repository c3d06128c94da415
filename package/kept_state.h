// KeptState: inputs that a session keeps between its runs, each in memory with room for more of them.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "runtime/session.h"
#include "tensorbox/tensorbox.h"

namespace tbx::package {

class KeptState {
public:
  /// nullptr where the plan has none. `device`: where the plan runs; null: the host. `max_memory`: 0: no
  /// limit.
  static std::unique_ptr<KeptState> of(const runtime::Executable& plan,
                                       std::shared_ptr<device::Device> device, int64_t max_memory);

  std::mutex& mutex() const { return mutex_; } ///< held while any of the following is called
  int64_t length() const { return entries_[0].length; }
  /// Behind the inputs that the caller gave.
  void append_to(std::vector<runtime::RunTensor>& inputs) const;
  /// What each state will be after a run of the plan with these inputs, whose states are given anew. False
  /// where one has no room for that: `inputs` say then that it had, and that the memory is there still.
  /// ModelError where the inputs are none of the plan's, or there is a limit.
  bool expect(const runtime::Executable& plan, std::vector<runtime::RunTensor>& inputs);
  /// Moves states to larger memory where what is expected needs it, and says so in `inputs`. No run may be
  /// under way. `run_bytes`: of what the run needs besides, for max_memory. ModelError where that is more
  /// than there is; all states are what they were then.
  void make_room(std::vector<runtime::RunTensor>& inputs, int64_t run_bytes);
  /// After the run that was expected.
  void grow();
  /// Contents of all, or of none, which makes them empty.
  void set(const Session::Inputs& given);

private:
  struct Entry {
    std::string name;
    DType dtype = DType::undefined;
    std::vector<int64_t> sizes; ///< of its memory
    int axis = 0;
    bool grows = false;
    int64_t limit = 0; ///< of what it may grow to; 0: none
    int64_t length = 0, expected = 0;
    std::shared_ptr<device::Memory> on_device;
    std::shared_ptr<void> on_host;
    int64_t room() const { return sizes[axis]; }
    int64_t bytes_with(int64_t room) const; ///< saturates
    std::byte* data() const { return static_cast<std::byte*>(on_device ? on_device->data() : on_host.get()); }
  };
  /// How much more than is needed there will be room for.
  enum class Spare : uint8_t { twice, eighth, none };

  void allocate(Entry& entry, int64_t room) const;
  void write(Entry& to, const std::byte* from, int64_t length, int64_t from_room, bool from_host,
             device::Stream* stream) const;
  void move(Entry& entry, int64_t room, device::Stream* stream) const;
  void check_limit(const Entry& entry) const;
  static int64_t room_for(const Entry& entry, Spare spare);
  bool fit(Spare spare, int64_t run_bytes) const;
  [[noreturn]] void throw_no_memory(int64_t run_bytes) const;
  void enlarge(int64_t run_bytes);
  void check_given(const Entry& entry, const TensorView& view) const;
  void put_into(runtime::RunTensor& t, const Entry& entry) const;

  std::shared_ptr<device::Device> device_;
  int64_t max_memory_ = 0;
  std::vector<Entry> entries_;
  std::vector<int64_t> symbols_; ///< of the run that is expected; kept: a run allocates nothing
  mutable std::mutex mutex_;
};

} // namespace tbx::package
