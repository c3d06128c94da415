// One call of a blocked product: part by part of the depth, a task multiplies a panel, which stays in the
// first cache, by all of its rows, which stay in the second one, while the next panel is fetched.
#pragma once

#include <optional>

#include "extern_kernels/direct/operands.h"
#include "extern_kernels/product/cut.h"
#include "extern_kernels/product/weights.h"
#include "extern_kernels/stack.h"

namespace tbx::extern_kernels::product {

/// What is done with sums, in its order: what is in registers with the product, and the rest.
struct Work {
  explicit Work(std::vector<PostOp> all);

  std::vector<int> starts;   ///< inputs that sums begin with
  std::vector<PostOp> later; ///< done in the cache
  Ending ending;             ///< done in registers, where there is nothing in `later`
};

class Run {
public:
  Run(const Weights& weights, const Work& work, const RunArgs& args, int64_t threads);
  int64_t tasks() const { return size_.groups * cut_.blocks * cut_.parts; }
  void task(int64_t number) const;

private:
  /// Those of an operand that a task has to do with.
  struct Rows {
    float* data = nullptr;
    int64_t column_step = 0;
    std::optional<int64_t> step; ///< between rows, where it is always the same
    int64_t* places = nullptr;   ///< of rows, where it is not
    float* at(int64_t row, int64_t column) const {
      return data + (step ? row * *step : places[row]) + column * column_step;
    }
    bool is_plain() const { return step && column_step == 1; }
  };
  struct Task {
    int64_t first, rows; ///< rows of the result, counted over all products
    int64_t panel, end;
    int64_t matrix;
    Rows a, c, starts[2];
    std::span<Rows> others; ///< of `work_.later`
    float *copy, *sums;
  };

  /// Floats between copied rows: whole lines, and an odd number of them, for powers of two would meet in one
  /// set of the cache.
  int64_t line() const;
  /// Memory of a task.
  void take(direct::Memory& memory, Task& t) const;
  /// The step between all rows of an operand, over all products.
  std::optional<int64_t> common_step(const Stack& s) const;
  void find(const TensorRef& of, const Task& t, int64_t* places, Rows& rows) const;
  void compute(Task& t) const;
  /// A part of the depth with all panels of the task.
  void multiply(const Task& t, int64_t from, int64_t to) const;
  /// A part of the depth with one of them; `all` has what is multiplied.
  void multiply_panel(const Task& t, int64_t panel, bool is_first, bool is_last, Strip all) const;
  void copy(const Task& t, int64_t from, int64_t to) const;
  /// What is done with finished sums, and the store.
  void finish(const Task& t, int64_t first, int64_t count, int64_t panel, float* sums) const;

  const Weights& weights_;
  const Work& work_;
  const RunArgs& args_;
  const Stack c_;
  Size size_;
  Cut cut_;
};

} // namespace tbx::extern_kernels::product
