// A cache of keys and values that holds the last tokens only: GroupQueryAttention with sliding_window_cache.
#pragma once

#include "lowering/op_helpers.h"

namespace tbx::lowering {

/// Of T tokens, the last L(T) lie in rows 0 to L(T) - 1 in their order, the rest is unspecified; with a
/// capacity of C rows, a window of W and G = C - W + 1, L(T) is T up to C and T - G * ceil((T - C) / G)
/// beyond: a full cache loses G tokens at once, and at least W stay.
class WindowCache {
public:
  /// `past` [B, H, C, D]; `starts` and `totals`, i32 [B]: tokens of each batch entry before and after
  /// `queries` new ones.
  WindowCache(OpContext& ctx, const TensorBox& past, int64_t window, const TensorBox& starts,
              const TensorBox& totals, SymInt queries);

  /// What the new tokens see: the cache and right behind what is used of it they themselves, [B, H, C + S,
  /// D].
  TensorBox seen(const TensorBox& past, const TensorBox& fresh) const;
  /// The cache after the new tokens, [B, H, C, D].
  TensorBox present(const TensorBox& past, const TensorBox& fresh) const;
  /// Where the new tokens lie in `seen`, i32 [B].
  const TensorBox& places() const { return residents_; }
  /// What is added to scores [B or 1, H or 1, S, tokens] for the keys of `seen`.
  TensorBox bias(const TensorBox& x) const;

private:
  Expr resident(Expr total) const;
  Expr at(const TensorBox& x, SymInt entry) const;
  Expr new_token(const TensorBox& fresh, std::span<const SymInt> at, Expr number, Expr otherwise) const;

  OpContext& ctx_;
  ir::Program& p_;
  ir::Context& c_;
  SymInt batch_, capacity_, queries_;
  int64_t window_;
  TensorBox starts_, totals_, residents_;
};

} // namespace tbx::lowering
