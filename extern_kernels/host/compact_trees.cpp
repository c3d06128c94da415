#include "extern_kernels/host/compact_trees.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/isa.h"

namespace tbx::extern_kernels {
namespace {

constexpr int kRound = 4;              ///< levels after which a walk looks whether all are at leaves
constexpr int64_t kColumnsPerTree = 8; ///< a value is copied in less than an eighth of the time of a tree

constexpr int kTogether = CompactTrees<float>::kTogether;

/// The nodes below the first levels of a tree. Of the two halves of each level one counts, level by level.
template <class T, int B>
[[gnu::always_inline]] inline void find_exits(const TreeHead<T>& head, const T* columns, uint32_t* at) {
  constexpr int kLanes = B / static_cast<int>(sizeof(T));
  using Integer = std::make_signed_t<LinkWord<T>>;
  typedef T Values __attribute__((vector_size(B)));
  typedef Integer Mask __attribute__((vector_size(B)));
  for (int first = 0; first < kTogether; first += kLanes) {
    Mask above[TreeHead<T>::kExits - 1];
#pragma GCC unroll 16
    for (size_t n = 0; n < TreeHead<T>::kExits - 1; ++n) {
      Values v;
      std::memcpy(&v, columns + head.column[n] + first, sizeof v);
      above[n] = v > head.split[n];
    }
    const Mask b0 = above[0], b1 = b0 ? above[2] : above[1];
    const Mask b2 = b0 ? (b1 ? above[6] : above[5]) : (b1 ? above[4] : above[3]);
    const Mask low = b1 ? (b2 ? above[10] : above[9]) : (b2 ? above[8] : above[7]);
    const Mask high = b1 ? (b2 ? above[14] : above[13]) : (b2 ? above[12] : above[11]);
    const Mask b3 = b0 ? high : low;
    const Mask exits = (b0 & 8) | (b1 & 4) | (b2 & 2) | (b3 & 1);
    LinkWord<T> exit[kLanes];
    std::memcpy(exit, &exits, sizeof exits);
#pragma GCC unroll 8
    for (int k = 0; k < kLanes; ++k) at[first + k] = head.exit[exit[k]];
  }
}

/// Goes down `levels` levels, or until all are at leaves. Rows of a pitch of 1 are one row.
template <class T, int kPitch>
[[gnu::always_inline]] inline void descend(const CompactNode<T>* nodes, int column_bits, const T* columns,
                                           int32_t levels, uint32_t* places) {
  uint32_t at[kTogether];
#pragma GCC unroll 8
  for (int k = 0; k < kTogether; ++k) at[k] = places[k];
  auto next = [&](int k) __attribute__((always_inline)) {
    const CompactNode<T>& n = nodes[at[k]];
    const size_t column = n.link & ((LinkWord<T>{1} << column_bits) - 1);
    T v;
    std::memcpy(&v, reinterpret_cast<const char*>(columns + (kPitch == 1 ? 0 : k)) + column * kPitch,
                sizeof v);
    return static_cast<uint32_t>(n.link >> column_bits) + static_cast<uint32_t>(!(n.split >= v));
  };
  bool go = true;
  for (; go && levels > kRound; levels -= kRound) {
    for (int level = 1; level < kRound; ++level) {
#pragma GCC unroll 8
      for (int k = 0; k < kTogether; ++k) at[k] = next(k);
    }
    uint32_t moved = 0;
#pragma GCC unroll 8
    for (int k = 0; k < kTogether; ++k) {
      const uint32_t to = next(k);
      moved |= to ^ at[k];
      at[k] = to;
    }
    go = moved != 0;
  }
  for (; go && levels > 0; --levels) {
#pragma GCC unroll 8
    for (int k = 0; k < kTogether; ++k) at[k] = next(k);
  }
#pragma GCC unroll 8
  for (int k = 0; k < kTogether; ++k) places[k] = at[k];
}

template <class T> struct Walk {
  const TreeHead<T>& head;
  const CompactNode<T>* nodes;
  int column_bits;
  const T* columns;
  int64_t group; ///< values between the groups of rows
  int64_t groups;
};

/// Through the first levels with all rows, then on: what a CPU looks at in advance is then many short ways.
template <class T, int B> [[gnu::always_inline]] inline void walk_body(const Walk<T>& w, uint32_t* leaves) {
  for (int64_t g = 0; g < w.groups; ++g)
    find_exits<T, B>(w.head, w.columns + g * w.group, leaves + g * kTogether);
  if (w.head.levels == 0) return;
  for (int64_t g = 0; g < w.groups; ++g)
    descend<T, kTogether>(w.nodes, w.column_bits, w.columns + g * w.group, w.head.levels,
                          leaves + g * kTogether);
}

template <class T> void walk_plain(const Walk<T>& w, uint32_t* leaves) { walk_body<T, 16>(w, leaves); }
#if defined(__x86_64__)
template <class T> __attribute__((target("avx2,bmi2"))) void walk_avx2(const Walk<T>& w, uint32_t* leaves) {
  walk_body<T, 32>(w, leaves);
}
#endif

template <class T> auto best_walk() {
#if defined(__x86_64__)
  if (host_isa() >= Isa::avx2) return walk_avx2<T>;
#endif
  return walk_plain<T>;
}

} // namespace

template <class T>
std::optional<CompactTrees<T>> CompactTrees<T>::make(std::span<const TreeNode<T>> nodes,
                                                     std::span<const int32_t> roots) {
  CompactTrees made;
  const int64_t columns = std::min<int64_t>(kColumnsPerTree * static_cast<int64_t>(roots.size()),
                                            std::numeric_limits<int32_t>::max() / kTogether);
  if (!made.find_columns(nodes) || made.columns() > columns) return std::nullopt;
  made.column_bits_ = std::bit_width(static_cast<size_t>(made.columns()) * sizeof(T));
  // A root has the memory of a pair, so that no pair lies in two lines of a cache.
  const auto most = static_cast<int64_t>(nodes.size() + roots.size());
  const int bits = std::min<int>(31, std::numeric_limits<Word>::digits - made.column_bits_);
  if (bits <= 0 || most >= int64_t{1} << bits) return std::nullopt;
  made.nodes_.reserve(static_cast<size_t>(most));
  made.source_.reserve(static_cast<size_t>(most));
  std::vector<bool> placed(nodes.size());
  for (int32_t root : roots)
    if (!made.place(nodes, root, placed)) return std::nullopt;
  return made;
}

template <class T> bool CompactTrees<T>::find_columns(std::span<const TreeNode<T>> nodes) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    const TreeNode<T>& n = nodes[i];
    if (n.split != n.split) return false;
    if (n.child[0] == static_cast<int32_t>(i)) continue;
    const bool nan_is_least = (n.condition() & kUnordered) != 0;
    if ((n.condition() & ~kUnordered) != (kLess | kEqual)) return false;
    if (!nan_is_least && n.split == std::numeric_limits<T>::infinity())
      return false; // NaN would be at most that
    columns_.push_back({n.feature(), nan_is_least});
  }
  std::sort(columns_.begin(), columns_.end());
  columns_.erase(std::unique(columns_.begin(), columns_.end()), columns_.end());
  return true;
}

