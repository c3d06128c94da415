// Tree ensembles. A walk is a loop without data-dependent branches in which eight rows go down one tree (or
// one row down eight trees) together, so that the loads of one hide those of the others. Rows are blocked, so
// that a tree is read from cache by all rows of a block. Most trees are walked in a memory of their own
// (compact_trees.h); here are those of any conditions, and those of few nodes among many features.
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/task_work.h"
#include "extern_kernels/host/compact_trees.h"
#include "extern_kernels/host/forest.h"
#include "extern_kernels/host/host_kernel.h"
#include "extern_kernels/host/ml_scores.h"
#include "extern_kernels/host/tasks.h"
#include "extern_kernels/host_attribute.h"
#include "extern_kernels/reference/dense.h"

namespace tbx::extern_kernels {
namespace {

constexpr int64_t kBlock = 64; ///< rows that go through a tree one after another, at most
constexpr int kTogether = CompactTrees<float>::kTogether;

enum class Aggregate { average = 0, sum = 1, min = 2, max = 3 };

/// A vector of weights: those of a leaf for all targets, where there are no more.
template <class T> struct Row {
  typedef T Lanes __attribute__((vector_size(32)));
  static constexpr int64_t kLanes = 32 / sizeof(T);
};

template <class T> class Forest {
public:
  explicit Forest(const HostProblem& p);

  /// Goes down from the nodes `at` to leaves, lane k with the features `rows[k]`. `nan`: features may be NaN.
  void walk(const T* const (&rows)[kTogether], uint32_t (&at)[kTogether], bool nan) const {
    if (conditions_ == Conditions::any)
      walk_as<Conditions::any>(rows, at);
    else if (conditions_ == Conditions::at_most || !nan)
      walk_as<Conditions::at_most>(rows, at);
    else
      walk_as<Conditions::at_most_or_nan>(rows, at);
  }
  T split(uint32_t leaf) const { return nodes[leaf].split; }
  int32_t source(uint32_t leaf) const { return static_cast<int32_t>(leaf); }
  /// NaN among the features needs a walk of its own.
  bool knows_nan() const { return conditions_ == Conditions::at_most_or_nan; }

  std::vector<TreeNode<T>> nodes; ///< empty where there are compact trees
  std::optional<CompactTrees<T>> compact;
  std::vector<int32_t> roots;
  std::vector<int32_t> leaf_begin; ///< node -> first of its weights
  std::vector<int32_t> leaf_target;
  std::vector<T> leaf_weight, base;
  int64_t targets = 1, features = 0; ///< features: one more than the greatest index used
  int64_t count() const { return static_cast<int64_t>(leaf_begin.size()) - 1; }
  bool one_value = false; ///< one target, and every leaf has a value in `split`
  bool has_rows = false;  ///< sums, and every leaf has a weight for all targets, in their order

private:
  void find_rows(std::span<const int32_t> yes);
  void check_indices(const HostProblem& p, std::span<const int32_t> feature, std::span<const int32_t> yes,
                     std::span<const int32_t> no) const;

  /// What all conditions are. The first has one comparison, the last has three.
  enum class Conditions { at_most, at_most_or_nan, any };

  /// Makes the condition "at most `split`", NaN apart: "less" is at most the number before, "greater" is
  /// the other child of "at most". False where that is not possible.
  static bool make_at_most(uint32_t& mask, TreeNode<T>& n) {
    if (n.split != n.split) return false;
    constexpr uint32_t kOrder = kLess | kEqual | kGreater;
    if ((mask & kGreater) && !(mask & kLess)) {
      mask = ~mask & (kOrder | kUnordered);
      std::swap(n.child[0], n.child[1]);
    }
    constexpr T kLowest = -std::numeric_limits<T>::infinity();
    if ((mask & kOrder) == kLess && n.split != kLowest) {
      n.split = std::nextafter(n.split, kLowest);
      mask |= kEqual;
    }
    return (mask & kOrder) == (kLess | kEqual);
  }

  template <Conditions conditions>
  void walk_as(const T* const (&rows)[kTogether], uint32_t (&at)[kTogether]) const {
    const TreeNode<T>* all = nodes.data();
    uint32_t moved;
    do {
      moved = 0;
#pragma GCC unroll 8
      for (int r = 0; r < kTogether; ++r) {
        const TreeNode<T>& n = all[at[r]];
        T v = rows[r][n.feature()];
        bool yes;
        if constexpr (conditions == Conditions::at_most) {
          yes = v <= n.split;
        } else if constexpr (conditions == Conditions::at_most_or_nan) {
          yes = (v <= n.split) | ((v != v) & (n.feature_mask >> (kFeatureBits + 3)));
        } else {
          uint32_t less = v<n.split, equal = v == n.split, greater = v> n.split;
          uint32_t how = less * kLess | equal * kEqual | greater * kGreater;
          how |= (how == 0) * kUnordered;
          yes = (n.condition() & how) != 0;
        }
        const auto next = static_cast<uint32_t>(n.child[yes]);
        moved |= next ^ at[r];
        at[r] = next;
      }
    } while (moved);
  }

  Conditions conditions_ = Conditions::at_most;
};

template <class T> std::vector<T> read(const HostProblem& p, const char* name) {
  const std::span<const T> values = elements_of<T>(p, name);
  return {values.begin(), values.end()};
}

void check(const HostProblem& p, bool fits, const char* what) {
  TBX_MODEL(fits, "{} of a call of {} do not fit each other: the package is damaged", what, p.op);
}

/// As lowering/ops/ml/forest.cpp makes them: a walk reads what they say.
template <class T>
void Forest<T>::check_indices(const HostProblem& p, std::span<const int32_t> feature,
                              std::span<const int32_t> yes, std::span<const int32_t> no) const {
  const auto count = static_cast<int64_t>(yes.size()), weights = static_cast<int64_t>(leaf_weight.size());
  auto all_below = [](std::span<const int32_t> values, int64_t end) {
    return std::all_of(values.begin(), values.end(), [&](int32_t v) { return v >= 0 && v < end; });
  };
  check(p, all_below(roots, count) && all_below(yes, count) && all_below(no, count), "nodes");
  check_acyclic(roots, yes, no);
  check(p, all_below(feature, int64_t{1} << kFeatureBits), "features");
  for (size_t i = 0; i < yes.size(); ++i)
    check(p, yes[i] != static_cast<int32_t>(i) || (no[i] == yes[i] && feature[i] == 0), "leaves");
  check(p,
        static_cast<int64_t>(leaf_begin.size()) == count + 1 && all_below(leaf_begin, weights + 1) &&
            std::is_sorted(leaf_begin.begin(), leaf_begin.end()) &&
            leaf_target.size() == leaf_weight.size() && all_below(leaf_target, targets),
        "leaves");
  check(p, targets > 0, "targets");
}

template <class T> Forest<T>::Forest(const HostProblem& p) {
  auto feature = read<int32_t>(p, "feature"), mask = read<int32_t>(p, "mask"), yes = read<int32_t>(p, "yes"),
       no = read<int32_t>(p, "no");
  auto split = read<T>(p, "split");
  roots = read<int32_t>(p, "roots");
  leaf_begin = read<int32_t>(p, "leaf_begin");
  leaf_target = read<int32_t>(p, "leaf_target");
  leaf_weight = read<T>(p, "leaf_weight");
  base = read<T>(p, "base");
  targets = attribute<int64_t>(p, "targets");
  const bool sound = feature.size() == split.size() && mask.size() == split.size() &&
                     yes.size() == split.size() && no.size() == split.size();
  check(p, sound, "nodes");
  check_indices(p, feature, yes, no);
  auto aggregate = static_cast<Aggregate>(attribute<int64_t>(p, "aggregate"));
  one_value = targets == 1 && attribute<int64_t>(p, "classes") == 0;
  nodes.reserve(split.size());
  for (size_t i = 0; i < split.size(); ++i) {
    bool leaf = yes[i] == static_cast<int32_t>(i);
    TreeNode<T> node{split[i], 0, {no[i], yes[i]}};
    auto condition = static_cast<uint32_t>(mask[i]);
    if (!leaf) {
      features = std::max<int64_t>(features, feature[i] + int64_t{1});
      if (!make_at_most(condition, node))
        conditions_ = Conditions::any;
      else if ((condition & kUnordered) && conditions_ == Conditions::at_most)
        conditions_ = Conditions::at_most_or_nan;
    }
    node.feature_mask = static_cast<uint32_t>(feature[i]) | condition << kFeatureBits;
    nodes.push_back(node);
    if (!leaf) continue;
    bool sums = aggregate == Aggregate::sum || aggregate == Aggregate::average;
    int32_t from = leaf_begin[i], to = leaf_begin[i + 1];
    one_value &= sums || to - from == 1;
    nodes[i].split = 0;
    for (int32_t k = from; k < to; ++k) nodes[i].split += leaf_weight[k];
  }
  features = std::max<int64_t>(features, 1); // a leaf reads feature 0 without using it
  if (!one_value && (aggregate == Aggregate::sum || aggregate == Aggregate::average)) find_rows(yes);
  if (conditions_ == Conditions::any) return;
  compact = CompactTrees<T>::make(nodes, roots);
  if (compact) std::vector<TreeNode<T>>().swap(nodes);
}

template <class T> void Forest<T>::find_rows(std::span<const int32_t> yes) {
  constexpr size_t kExact = size_t{1} << 24; // places that a float counts
  has_rows = targets <= Row<T>::kLanes && leaf_weight.size() < kExact;
  for (size_t i = 0; has_rows && i < yes.size(); ++i) {
    const int32_t from = leaf_begin[i];
    if (yes[i] != static_cast<int32_t>(i)) continue;
    has_rows = leaf_begin[i + 1] - from == targets;
    for (int64_t t = 0; has_rows && t < targets; ++t) has_rows = leaf_target[from + t] == t;
  }
  if (!has_rows) return;
  for (size_t i = 0; i < yes.size(); ++i)
    if (yes[i] == static_cast<int32_t>(i)) nodes[i].split = static_cast<T>(leaf_begin[i]);
  leaf_weight.resize(leaf_weight.size() + Row<T>::kLanes); // the last row is read as a vector, too
}

template <class T> class ForestKernel : public ExternKernel {
public:
  explicit ForestKernel(const HostProblem& p)
      : name_(p.op), forest_(p), aggregate_(static_cast<Aggregate>(attribute<int64_t>(p, "aggregate"))),
        transform_(static_cast<PostTransform>(attribute<int64_t>(p, "transform"))),
        classes_(attribute<int64_t>(p, "classes")), one_sided_(attribute<int64_t>(p, "one_sided") != 0),
        positive_(attribute<int64_t>(p, "positive") != 0) {
    check(p, (classes_ != 0) == (p.op == "TreeEnsembleClassifier") && (!one_sided_ || forest_.targets == 2),
          "classes");
    check(p,
          classes_ != 0 || forest_.base.size() <= 1 ||
              static_cast<int64_t>(forest_.base.size()) >= forest_.targets,
          "targets");
  }

  std::string description() const override {
    return fmt::format("host {} of {} trees, {} nodes", name_, forest_.roots.size(), forest_.count());
  }

  int64_t packed_bytes() const override {
    return forest_.compact ? forest_.compact->bytes()
                           : static_cast<int64_t>(forest_.nodes.size() * sizeof(TreeNode<T>));
  }

  bool is_serial(std::span<const TensorRef> inputs, std::span<const TensorRef>) const override {
    return is_little(rows_of(inputs[0]));
  }

  void run(const RunArgs& args) const override {
    const TensorRef& x = args.inputs[0];
    const int64_t rows = rows_of(x), width = x.sizes.back();
    if (rows == 0) return;
    TBX_MODEL(width >= forest_.features, "{}: the trees read {} features, the input has {}", name_,
              forest_.features, width);
    const bool serial = is_little(rows);
    const int64_t size = serial ? kBlock : block_size(rows, tbb::this_task_arena::max_concurrency());
    const int64_t blocks = (rows + size - 1) / size;
    auto run = [&](int64_t b) { run_block(args, b * size, std::min(rows, (b + 1) * size), width); };
    if (serial)
      for (int64_t b = 0; b < blocks; ++b) run(b);
    else
      for_each_task(blocks, run);
  }

private:
  static int64_t rows_of(const TensorRef& x) { return x.sizes.size() == 1 ? 1 : x.sizes[0]; }
  bool is_little(int64_t rows) const {
    return rows * static_cast<int64_t>(forest_.roots.size()) < kTaskWork.walks;
  }

  /// Few rows are shared by all threads, in whole groups of those that go down together.
  static int64_t block_size(int64_t rows, int threads) {
    const int64_t groups = (rows + kTogether - 1) / kTogether;
    return std::min(kBlock, (groups + threads - 1) / threads * kTogether);
  }

  struct Scratch {
    std::vector<T> rows, columns, scores;
    std::vector<uint8_t> scored;
  };

  /// Rows of the input in the type that is compared.
  const T* rows_of(const TensorRef& x, int64_t begin, int64_t end, int64_t width, Scratch& s) const {
    if (x.dtype == (sizeof(T) == 4 ? DType::f32 : DType::f64))
      return static_cast<const T*>(x.data) + begin * width;
    s.rows.resize(static_cast<size_t>((end - begin) * width));
    with_storage(x.dtype, [&]<class S>(S) {
      const S* from = static_cast<const S*>(x.data) + begin * width;
      bool bits = is_low_precision_float(x.dtype);
      for (size_t i = 0; i < s.rows.size(); ++i)
        s.rows[i] = bits ? static_cast<T>(decode_float(x.dtype, static_cast<uint32_t>(from[i])))
                         : static_cast<T>(from[i]);
    });
    return s.rows.data();
  }

  void run_block(const RunArgs& args, int64_t begin, int64_t end, int64_t width) const {
    static thread_local Scratch s;
    const T* x = rows_of(args.inputs[0], begin, end, width, s);
    const int64_t count = end - begin, targets = forest_.targets, pitch = this->pitch();
    s.scores.assign(static_cast<size_t>(count * pitch), 0);
    s.scored.assign(static_cast<size_t>(count * pitch), forest_.has_rows && !forest_.roots.empty());
    forest_.compact ? score_compact(x, width, count, s) : score(x, width, count, s);
    for (int64_t r = 0; r < count; ++r) {
      std::span<T> scores(s.scores.data() + r * pitch, static_cast<size_t>(targets));
      const uint8_t* scored = s.scored.data() + r * pitch;
      classes_ ? classify(args, begin + r, scores, scored) : regress(args, begin + r, scores);
    }
  }

  /// From the scores of a row to those of the next.
  int64_t pitch() const { return forest_.has_rows ? Row<T>::kLanes : forest_.targets; }

  /// Lanes are rows of one tree; with few rows they are trees of one row.
  void score_compact(const T* x, int64_t width, int64_t count, Scratch& s) const {
    const CompactTrees<T>& compact = *forest_.compact;
    const auto trees = static_cast<int64_t>(forest_.roots.size());
    const int64_t group = compact.columns() * kTogether;
    uint32_t leaves[kBlock];
    if (2 * count <= kTogether) {
      s.columns.resize(static_cast<size_t>(compact.columns()));
      for (int64_t r = 0; r < count; ++r) {
        compact.copy(x + r * width, width, 1, 1, s.columns.data());
        for (int64_t t = 0; t < trees; t += kTogether) {
          check_stop();
          compact.walk_row(t, s.columns.data(), leaves);
          collect_all(compact, leaves, std::min<int64_t>(kTogether, trees - t), s,
                      [&](int64_t) { return r; });
        }
      }
      return;
    }
    const int64_t groups = (count + kTogether - 1) / kTogether;
    s.columns.resize(static_cast<size_t>(groups * group));
    for (int64_t g = 0; g < groups; ++g)
      compact.copy(x + g * kTogether * width, width, std::min<int64_t>(kTogether, count - g * kTogether),
                   kTogether, s.columns.data() + g * group);
    for (int64_t t = 0; t < trees; ++t) {
      check_stop();
      compact.walk(t, s.columns.data(), groups, leaves);
      collect_all(compact, leaves, count, s, [](int64_t k) { return k; });
    }
  }

  void score(const T* x, int64_t width, int64_t count, Scratch& s) const {
    bool nan = false;
    for (int64_t i = 0; forest_.knows_nan() && i < count * width; ++i) nan |= x[i] != x[i];
    const auto trees = static_cast<int64_t>(forest_.roots.size());
    if (count >= kTogether) {
      for (int64_t t = 0; t < trees; ++t)
        for (int64_t r = 0; r < count; r += kTogether)
          lanes(x, width, nan, s, std::min<int64_t>(kTogether, count - r),
                [&](int64_t k) { return std::pair(r + k, t); });
    } else {
      for (int64_t r = 0; r < count; ++r)
        for (int64_t t = 0; t < trees; t += kTogether)
          lanes(x, width, nan, s, std::min<int64_t>(kTogether, trees - t),
                [&](int64_t k) { return std::pair(r, t + k); });
    }
  }

  /// Walks `n` lanes, of which `place` says row and tree, and collects what their leaves give.
  template <class F> void lanes(const T* x, int64_t width, bool nan, Scratch& s, int64_t n, F&& place) const {
    check_stop();
    const T* rows[kTogether];
    uint32_t at[kTogether];
    for (int64_t k = 0; k < kTogether; ++k) {
      auto [row, tree] = place(std::min(k, n - 1));
      rows[k] = x + row * width;
      at[k] = static_cast<uint32_t>(forest_.roots[tree]);
    }
    forest_.walk(rows, at, nan);
    collect_all(forest_, at, n, s, [&](int64_t k) { return place(k).first; });
  }

  /// Adds what the leaves of `n` lanes give to the scores of their rows.
  template <class Trees, class F>
  void collect_all(const Trees& trees, const uint32_t* leaves, int64_t n, Scratch& s, F&& row_of) const {
    if (forest_.has_rows) return add_rows(trees, leaves, n, s.scores.data(), row_of);
    const bool sums = forest_.one_value && (aggregate_ == Aggregate::sum || aggregate_ == Aggregate::average);
    for (int64_t k = 0; k < n; ++k) {
      const int64_t first = row_of(k) * forest_.targets;
      if (sums)
        s.scores[first] += trees.split(leaves[k]);
      else
        collect(trees.source(leaves[k]), s.scores.data() + first, s.scored.data() + first);
    }
  }

  /// Adds the weights of leaves to scores, lane by lane.
  template <class Trees, class F>
  void add_rows(const Trees& trees, const uint32_t* leaves, int64_t n, T* scores, F&& row_of) const {
    using Lanes = typename Row<T>::Lanes;
    for (int64_t k = 0; k < n; ++k) {
      T* sums = scores + row_of(k) * Row<T>::kLanes;
      Lanes sum, weights;
      const auto begin = static_cast<int64_t>(trees.split(leaves[k]));
      std::memcpy(&weights, forest_.leaf_weight.data() + begin, sizeof weights);
      std::memcpy(&sum, sums, sizeof sum);
      sum += weights;
      std::memcpy(sums, &sum, sizeof sum);
    }
  }

  void collect(int32_t leaf, T* scores, uint8_t* scored) const {
    for (int32_t k = forest_.leaf_begin[leaf]; k < forest_.leaf_begin[leaf + 1]; ++k) {
      int32_t t = forest_.leaf_target[k];
      T w = forest_.leaf_weight[k];
      if (aggregate_ == Aggregate::min)
        scores[t] = scored[t] ? std::min(scores[t], w) : w;
      else if (aggregate_ == Aggregate::max)
        scores[t] = scored[t] ? std::max(scores[t], w) : w;
      else
        scores[t] += w;
      scored[t] = 1;
    }
  }

  void regress(const RunArgs& args, int64_t row, std::span<T> scores) const {
    for (size_t t = 0; t < scores.size(); ++t) {
      if (aggregate_ == Aggregate::average) scores[t] /= static_cast<T>(forest_.roots.size());
      if (!forest_.base.empty()) scores[t] += forest_.base[forest_.base.size() == 1 ? 0 : t];
    }
    transform_scores<T>(transform_, scores);
    store(args.outputs[0], row * forest_.targets, scores);
  }

  /// Outputs: index of the class, scores. `one_sided`: two classes of which the leaves score one only. Its
  /// score decides; where that is the first, it is taken for the score of the second, as ONNX Runtime does.
  void classify(const RunArgs& args, int64_t row, std::span<T> scores, const uint8_t* scored) const {
    const auto& base = forest_.base;
    int64_t best = 0;
    if (one_sided_) {
      size_t side = scored[1] ? 1 : 0;
      for (size_t t = 0; t < 2 && base.size() == 2; ++t) scores[t] += base[t];
      if (base.size() == 1) scores[side] += base[0];
      T s = scores[side];
      // Weights that are all positive are probabilities, others are distances from the boundary.
      best = s > (positive_ ? T(0.5) : T(0));
      if (side == 1 || base.size() == 2) {
        transform_scores<T>(transform_, scores);
      } else if (transform_ == PostTransform::logistic) {
        scores[0] = logistic(-s);
        scores[1] = logistic(s);
      } else {
        scores[0] = positive_ ? 1 - s : -s;
        scores[1] = s;
        if (transform_ == PostTransform::probit) transform_scores<T>(transform_, scores);
      }
    } else {
      for (size_t t = 0; t < scores.size() && t < base.size(); ++t) scores[t] += base[t];
      best = -1;
      for (size_t t = 0; t < scores.size(); ++t)
        if ((scored[t] || !base.empty()) && (best < 0 || scores[t] > scores[best]))
          best = static_cast<int64_t>(t);
      best = std::max<int64_t>(best, 0);
      transform_scores<T>(transform_, scores);
    }
    static_cast<int64_t*>(args.outputs[0].data)[row] = best;
    store(args.outputs[1], row * forest_.targets, scores);
  }

  static void store(const TensorRef& out, int64_t at, std::span<const T> scores) {
    for (size_t i = 0; i < scores.size(); ++i) switch (out.dtype) {
      case DType::f64: static_cast<double*>(out.data)[at + i] = static_cast<double>(scores[i]); break;
      case DType::f16:
        static_cast<uint16_t*>(out.data)[at + i] =
            static_cast<uint16_t>(encode_float(DType::f16, static_cast<float>(scores[i])));
        break;
      default: static_cast<float*>(out.data)[at + i] = static_cast<float>(scores[i]);
      }
  }

  std::string name_;
  Forest<T> forest_;
  Aggregate aggregate_;
  PostTransform transform_;
  int64_t classes_;
  bool one_sided_, positive_;
};

} // namespace

void check_acyclic(std::span<const int32_t> roots, std::span<const int32_t> yes,
                   std::span<const int32_t> no) {
  enum State : uint8_t { fresh, open, done };
  std::vector<State> state(yes.size(), fresh);
  std::vector<int32_t> stack;
  for (int32_t root : roots) {
    stack.push_back(root);
    while (!stack.empty()) {
      const int32_t at = stack.back();
      if (state[at] != fresh || yes[at] == at) {
        state[at] = done;
        stack.pop_back();
        continue;
      }
      state[at] = open;
      for (int32_t child : {yes[at], no[at]}) {
        TBX_MODEL(state[child] != open, "the trees have a cycle through node {}", child);
        if (state[child] == fresh) stack.push_back(child);
      }
    }
  }
}

std::unique_ptr<ExternKernel> make_forest(const HostProblem& p) {
  const auto& split = attribute<std::shared_ptr<const Tensor>>(p, "split");
  if (split->dtype == DType::f64) return std::make_unique<ForestKernel<double>>(p);
  return std::make_unique<ForestKernel<float>>(p);
}

} // namespace tbx::extern_kernels
