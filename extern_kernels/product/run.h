// One call of a blocked product: part by part of the depth, a task multiplies a panel, which stays in the
// first cache, by all of its rows, which stay in the second one, while the next panel is fetched.
#pragma once

#include <optional>

#include "extern_kernels/direct/operands.h"
#include "extern_kernels/product/cut.h"
#include "extern_kernels/product/weights.h"
#include "extern_kernels/stack.h"

namespace tbx::extern_kernels::product {

class Run {
public:
  /// `work`: all that is done with a sum.
  Run(const Weights& weights, std::span<const PostOp> work, const RunArgs& args, int64_t threads);
  int64_t tasks() const { return size_.groups * cut_.blocks * cut_.parts; }
  void task(int64_t number) const;

private:
  /// Those of an operand that a task has to do with.
  struct Rows {
    float* data = nullptr;
    int64_t* places = nullptr;
    int64_t column_step = 0;
    std::optional<int64_t> step; ///< between rows whose columns lie side by side, where it is always the same
    float* at(int64_t row, int64_t column) const { return data + places[row] + column * column_step; }
  };
  struct Task {
    int64_t first, rows, tiles; ///< rows of the result, counted over all products
    int64_t panel, end;
    const float* weights;   ///< their matrix
    Rows a, c, start;       ///< `start`: what sums begin with
    std::span<Rows> others; ///< of `work_`
    float *copy, *sums;
  };

  /// Floats between copied rows: whole lines, and an odd number of them, for powers of two would meet in one
  /// set of the cache.
  int64_t line() const;
  /// Memory of a task.
  void take(direct::Memory& memory, Task& t) const;
  void find(const TensorRef& of, const Task& t, Rows& rows) const;
  void compute(Task& t) const;
  /// A part of the depth with all panels of the task.
  void multiply(const Task& t, int64_t from, int64_t to) const;
  void copy(const Task& t, int64_t from, int64_t to) const;
  /// What is done with the sums of a tile, and the store.
  void finish(const Task& t, int64_t first, int64_t count, int64_t column, float* sums) const;

  const Weights& weights_;
  const Tile& tile_;
  std::optional<int> start_; ///< the input that sums begin with
  std::span<const PostOp> work_;
  const RunArgs& args_;
  const Stack c_;
  Size size_;
  Cut cut_;
};

} // namespace tbx::extern_kernels::product