/// A node, the pair of its children, all below the first child, all below the second. False where somebody
/// placed one of them before.
template <class T>
bool CompactTrees<T>::place(std::span<const TreeNode<T>> nodes, int32_t root, std::vector<bool>& placed) {
  struct Open {
    int32_t source;
    size_t at;
    int32_t level;
  };
  const auto leaf_column = static_cast<Word>(columns_.size() * sizeof(T));
  const size_t first = nodes_.size();
  auto two_more = [&] {
    nodes_.resize(nodes_.size() + 2);
    source_.resize(source_.size() + 2);
  };
  two_more();
  int32_t deepest = 0;
  for (std::vector<Open> open{{root, first, 0}}; !open.empty();) {
    const auto [source, at, level] = open.back();
    open.pop_back();
    if (placed[static_cast<size_t>(source)]) return false;
    placed[static_cast<size_t>(source)] = true;
    source_[at] = source;
    deepest = std::max(deepest, level);
    const TreeNode<T>& n = nodes[static_cast<size_t>(source)];
    if (n.child[0] == source) {
      nodes_[at] = {n.split, static_cast<Word>(at) << column_bits_ | leaf_column};
      continue;
    }
    const Column wanted{n.feature(), (n.condition() & kUnordered) != 0};
    const auto column =
        static_cast<Word>(std::lower_bound(columns_.begin(), columns_.end(), wanted) - columns_.begin());
    const size_t pair = nodes_.size();
    nodes_[at] = {n.split, static_cast<Word>(pair) << column_bits_ | column * static_cast<Word>(sizeof(T))};
    two_more();
    open.push_back({n.child[0], pair + 1, level + 1});
    open.push_back({n.child[1], pair, level + 1});
  }
  roots_.push_back(static_cast<uint32_t>(first));
  levels_.push_back(deepest);
  heads_.push_back(head_of(roots_.back(), deepest));
  return true;
}

