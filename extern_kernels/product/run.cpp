#include "extern_kernels/product/run.h"

#include <algorithm>
#include <limits>

#include "extern_kernels/post_ops.h"
#include "extern_kernels/reference/dense.h"
#include "extern_kernels/scratch.h"

namespace tbx::extern_kernels::product {
namespace {

constexpr int64_t kLine = 16;     ///< floats of a line of the cache
constexpr int64_t kSome = 8;      ///< floats that are copied without a call
constexpr int64_t kFewPanels = 8; ///< with so many, rows are read where they lie
constexpr int64_t kTogether = 24; ///< rows whose sums stay in the first cache beside a panel

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

/// None: no ending does it.
Ending ending_of(const PostOp& op) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  switch (op.kind) {
  case PostOp::relu: return {Ending::clip, 0, kInfinity};
  case PostOp::clip: return {Ending::clip, op.alpha, op.beta};
  case PostOp::hard_swish: return {Ending::hard_swish, 0, 1};
  default: return {};
  }
}

} // namespace

Work::Work(std::vector<PostOp> all) : later(std::move(all)) {
  while (!later.empty() && starts.size() < 2 &&
         (later[0].kind == PostOp::add || later[0].kind == PostOp::sum)) {
    starts.push_back(later[0].operand);
    later.erase(later.begin());
  }
  if (later.size() != 1) return;
  ending = ending_of(later[0]);
  if (ending.kind != Ending::none) later.clear();
}

Run::Run(const Weights& weights, const Work& work, const RunArgs& args, int64_t threads)
    : weights_(weights), work_(work), args_(args), c_{args.outputs[0]} {
  // With one matrix for all, the rows of all products are those of one.
  const int64_t products = c_.count();
  size_.groups = weights.matrices() == 1 ? 1 : products;
  size_.rows = products / size_.groups * c_.rows();
  size_.panels = weights.panels();
  size_.depth = weights.depth();
  cut_ = cut_tasks(size_, weights.usual(), threads, host_caches());
}

int64_t Run::line() const { return ((size_.depth / cut_.depths + kLine) / kLine | 1) * kLine; }

void Run::task(int64_t number) const {
  const int64_t part = number % cut_.parts, block = number / cut_.parts % cut_.blocks,
                group = number / cut_.parts / cut_.blocks;
  Task t{};
  const int64_t begin = size_.rows * block / cut_.blocks, end = size_.rows * (block + 1) / cut_.blocks;
  t.first = group * size_.rows + begin;
  t.rows = end - begin;
  t.panel = size_.panels * part / cut_.parts;
  t.end = size_.panels * (part + 1) / cut_.parts;
  const Stack b{args_.inputs[1]};
  t.matrix = broadcast_index(t.first / c_.rows(), c_.batch(), b.batch());
  if (t.rows > 0 && t.panel < t.end) compute(t);
}

std::optional<int64_t> Run::common_step(const Stack& s) const {
  std::optional<int64_t> step;
  int64_t next = 0;
  for (size_t d = c_.t.sizes.size() - 1; d-- > 0;) {
    const int64_t size = c_.t.sizes[d], here = s.t.sizes[d] == 1 ? 0 : s.t.strides[d];
    if (size == 1) continue;
    if (step && here != next) return std::nullopt;
    if (!step) step = here;
    next = here * size;
  }
  return step.value_or(0);
}

void Run::find(const TensorRef& of, const Task& t, int64_t* places, Rows& rows) const {
  const Stack s{of};
  rows.data = static_cast<float*>(of.data);
  rows.column_step = s.columns() == 1 ? 0 : s.column_step();
  const int64_t all = c_.rows(), row_step = s.rows() == 1 ? 0 : s.row_step();
  if (rows.step = common_step(s); rows.step) {
    rows.data += t.first * *rows.step;
    return;
  }
  rows.places = places;
  int64_t row = t.first % all, product = t.first / all;
  for (int64_t i = 0; i < t.rows; ++i, ++row) {
    if (row == all) row = 0, ++product;
    places[i] = i > 0 && row > 0 ? places[i - 1] + row_step
                                 : s.at(broadcast_index(product, c_.batch(), s.batch())) + row * row_step;
  }
}

void Run::take(direct::Memory& memory, Task& t) const {
  t.others = {memory.take<Rows>(static_cast<int64_t>(work_.later.size())), work_.later.size()};
  const int64_t widest = weights_.tile(size_.panels - 1).columns, usual = weights_.usual().columns;
  t.copy = memory.take<float>(t.rows * line());
  t.sums = memory.take<float>(cut_.depths == 1 ? std::min(t.rows, kTogether) * widest
                                               : t.rows * ((t.end - t.panel - 1) * usual + widest));
}

