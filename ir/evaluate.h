// The evaluator: runs kernels and loop nests without a compiler, a block of points at a time.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "ir/kernel.h"

namespace tbx::ir {

/// A kernel prepared for evaluation once and run many times, from any thread. Values of up to 256 points are
/// computed node by node: over the innermost loop of a phase, or over the last outer loop where that gives
/// more points. Sums of f32 are kept in double.
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

/// The tensor that a loop nest computes. `buffer` gives the tensors its loads name, row-major; `symbols` are
/// indexed by SymNode::number. Folds constants and serves tests. Throws ModelError when an index computed
/// from data is out of range.
Tensor evaluate_loops(const Loops& loops, const std::function<const Tensor&(BufferId)>& buffer,
                      std::span<const int64_t> symbols = {});

} // namespace tbx::ir
