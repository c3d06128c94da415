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
  /// After a run of the plan with these inputs.
  void grow(const runtime::Executable& plan, std::span<const runtime::RunTensor> inputs);
  /// Contents of all, or of none, which makes them empty.
  void set(const Session::Inputs& given);

private:
  struct Entry {
    std::string name;
    DType dtype = DType::undefined;
    std::vector<int64_t> room; ///< with the capacity along `axis`
    int axis = 0;
    int64_t length = 0;
    std::shared_ptr<device::Memory> on_device;
    std::shared_ptr<void> on_host;
    std::byte* data() const { return static_cast<std::byte*>(on_device ? on_device->data() : on_host.get()); }
  };
  void fill(Entry& entry, const TensorView& view, device::Stream* stream) const;

  std::shared_ptr<device::Device> device_;
  std::vector<Entry> entries_;
  mutable std::mutex mutex_;
};

} // namespace tbx::package