void Run::compute(Task& t) const {
  auto all_places = [&](direct::Memory& memory) {
    return memory.take<int64_t>(t.rows * static_cast<int64_t>(4 + work_.later.size()));
  };
  direct::Memory counted(nullptr);
  take(counted, t);
  all_places(counted);
  const Scratch scratch(counted.used());
  direct::Memory memory(scratch.data());
  take(memory, t);
  int64_t* places = all_places(memory);
  auto found = [&](const TensorRef& of, Rows& rows) {
    find(of, t, places, rows);
    places += t.rows;
  };
  found(args_.inputs[0], t.a);
  found(args_.outputs[0], t.c);
  for (size_t k = 0; k < work_.starts.size(); ++k) found(args_.inputs[work_.starts[k]], t.starts[k]);
  for (size_t k = 0; k < work_.later.size(); ++k) {
    t.others[k] = Rows();
    if (work_.later[k].operand >= 0) found(args_.inputs[work_.later[k].operand], t.others[k]);
  }
  for (int64_t p = 0; p < cut_.depths; ++p)
    multiply(t, size_.depth * p / cut_.depths, size_.depth * (p + 1) / cut_.depths);
}

void Run::multiply(const Task& t, int64_t from, int64_t to) const {
  const bool copies = !t.a.is_plain() || t.end - t.panel > kFewPanels;
  if (copies) copy(t, from, to);
  Strip strip{};
  strip.rows = copies ? t.copy : t.a.at(0, from);
  strip.row_step = copies ? line() : *t.a.step;
  strip.depth = to - from;
  for (int64_t p = t.panel; p < t.end; ++p) {
    strip.panel = weights_.row(t.matrix, p, from);
    const bool is_end = p + 1 == t.end;
    const int64_t next = is_end ? t.panel : p + 1;
    if (t.rows > weights_.tile(p).rows && !(is_end && to == size_.depth)) {
      strip.next = weights_.row(t.matrix, next, is_end ? to : from);
      strip.next_count = strip.depth * weights_.tile(next).columns;
    } else {
      strip.next_count = 0;
    }
    multiply_panel(t, p, from == 0, to == size_.depth, strip);
  }
}

void Run::multiply_panel(const Task& t, int64_t panel, bool is_first, bool is_last, Strip all) const {
  const int64_t columns = weights_.tile(panel).columns, column = panel * weights_.usual().columns,
                width = std::min(columns, weights_.columns() - column);
  const size_t starts = is_first ? work_.starts.size() : 1;
  bool lies_plain = width == columns; // what sums begin with
  for (size_t k = 0; is_first && k < starts; ++k) lies_plain &= t.starts[k].is_plain();
  const bool is_direct = is_last && width == columns && t.c.is_plain() && work_.later.empty();
  float* kept = cut_.depths == 1 ? nullptr : t.sums + (panel - t.panel) * weights_.usual().columns * t.rows;
  if (is_last) all.ending = work_.ending;
  const int64_t together = lies_plain && (is_direct || !is_last) ? t.rows : kTogether;
  for (int64_t first = 0; first < t.rows; first += together) {
    Strip some = all;
    some.count = std::min(together, t.rows - first);
    some.rows += first * all.row_step;
    const int64_t fetched = all.next_count * first / t.rows / kLine * kLine;
    some.next += fetched;
    some.next_count = all.next_count * (first + some.count) / t.rows / kLine * kLine - fetched;
    float* sums = kept ? kept + first * columns : t.sums;
    some.to = is_direct ? t.c.at(first, column) : sums;
    some.to_step = is_direct ? *t.c.step : columns;
    for (size_t k = 0; k < starts; ++k) {
      const Rows& start = t.starts[k];
      const bool is_there = is_first && lies_plain;
      some.starts[k] = is_there ? start.at(first, column) : sums;
      some.start_steps[k] = is_there ? *start.step : columns;
    }
    if (is_first && !lies_plain && starts > 0) {
      some.starts[1] = nullptr;
      for (int64_t r = 0; r < some.count; ++r) {
        float* row = sums + r * columns;
        load(t.starts[0].at(first + r, column), t.starts[0].column_step, width, columns, row);
        if (starts > 1)
          combine(PostOp::add, row, t.starts[1].at(first + r, column), t.starts[1].column_step, width);
      }
    }
    weights_.tile(panel).multiply(some);
    if (is_last && !is_direct) finish(t, first, some.count, panel, sums);
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

void Run::finish(const Task& t, int64_t first, int64_t count, int64_t panel, float* sums) const {
  const int64_t all = weights_.tile(panel).columns, column = panel * weights_.usual().columns,
                width = std::min(all, weights_.columns() - column);
  for (size_t k = 0; k < work_.later.size(); ++k) {
    const PostOp& op = work_.later[k];
    if (op.operand < 0)
      activate(op, sums, count * all);
    else
      for (int64_t r = 0; r < count; ++r)
        combine(op.kind, sums + r * all, t.others[k].at(first + r, column), t.others[k].column_step, width);
  }
  for (int64_t r = 0; r < count; ++r)
    store(sums + r * all, width, all, t.c.at(first + r, column), t.c.column_step);
}

} // namespace tbx::extern_kernels::product
