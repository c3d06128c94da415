// Horizontal fusion: which nests join a group whose results they do not read.
//
//   siblings   run over the same loops and read the same elements, or one reduces the rows that the other
//              goes through: memory is read once
//   parts      of concatenations, over the same loops
//   totals     of tensors, over the same loops
//   small ones of a GPU, whose points may differ along one axis: one kernel is started instead of several
//
// All but the last run over the axes of the group as they are. Small ones may make an axis longer (`Beside`).
#pragma once

#include <optional>
#include <unordered_map>

#include "base/target.h"
#include "fusion/grouping.h"
#include "ir/tensor_box.h"

namespace tbx::fusion {

/// A member with all its variables bound, and the group's axes once it has joined.
struct Beside {
  Member member;
  ir::SymInts axes;
};

class HorizontalFusion {
public:
  /// Both must live as long as it does.
  HorizontalFusion(const ir::Program& program, const Target& target) : program_(program), target_(target) {}

  /// `draft` was begun with this nest. Later parts and totals over the same loops are offered it.
  void begun(int draft, const ir::Compute& compute);
  /// The last draft that was begun with a part or a total that this one may join; -1: none.
  int last_alike(const ir::Compute& compute) const;

  /// Binds the variables of a sibling, a part or a total. Says what it is; nullptr, and nothing bound, where
  /// it is none of these.
  const char* bind(const Draft& draft, const ir::Compute& compute, Member& member) const;
  /// Of a small nest of a GPU.
  std::optional<Beside> beside(const Draft& draft, int op, const ir::Loops& loops) const;
  /// Makes axes of the draft longer. Members that ran over all points of one end before it does now.
  static void widen(Draft& draft, const ir::SymInts& axes);

private:
  bool is_part(const ir::Compute& compute) const;
  bool bind_sibling(const Draft& draft, const ir::Loops& loops, Member& member) const;
  bool bind_row(const Draft& draft, const ir::Loops& other, const std::vector<ir::Expr>& theirs,
                const ir::Loops& loops, const std::vector<ir::Expr>& mine, Member& member) const;
  bool bind_part(const Draft& draft, const ir::Compute& compute, Member& member) const;
  bool bind_total(const Draft& draft, const ir::Compute& compute, Member& member) const;
  std::vector<ir::Expr> loads_of(const ir::Loops& loops) const;

  struct HashRanges {
    size_t operator()(const ir::SymInts& ranges) const;
  };
  const ir::Program& program_;
  const Target& target_;
  std::unordered_map<ir::SymInts, int, HashRanges> last_part_; ///< by its loops
  int last_total_ = -1;
};

} // namespace tbx::fusion
