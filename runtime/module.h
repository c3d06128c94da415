// Module: kernels by name. Native code that was built or loaded is one kind, the evaluator of driver/
// another.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/dtype.h"
#include "base/error.h"
#include "runtime/abi.h"

namespace tbx::runtime {

/// An error of one node of a kernel.
class OriginError : public Error {
public:
  OriginError(const Error& e, int origin) : Error(e), origin(origin) {}
  int origin; ///< in Executable::origin_names, or -1
};

/// What a step gives a kernel as one of its buffers.
struct KernelRoom {
  DType dtype = DType::undefined;
  int64_t bytes = -1; ///< from address 0 on; -1: nothing, the buffer is the kernel's own
  bool writes = false;
};

/// A kernel that is not native code.
class EvaluatedKernel {
public:
  virtual ~EvaluatedKernel() = default;
  /// Throws Error where buffers like these are not what the kernel takes. It keeps to what it takes; that
  /// this is what the step gives, nobody vouches for where both come out of a file.
  virtual void check(std::span<const KernelRoom>, std::span<const int64_t> /*symbols*/) const {}
  /// Runs tasks [begin, end) like a KernelFunction, from any thread. Throws Error, OriginError where the node
  /// is known.
  virtual void run(std::span<void* const> buffers, std::span<const int64_t> symbols, int64_t begin,
                   int64_t end) const = 0;
};

/// One of the two.
struct Kernel {
  KernelFunction native = nullptr;
  std::shared_ptr<const EvaluatedKernel> evaluated;
  explicit operator bool() const { return native != nullptr || evaluated != nullptr; }
};

class Module {
public:
  virtual ~Module() = default;
  /// The kernel of this name, usable as long as the module lives; none when it is not here.
  virtual Kernel kernel(const std::string& name) const = 0;
};

} // namespace tbx::runtime
