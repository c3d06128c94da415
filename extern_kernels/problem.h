// Plain descriptions of what extern kernels compute. Lowering fills them, the plan carries them, kernels
// accept or refuse them. No vendor header, no IR.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/tensor.h"

namespace tbx::extern_kernels {

/// Work done on a result element before it is stored, in order. `operand` numbers an extra input of the call
/// (same shape as the result, or broadcastable to it).
struct PostOp {
  enum Kind {
    relu,
    leaky_relu /*alpha*/,
    clip /*alpha=lo, beta=hi*/,
    gelu_erf,
    gelu_tanh,
    silu /*x*sigmoid(alpha*x)*/,
    sigmoid,
    tanh,
    hard_sigmoid /*alpha*x+beta clipped to 0..1*/,
    hard_swish,
    linear /*alpha*x+beta*/,
    round,
    add /*+ operand*/,
    sub,
    mul,
    div,
    sum /*+ the old contents of the destination, which is operand's memory*/,
  } kind;
  float alpha = 0, beta = 0;
  int operand = -1;
};

/// What a convolution or matrix product of float32 may make of its operands.
enum class Precision : uint8_t {
  strict, ///< float32 as it is
  bf16,   ///< rounded to bfloat16 where the CPU multiplies those faster; products are added in float32
  any,    ///< rounded to whatever the library finds fastest, nothing coarser than bfloat16
};

/// N-d convolution, cross-correlation as in ONNX Conv / ConvTranspose. Inputs: 0 = x [N, C, spatial...],
/// 1 = w ([M, C/group, k...]; transposed: [C, M/group, k...]), 2 = bias [M] (optional), 3.. = post-op
/// operands. Output 0: [N, M, spatial...]. Sizes come with the tensors; all vectors have one entry per
/// spatial dimension. Integers: see MatMulProblem; padding stands for the zero point.
struct ConvProblem {
  int spatial_rank = 2;
  bool transposed = false;
  bool has_bias = false;
  Precision precision = Precision::strict;
  int x_zero = -1; ///< input with the zero point of x
  int64_t group = 1;
  std::vector<int64_t> strides, dilations, pads_begin, pads_end;
  std::vector<PostOp> post_ops;
};

/// Batched matrix product: inputs 0 = a [..., m, k], 1 = b [..., k, n] (views may be transposed by strides;
/// batch dimensions broadcast as in numpy and have the same rank here), 2 = bias (optional, broadcastable to
/// the result), 3.. = zero points and post-op operands. result = alpha * a*b (+ bias) then post-ops.
///
/// Of 8-bit integers a and b, less their zero points (inputs of one i32 element, -1: 0), the product is exact
/// in i32 and has no bias. It is stored as i32, or post-operations go on with it in f32; their result is
/// stored as f32, or as 8-bit integers of what it is, saturated.
struct MatMulProblem {
  bool has_bias = false;
  int a_zero = -1, b_zero = -1;
  float alpha = 1;
  Precision precision = Precision::strict;
  std::vector<PostOp> post_ops;
};

/// Scaled dot-product attention: q [B, H, S, D], k [B, Hkv, T, D], v [B, Hkv, T, Dv], 3 = additive mask
/// (broadcastable to [B, H, S, T]), 4 = starts [B] i32, 5 = sinks [H]; 3 to 5 are optional. Output
/// [B, H, S, Dv] (any strides). H is a multiple of Hkv. f32; q, k, v and the output may be f16 or bf16.
struct AttentionProblem {
  float scale = 1;
  bool causal = false;   ///< query i sees the keys 0 to i, or with starts 0 to starts[batch] + i
  bool from_end = false; ///< with causal: the last query sees all keys, the one before it all but one, ...
  bool has_mask = false;
  bool has_starts = false;   ///< where the first query of each batch entry lies among the keys
  bool has_sinks = false;    ///< each head has exp(sink) added to the denominator of its softmax
  bool tokens_first = false; ///< the output is [B, S, H, Dv]
  /// Rows whose softmax is not defined (everything masked by -inf, or NaN) give 0 instead of NaN.
  bool zero_undefined_rows = false;
  int64_t window = 0; ///< with causal: a query sees that many keys at most, the last ones; 0: all
  float softcap = 0;  ///< scores become softcap * tanh(score / softcap) before the mask is added; 0: off
};

struct CustomCall; // extern_kernels/custom_operator.h

using Attribute = std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                               std::vector<std::string>, std::shared_ptr<const Tensor>>;

/// A host kernel named after its ONNX operator ("TopK", "NonZero", ...); attributes as in ONNX, defaults
/// filled in.
struct HostProblem {
  std::string domain, op;
  int opset = 0;
  std::map<std::string, Attribute> attributes;
  std::vector<DType> output_types;
  std::shared_ptr<const CustomCall> custom; ///< an operator of a user's library
};

using Problem = std::variant<ConvProblem, MatMulProblem, AttentionProblem, HostProblem>;

/// "Conv", "ConvTranspose", "MatMul", "Attention", or the host operator's name.
std::string name_of(const Problem& problem);
/// One line with all parameters; deterministic.
std::string to_string(const Problem& problem);

} // namespace tbx::extern_kernels
