// Trees whose conditions are all "at most", in the memory that walks want: a node is two words and its
// children lie side by side, and through the first levels of a tree rows go in vectors.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "extern_kernels/host/tree_node.h"

namespace tbx::extern_kernels {

template <class T> using LinkWord = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

/// The way goes to the child where the value is at most `split`, else to the node behind it. What a leaf
/// looks at is at most any split, and it is its own child.
template <class T> struct CompactNode {
  T split;
  LinkWord<T> link; ///< child, and in the lower bits the bytes before the value in a row of pitch 1
};

/// The first levels of a tree, level by level. All ways from a leaf lead to it.
template <class T> struct TreeHead {
  static constexpr int kLevels = 4, kExits = 1 << kLevels;
  std::array<T, kExits - 1> split;
  std::array<int32_t, kExits - 1> column; ///< where its values begin
  std::array<uint32_t, kExits> exit;
  int32_t levels; ///< below the exits
};

template <class T> class CompactTrees {
public:
  static constexpr int kTogether = 8; ///< rows that go down a tree side by side, or trees of one row

  /// Nothing where a walk needs more: other conditions, nodes with two parents, numbers that a word does not
  /// hold, or where rows are copied for longer than they walk. `nodes` have sound indices and no cycle.
  /// Leaves keep their `split`.
  static std::optional<CompactTrees> make(std::span<const TreeNode<T>> nodes, std::span<const int32_t> roots);

  /// Values that a row is copied to: those that some condition looks at, and one for the leaves.
  int64_t columns() const { return static_cast<int64_t>(columns_.size()) + 1; }
  /// `count` rows of `width` features, at most `pitch`, as columns: value c of row r at to[c * pitch + r].
  void copy(const T* x, int64_t width, int64_t count, int64_t pitch, T* to) const;

  /// The leaves of a tree that `groups` of kTogether rows reach, each copied with a pitch of kTogether.
  void walk(int64_t tree, const T* columns, int64_t groups, uint32_t* leaves) const;
  /// The leaves that one row, copied with a pitch of 1, reaches in kTogether trees from `tree` on. The last
  /// tree stands for those that are not there.
  void walk_row(int64_t tree, const T* columns, uint32_t* leaves) const;

  T split(uint32_t leaf) const { return nodes_[leaf].split; }
  /// The leaf among the nodes that these trees were made of.
  int32_t source(uint32_t leaf) const { return source_[leaf]; }
  int64_t bytes() const;

private:
  using Node = CompactNode<T>;
  using Head = TreeHead<T>;
  using Word = LinkWord<T>;

  /// A feature with what becomes of NaN: the least value, which goes where the condition holds, or the
  /// greatest.
  struct Column {
    uint32_t feature;
    bool nan_is_least;
    bool operator==(const Column&) const = default;
    bool operator<(const Column& other) const {
      return feature != other.feature ? feature < other.feature : nan_is_least < other.nan_is_least;
    }
  };

  bool find_columns(std::span<const TreeNode<T>> nodes);
  bool place(std::span<const TreeNode<T>> nodes, int32_t root, std::vector<bool>& placed);
  uint32_t child(uint32_t at) const { return static_cast<uint32_t>(nodes_[at].link >> column_bits_); }
  int64_t column(const Node& n) const {
    return static_cast<int64_t>(n.link & ((Word{1} << column_bits_) - 1)) / int64_t{sizeof(T)};
  }
  Head head_of(uint32_t root, int32_t levels) const;

  std::vector<Node> nodes_;
  std::vector<Head> heads_;
  std::vector<uint32_t> roots_;
  std::vector<int32_t> source_, levels_;
  std::vector<Column> columns_;
  int column_bits_ = 0;
};

extern template class CompactTrees<float>;
extern template class CompactTrees<double>;

} // namespace tbx::extern_kernels
