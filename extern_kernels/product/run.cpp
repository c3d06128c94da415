#include "extern_kernels/product/run.h"

#include <algorithm>

#include "extern_kernels/post_ops.h"
#include "extern_kernels/reference/dense.h"
#include "extern_kernels/scratch.h"

namespace tbx::extern_kernels::product {
namespace {

constexpr int64_t kLine = 16;     ///< floats of a line of the cache
constexpr int64_t kSome = 8;      ///< floats that are copied without a call
constexpr int64_t kFewPanels = 8; ///< with so many, rows are read where they lie

/// The first `width` of `all` columns, zeros behind them.
void load(const float* from, int64_t step, int64_t width, int64_t all, float* to) {
  for (int64_t j = 0; j < width; ++j) to[j] = from[j * step];
  std::fill_n(to + width, all - width, 0.0f);
}

void store(const float* from, int64_t width, int64_t all, float* to, int64_t step) {
  if (step == 1 && width == all)
    for (int64_t j = 0; j < all; j += kSome) std::copy_n(from + j, kSome, to + j);
  else
    for (int64_t j = 0; j < width; ++j) to[j * step] = from[j];
}

} // namespace

Run::Run(const Weights& weights, std::span<const PostOp> work, const RunArgs& args, int64_t threads)
    : weights_(weights), tile_(weights.tile()), work_(work), args_(args), c_{args.outputs[0]} {
  if (!work.empty() && (work[0].kind == PostOp::add || work[0].kind == PostOp::sum)) {
    start_ = work[0].operand;
    work_ = work.subspan(1);
  }
  // With one matrix for all, the rows of all products are those of one.
  const int64_t products = c_.count();
  size_.groups = weights.matrices() == 1 ? 1 : products;
  size_.rows = products / size_.groups * c_.rows();
  size_.panels = weights.panels();
  size_.depth = weights.depth();
  cut_ = cut_tasks(size_, tile_, threads, host_caches());
}

int64_t Run::line() const { return ((size_.depth / cut_.depths + kLine) / kLine | 1) * kLine; }

void Run::task(int64_t number) const {
  const int64_t part = number % cut_.parts, block = number / cut_.parts % cut_.blocks,
                group = number / cut_.parts / cut_.blocks;
  Task t{};
  const int64_t begin = size_.rows * block / cut_.blocks, end = size_.rows * (block + 1) / cut_.blocks;
  t.first = group * size_.rows + begin;
  t.rows = end - begin;
  t.tiles = (t.rows + tile_.rows - 1) / tile_.rows;
  t.panel = size_.panels * part / cut_.parts;
  t.end = size_.panels * (part + 1) / cut_.parts;
  const Stack b{args_.inputs[1]};
  t.weights = weights_.matrix(broadcast_index(t.first / c_.rows(), c_.batch(), b.batch()));
  if (t.rows > 0 && t.panel < t.end) compute(t);
}

void Run::take(direct::Memory& memory, Task& t) const {
  t.others = {memory.take<Rows>(static_cast<int64_t>(work_.size())), work_.size()};
  int64_t* places = memory.take<int64_t>(t.rows * static_cast<int64_t>(3 + work_.size()));
  t.copy = memory.take<float>(t.rows * line());
  t.sums = memory.take<float>(tile_.size() * (cut_.depths == 1 ? 1 : t.tiles * (t.end - t.panel)));
  if (!places) return;
  t.a.places = places;
  t.c.places = places + t.rows;
  t.start.places = places + 2 * t.rows;
  for (size_t k = 0; k < work_.size(); ++k)
    (t.others[k] = Rows()).places = places + t.rows * static_cast<int64_t>(3 + k);
}

void Run::find(const TensorRef& of, const Task& t, Rows& rows) const {
  const Stack s{of};
  const int64_t all = c_.rows(), step = s.rows() == 1 ? 0 : s.row_step();
  rows.data = static_cast<float*>(of.data);
  rows.column_step = s.columns() == 1 ? 0 : s.column_step();
  for (int64_t i = 0; i < t.rows; ++i) {
    const int64_t row = (t.first + i) % all;
    rows.places[i] = i > 0 && row > 0
                         ? rows.places[i - 1] + step
                         : s.at(broadcast_index((t.first + i) / all, c_.batch(), s.batch())) + row * step;
  }
  if (rows.column_step != 1) return;
  const int64_t common = t.rows > 1 ? rows.places[1] - rows.places[0] : 0;
  for (int64_t i = 2; i < t.rows; ++i)
    if (rows.places[i] - rows.places[i - 1] != common) return;
  rows.step = common;
}

void Run::compute(Task& t) const {
  direct::Memory counted(nullptr);
  take(counted, t);
  const Scratch scratch(counted.used());
  direct::Memory memory(scratch.data());
  take(memory, t);
  find(args_.inputs[0], t, t.a);
  find(args_.outputs[0], t, t.c);
  if (start_) find(args_.inputs[*start_], t, t.start);
  for (size_t k = 0; k < work_.size(); ++k)
    if (work_[k].operand >= 0) find(args_.inputs[work_[k].operand], t, t.others[k]);
  if (t.end - t.panel > kFewPanels) t.a.step.reset();
  for (int64_t p = 0; p < cut_.depths; ++p)
    multiply(t, size_.depth * p / cut_.depths, size_.depth * (p + 1) / cut_.depths);
}

void Run::multiply(const Task& t, int64_t from, int64_t to) const {
  const bool is_first = from == 0, is_last = to == size_.depth;
  if (!t.a.step) copy(t, from, to);
  const float* rows = t.a.step ? t.a.at(0, from) : t.copy;
  const int64_t step = t.a.step.value_or(line()), all = tile_.columns, size = tile_.size();
  const int64_t lines = (to - from) * all / kLine, some = (lines + t.tiles - 1) / t.tiles;
  const int64_t least = t.rows / t.tiles, larger = t.rows % t.tiles; // few rows do not fill the pipelines
  auto panel = [&](int64_t p, int64_t l) { return t.weights + (p * size_.depth + l) * all; };
  for (int64_t p = t.panel; p < t.end; ++p) {
    const float* next = t.tiles == 1    ? nullptr
                        : p + 1 < t.end ? panel(p + 1, from)
                        : is_last       ? nullptr
                                        : panel(t.panel, to);
    const int64_t column = p * all, width = std::min(all, weights_.columns() - column);
    const bool is_direct = is_last && t.c.step && work_.empty() && width == all;
    float* sums = t.sums + (cut_.depths == 1 ? 0 : (p - t.panel) * t.tiles * size);
    for (int64_t i = 0, first = 0, line = 0, count; i < t.tiles; ++i, first += count) {
      count = least + (i < larger);
      if (is_last)
        for (int64_t r = first; r < first + count; ++r) __builtin_prefetch(t.c.at(r, column), 1);
      for (const int64_t end = std::min(lines, line + some); next && line < end; ++line)
        __builtin_prefetch(next + line * kLine, 0, 2);
      const float* start = is_first ? nullptr : sums;
      int64_t start_step = all;
      if (is_first && start_) {
        if (t.start.step && width == all) {
          start = t.start.at(first, column);
          start_step = *t.start.step;
        } else {
          start = sums;
          for (int64_t r = 0; r < count; ++r)
            load(t.start.at(first + r, column), t.start.column_step, width, all, sums + r * all);
        }
      }
      tile_.multiply(rows + first * step, step, count, to - from, panel(p, from), start, start_step,
                     is_direct ? t.c.at(first, column) : sums, is_direct ? *t.c.step : all);
      if (is_last && !is_direct) finish(t, first, count, column, sums);
      if (cut_.depths > 1) sums += size;
    }
  }
}

void Run::copy(const Task& t, int64_t from, int64_t to) const {
  const int64_t width = line();
  if (t.a.column_step == 1)
    for (int64_t r = 0; r < t.rows; ++r) std::copy_n(t.a.at(r, from), to - from, t.copy + r * width);
  else
    for (int64_t l = from; l < to; ++l)
      for (int64_t r = 0; r < t.rows; ++r) t.copy[r * width + l - from] = *t.a.at(r, l);
}

void Run::finish(const Task& t, int64_t first, int64_t count, int64_t column, float* sums) const {
  const int64_t all = tile_.columns, width = std::min(all, weights_.columns() - column);
  for (size_t k = 0; k < work_.size(); ++k) {
    const Rows& other = t.others[k];
    if (work_[k].operand < 0)
      activate(work_[k], sums, count * all);
    else
      for (int64_t r = 0; r < count; ++r)
        combine(work_[k].kind, sums + r * all, other.at(first + r, column), other.column_step, width);
  }
  for (int64_t r = 0; r < count; ++r)
    store(sums + r * all, width, all, t.c.at(first + r, column), t.c.column_step);
}

} // namespace tbx::extern_kernels::product
