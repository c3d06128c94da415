// Runs of library kernels ahead of a session's first one, in which they compile, load and measure what they
// need.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "device/device.h"
#include "extern_kernels/kernel.h"

namespace tbx::runtime {

/// A call of a library kernel of a device, with its operands where the run has them.
struct RehearsedCall {
  const extern_kernels::ExternKernel* kernel = nullptr;
  std::vector<extern_kernels::TensorRef> inputs, outputs;
  void* workspace = nullptr;
};

/// Calls all of them side by side on a stream that does nothing, so that their texts are compiled at the same
/// time and not one after the other by the run. What goes wrong does so again in the run, which says where.
void rehearse(const std::vector<RehearsedCall>& calls);

/// A call whose sizes and strides are known before there is a run.
struct EarlyCall {
  const extern_kernels::ExternKernel* kernel = nullptr;
  std::vector<extern_kernels::OperandInfo> operands; ///< inputs, then outputs
  std::vector<size_t> offsets;                       ///< bytes from a multiple of 256 to each
  size_t inputs = 0;
};

/// The call at addresses that nobody looks at, on a stream that does nothing, as rehearse() does.
void rehearse_early(const EarlyCall& call);

/// Runs calls of kernels that measure, one after the other on the device, in a thread of its own: others
/// compile meanwhile. Operands lie in memory of its own, of which it takes no more than `most` bytes: calls
/// that need more are measured by the run. What goes wrong does so again in the run.
class EarlyMeasurements {
public:
  EarlyMeasurements(device::Device& device, size_t most);
  ~EarlyMeasurements(); ///< waits for all of them
  EarlyMeasurements(const EarlyMeasurements&) = delete;
  EarlyMeasurements& operator=(const EarlyMeasurements&) = delete;
  void add(EarlyCall call);

private:
  void work();
  void measure(const EarlyCall& call);

  device::Device& device_;
  const size_t most_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<EarlyCall> calls_; ///< that wait
  bool ended_ = false;
  std::unique_ptr<device::Memory> memory_;
  std::unique_ptr<device::Stream> stream_;
  std::jthread thread_; ///< the last: it uses all others
};

} // namespace tbx::runtime
