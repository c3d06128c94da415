// ValueSession: runs a bound ValuePlan. Immutable after construction; `run` may be called from many threads
// at once.
#pragma once

#include <memory>
#include <span>

#include "runtime/bind_values.h"

namespace tbx::runtime {

/// ModelError where input `name` lacks memory, or strings, for its elements.
void check_data(const std::string& name, const Tensor& t);

class ValueSession {
public:
  explicit ValueSession(std::shared_ptr<const BoundValuePlan> bound);
  ~ValueSession();
  const ValuePlan& plan() const;

  /// `inputs` in order of the signature; tensors may be views of memory that lives as long as the run. The
  /// outputs own their memory, but for what an input is passed through as. Throws Error.
  void run(std::vector<RuntimeValue> inputs, std::vector<RuntimeValue>& outputs,
           const RunOptions& options = {}) const;

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace tbx::runtime
