// The evaluator: runs a KernelProgram without a compiler, a block of points at a time.
#pragma once

#include <memory>
#include <span>

#include "ir/kernel.h"

namespace tbx::ir {

/// A kernel prepared for evaluation once and run many times, from any thread. Values of up to 256 points are
/// computed node by node: over the innermost loop of a phase, or over the last outer loop where no phase has
/// inner loops.
class KernelEvaluator {
public:
  /// Keeps a reference to `kernel`, which must outlive this.
  explicit KernelEvaluator(const KernelProgram& kernel);
  ~KernelEvaluator();

  /// As evaluate_kernel (ir/kernel.h).
  void run(std::span<void* const> buffers, std::span<const int64_t> symbols, int64_t begin,
           int64_t end) const;

  struct Prepared; ///< defined in evaluate.cpp

private:
  std::unique_ptr<const Prepared> prepared_;
};

} // namespace tbx::ir
