// Session: runs a bound executable. Immutable after construction; `run` may be called from many threads at
// once.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "runtime/bind.h"

namespace tbx {
class RandomStreams;
}
namespace tbx::device {
class Event;
}

namespace tbx::runtime {

struct SessionOptions {
  int threads = 0;            ///< 0: least of CPU quota (cgroup), affinity mask and OMP_NUM_THREADS
  bool private_arena = false; ///< own TBB arena instead of the process-wide one
  int64_t max_memory = 0;     ///< bytes per run for intermediate results and outputs that the session
                              ///< allocates, 0: none; checked before they are
  std::function<void(const std::string&)> log = {}; ///< what costs runs time; called by their threads
};

class HostCopy;
class OutputBlock;

/// An input or output of one run: memory of the caller.
struct RunTensor {
  void* data = nullptr;
  DType dtype = DType::undefined;
  std::vector<int64_t> dims;
  std::shared_ptr<void> owner;                       ///< outputs made by the session
  std::shared_ptr<std::vector<std::string>> strings; ///< string tensors
  bool on_device = false;              ///< memory of the session's device, of outputs also that to be made
  std::shared_ptr<HostCopy> host_copy; ///< inputs on the device: for who needs elements on the host
  std::shared_ptr<OutputBlock> block;  ///< outputs on the device, made by the session
  int64_t room = 0; ///< of a state: what its memory has room for along the dimension that grows
};

/// Where the host reads the elements of an input.
const void* host_elements(const RunTensor& tensor);

/// What runs with the same memory for all inputs and outputs have in common.
struct SameRuns {
  SameRuns();
  uint64_t number; ///< of these, and no others in the process
  /// Ends of runs that nobody waited for: the memory is in use until then.
  std::vector<std::shared_ptr<device::Event>> ends;
};

/// Time and work of one step in one run.
struct StepProfile {
  const Executable* plan = nullptr; ///< of this step
  int step = 0;
  int64_t start_ns = 0, duration_ns = 0; ///< since the start of the run
  int64_t tasks = 0;
  int threads = 1;
  int64_t bytes = 0;            ///< of the buffers it touches
  std::vector<int64_t> symbols; ///< sizes of the run
};

struct RunOptions {
  const std::atomic<bool>* cancel = nullptr;
  bool (*asked)() = nullptr; ///< as Stop::asked
  int64_t time_limit_ms = 0;
  /// When the run began of which this is a part; default: now.
  std::optional<std::chrono::steady_clock::time_point> started;
  int64_t max_memory = 0; ///< what a loop may gather in scan outputs and sequences; 0: the machine's memory
  RandomStreams* random = nullptr; ///< what random operators draw from; default: streams of the process
  std::vector<StepProfile>* profile = nullptr;
  /// Of a device: the run is work of this stream, by its handle; none: of one of its own.
  std::optional<void*> stream;
  /// The run ends when the stream was asked for everything. Outputs are on the device; inputs of the host
  /// were read, others live until the stream is there. Refused where the host has work in between.
  bool async = false;
  /// Inputs and outputs are those of earlier runs with the same one, which runs one at a time have: what was
  /// found out about them holds.
  SameRuns* same = nullptr;
  /// Called after each step with the buffer number and its contents (compare, first-NaN); slows the run.
  std::function<void(const Executable&, int step, int buffer, const extern_kernels::TensorRef&)> observe;
};

/// The shapes of the inputs are legal but not what the plan was made for: it needs a plan without
/// assumptions.
class AssumptionError : public Error {
public:
  using Error::Error;
};

class Session {
public:
  Session(std::shared_ptr<const BoundExecutable> bound, SessionOptions options = {});
  ~Session();
  int threads() const;

  /// `inputs` in signature order. `outputs[i].data`, when set, is written directly (its dims must match);
  /// otherwise the session allocates and sets owner, dims, dtype. No heap allocation in the steady state when
  /// outputs are given and the input shapes were seen before. Throws Error.
  void run(std::span<const RunTensor> inputs, std::span<RunTensor> outputs,
           const RunOptions& options = {}) const;

  /// Throws what a run with these would say of them, as far as that takes no elements of inputs.
  void check(std::span<const RunTensor> inputs, std::span<const RunTensor> outputs) const;

  /// What counts of such a run for max_memory, but for the states that it is given.
  int64_t run_bytes(std::span<const RunTensor> inputs, std::span<const RunTensor> outputs) const;
  /// Arena bytes of a run with these input shapes. Where steps find out sizes: what is known of them from the
  /// inputs, or `most_found`, whichever is more.
  int64_t peak_bytes(std::span<const RunTensor> inputs) const;
  /// Where steps find out sizes: bytes of the run so far that took most, with what these steps made and
  /// outputs that the session allocated. 0: all is known from the inputs, or there was no run.
  int64_t most_found() const;
  /// Waits for runs that were `async`. Throws what checks in their kernels found.
  void synchronize() const;
  /// Gives idle arenas back to the system.
  void release_memory() const;

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Threads the machine grants this process: least of cgroup CPU quota, affinity mask and OMP_NUM_THREADS.
int default_threads();

} // namespace tbx::runtime
