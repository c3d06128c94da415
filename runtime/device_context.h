// DeviceContext: what one run needs on a device: a stream, memory at addresses that stay, page-locked memory
// for what goes in and out, and the graphs of work that was recorded. Runs at the same time have one each.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "runtime/bound_device.h"
#include "runtime/device_memory.h"
#include "runtime/shape_plan.h"

namespace tbx::runtime {

class DeviceContext {
public:
  explicit DeviceContext(const BoundExecutable& bound);
  ~DeviceContext(); ///< waits for the device
  DeviceContext(const DeviceContext&) = delete;
  DeviceContext& operator=(const DeviceContext&) = delete;

  device::Stream& stream() { return *stream_; }
  DevicePool& pool() { return pool_; }

  /// Begins a run.
  void begin();
  /// Memory for all buffers and the work of a plan. It moves when it has to grow, which ends recorded work.
  std::byte* arena(int64_t bytes);

  /// `buffers`: addresses by argument of the kernel.
  void launch(size_t step, const StepShape& shape, std::span<void* const> buffers, void* scratch);
  void upload(void* to, const void* from_host, size_t bytes);
  void download(void* to_host, const void* from, size_t bytes);
  /// The device has done all that was asked of it, and downloads are where they belong. Throws what a check
  /// in a kernel found wrong, and what went wrong on the device (BackendError).
  void wait();
  /// The host reads what was downloaded.
  bool has_downloads() const { return !downloads_.empty(); }

  /// Does `work`, which asks the stream for work of these sizes, as a graph from the second time on.
  void replay(const std::vector<int64_t>& symbols, const std::function<void()>& work);
  size_t graphs() const;

  /// A point in the stream, for times; numbered from 0 in each run.
  size_t mark();
  /// Nanoseconds between two of them, after wait().
  int64_t elapsed_ns(size_t from, size_t to) const;

private:
  struct Download {
    const std::byte* staged;
    void* to;
    size_t bytes;
  };
  struct Recorded {
    std::vector<int64_t> symbols;
    std::unique_ptr<device::Graph> graph; ///< null: seen once
  };
  void check_failures(const int64_t* reports) const;

  const BoundExecutable& bound_;
  const BoundDevice& on_;
  DevicePool pool_;
  Staging staging_;
  std::unique_ptr<device::Memory> arena_, reports_;
  std::list<Recorded> recorded_; ///< used last first
  std::vector<Download> downloads_;
  std::vector<std::unique_ptr<device::Event>> events_;
  size_t marks_ = 0;
  std::vector<void*> arguments_;
  std::unique_ptr<device::Stream> stream_; ///< ends first
};

} // namespace tbx::runtime
