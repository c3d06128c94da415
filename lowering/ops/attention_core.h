// What the operators of attention share: heads, caches, masks, and the product itself.
#pragma once

#include <optional>

#include "lowering/op_helpers.h"

namespace tbx::lowering {

/// softmax(softcap(q*k'*scale) + mask)*v over q [B, H, S, D], k [B, Hkv, T, D], v [B, Hkv, T, Dv]; H is a
/// multiple of Hkv.
struct AttentionCore {
  TensorBox q, k, v;
  float scale = 1;
  std::optional<TensorBox> mask; ///< added to scores, broadcasts to [B, H, S, T]
  bool causal = false;           ///< query i sees the keys 0 to start + i
  /// Where the first query of each batch entry lies among the keys, i32 [B]; absent: the last query sees all
  /// keys, unless from_first.
  std::optional<TensorBox> starts;
  std::optional<TensorBox> sinks;   ///< [H]: exp(sink) is added to the denominator
  int64_t window = 0;               ///< with causal: how many keys a query sees at most; 0: all
  float softcap = 0;                ///< 0: off
  bool from_first = false;          ///< with causal, without starts: the first query sees the first key alone
  bool zero_undefined_rows = false; ///< what is no number becomes 0
  bool zero_hidden_rows = false;    ///< rows that see no key are 0; what is no number stays so
  double unseen = 0;                ///< what stored scores are for keys that a query does not see
};

/// [B, H, S, Dv] in the type of q. Scores before the softmax and what it makes of them, [B, H, S, T] in f32,
/// go where there are pointers; else they are not stored whole.
TensorBox attend(OpContext& ctx, const AttentionCore& a, TensorBox* scores = nullptr,
                 TensorBox* probabilities = nullptr);

/// Keys or values [B, H, S, D] behind each other. On a GPU halves stay what they are: the kernel reads them
/// so, and a session can keep them from run to run.
TensorBox join_tokens(OpContext& ctx, const std::vector<TensorBox>& parts);

/// What queries, keys and values are in memory; undefined where they differ.
DType operand_type(OpContext& ctx, const AttentionCore& a);

/// Whether the kernel that never stores scores is faster than two products and a softmax with operands of
/// this type; nullopt: sizes known at run time only decide.
std::optional<bool> is_fast_fused(const Target& target, DType operands, SymInt queries, SymInt keys);

/// The shares of a softmax go into memory as what they are multiplied with does.
void store_like(OpContext& ctx, const TensorBox& shares, const TensorBox& values);

/// As attend(), in f32 by the kernel that never stores scores, whatever the sizes.
TensorBox attend_fused(OpContext& ctx, const AttentionCore& a);

/// A required attribute that counts heads: at least 1, and small enough to reckon with.
int64_t head_count(OpContext& ctx, const char* attribute);
/// [B, S, H * D] -> [B, H, S, D].
TensorBox split_heads(OpContext& ctx, const TensorBox& x, int64_t heads);
/// [B, H, S, D] -> [B, S, H * D].
TensorBox join_heads(OpContext& ctx, const TensorBox& x);

/// The padding mask of the com.microsoft operators as a mask to be added, f32 [B or 1, 1, S or 1, T]: 0 or
/// `filter`. `x` is i32: [B] lengths, [2 * B] ends and starts, [3 * B + 2] lengths first, [B, T], [B, S, T]
/// or [B, 1, M, M], whose rows are positions among the keys.
TensorBox padding_mask(OpContext& ctx, const TensorBox& x, SymInt batch, SymInt queries, SymInt keys,
                       double filter);

/// ModelError where the sizes are known to differ, else a check of each run that speaks of `what`.
void require_equal(OpContext& ctx, SymInt a, SymInt b, const std::string& what);
/// A dimension that has to be known while compiling.
int64_t known_size(SymInt size, const char* what);
/// The attribute `scale`; where it is missing or 0, 1 / sqrt(head size).
float attention_scale(OpContext& ctx, int64_t head_size);

/// x [B, H, S, D] rotated by position: cos and sin are [positions, r / 2] and turn the first r elements of
/// each head; `position(b, s)` is an i64 expression. The halves lie side by side, or interleaved.
TensorBox rotated(OpContext& ctx, const TensorBox& x, const TensorBox& cos, const TensorBox& sin,
                  const std::function<Expr(SymInt, SymInt)>& position, bool interleaved);

} // namespace tbx::lowering