template <class T>
typename CompactTrees<T>::Head CompactTrees<T>::head_of(uint32_t root, int32_t levels) const {
  Head head{};
  std::array<uint32_t, 2 * Head::kExits - 1> at{root};
  for (size_t i = 0; i < head.split.size(); ++i) {
    const Node& n = nodes_[at[i]];
    const bool leaf = child(at[i]) == at[i];
    head.split[i] = n.split;
    head.column[i] = static_cast<int32_t>(column(n) * kTogether);
    at[2 * i + 1] = child(at[i]);
    at[2 * i + 2] = leaf ? at[i] : child(at[i]) + 1;
  }
  std::copy_n(at.begin() + Head::kExits - 1, Head::kExits, head.exit.begin());
  head.levels = std::max(0, levels - Head::kLevels);
  return head;
}

template <class T>
void CompactTrees<T>::copy(const T* x, int64_t width, int64_t count, int64_t pitch, T* to) const {
  constexpr T kGreatest = std::numeric_limits<T>::infinity();
  for (const Column& c : columns_) {
    const T nan = c.nan_is_least ? -kGreatest : kGreatest;
    for (int64_t r = 0; r < count; ++r) {
      const T v = x[r * width + c.feature];
      to[r] = v != v ? nan : v;
    }
    to += pitch;
  }
  std::fill_n(to, pitch,
              -kGreatest); // of all rows, so that those that are not there stay within the nodes, too
}

template <class T>
void CompactTrees<T>::walk(int64_t tree, const T* columns, int64_t groups, uint32_t* leaves) const {
  static const auto best = best_walk<T>();
  best({heads_[static_cast<size_t>(tree)], nodes_.data(), column_bits_, columns, this->columns() * kTogether,
        groups},
       leaves);
}

template <class T> void CompactTrees<T>::walk_row(int64_t tree, const T* columns, uint32_t* leaves) const {
  const auto last = static_cast<int64_t>(roots_.size()) - 1;
  int32_t levels = 0;
  for (int k = 0; k < kTogether; ++k) {
    const auto t = static_cast<size_t>(std::min(tree + k, last));
    leaves[k] = roots_[t];
    levels = std::max(levels, levels_[t]);
  }
  descend<T, 1>(nodes_.data(), column_bits_, columns, levels, leaves);
}

template <class T> int64_t CompactTrees<T>::bytes() const {
  return static_cast<int64_t>(nodes_.size() * (sizeof(Node) + sizeof(int32_t)) +
                              heads_.size() * sizeof(Head));
}

template class CompactTrees<float>;
template class CompactTrees<double>;

} // namespace tbx::extern_kernels
