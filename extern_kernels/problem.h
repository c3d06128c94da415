// Plain descriptions of what extern kernels compute. Lowering fills them, the plan carries them, kernels
// accept or refuse them. No vendor header, no IR.
#pragma once

#include <cstdint>
#include <limits>
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

/// So few queries of attention (decoding) read keys and values where they lie: packing the keys would cost
/// more than it saves.
inline constexpr int64_t kFewQueries = 4;

/// The first elements of each head, turned by pairs: (x, y) becomes (x * cos - y * sin, x * sin + y * cos).
struct HeadRotation {
  int64_t width = 0;                ///< how many elements; 0: none
  bool interleaved = false;         ///< a pair are elements 2 * i and 2 * i + 1; else i and i + width / 2
  DType rounded = DType::undefined; ///< what products become before they are added; undefined: stay f32
  /// What queries and keys become then.
  DType queries = DType::undefined, keys = DType::undefined;
  bool operator==(const HeadRotation&) const = default;
};

/// Scaled dot-product attention: q [B, H, S, D], k [B, Hkv, T, D], v [B, Hkv, T, Dv], 3 = additive mask
/// (broadcastable to [B, H, S, T]), 4 = starts [B] i32, 5 = sinks [H]; 3 to 5 are optional. Output
/// [B, H, S, Dv] (any strides). H is a multiple of Hkv. f32; q, k, v and the output may be f16 or bf16.
///
/// With `carries`, inputs kCacheKeys and kCacheValues are the keys [B, Hkv, P, D] and values [B, Hkv, P, Dv]
/// of before, of the types of k and v. They become outputs 1 and 2, which are the first P tokens of k and v:
/// of these the kernel finds the others written.
///
/// With `appends`, these inputs are the new keys [B, Hkv, N, D] and values [B, Hkv, N, Dv], floats of any
/// type. They become outputs 1 and 2, which are the last N tokens of k and v: of these the kernel finds the
/// others written, before the run began. N is 1 on a GPU.
///
/// With `rotation`, which asks for `appends`, queries and new keys are rotated first, and the rotated keys
/// are stored: inputs kCosines and kSines are [B or 1, C], C as many as there are elements that turn, or as
/// there are pairs of them.
struct AttentionProblem {
  static constexpr size_t kCacheKeys = 6, kCacheValues = 7, kCosines = 8, kSines = 9;
  float scale = 1;
  bool causal = false;   ///< query i sees the keys 0 to i, or with starts 0 to starts[batch] + i
  bool from_end = false; ///< with causal: the last query sees all keys, the one before it all but one, ...
  bool has_mask = false;
  bool has_starts = false;   ///< where the first query of each batch entry lies among the keys
  bool has_sinks = false;    ///< each head has exp(sink) added to the denominator of its softmax
  bool tokens_first = false; ///< the output is [B, S, H, Dv]
  /// Rows whose softmax is not defined (everything masked by -inf, or NaN) give 0 instead of NaN.
  bool zero_undefined_rows = false;
  /// Rows that see no key, or whose keys are all masked by -inf, give 0; what is no number stays so.
  bool zero_hidden_rows = false;
  int64_t window = 0; ///< with causal: a query sees that many keys at most, the last ones; 0: all
  float softcap = 0;  ///< scores become softcap * tanh(score / softcap) before the mask is added; 0: off
  bool carries = false;
  bool appends = false;
  HeadRotation rotation = {};
};

/// What a gate of a recurrent layer makes of its sum.
struct GateActivation {
  enum Kind : uint8_t {
    affine /*alpha*x+beta*/,
    relu,
    leaky_relu /*x or alpha*x*/,
    thresholded_relu /*x where x > alpha*/,
    tanh,
    scaled_tanh /*alpha*tanh(beta*x)*/,
    sigmoid,
    hard_sigmoid /*alpha*x+beta clipped to 0..1*/,
    elu /*x or alpha*(e^x-1)*/,
    softsign,
    softplus,
  } kind = tanh;
  double alpha = 0, beta = 0;
};

/// The steps of LSTM, GRU and RNN: their products with the input are made before, for all steps at once.
/// Inputs: 0 = gates of the input [steps, batch, directions * gates * hidden] (batch_first: [batch, steps,
/// ...]) with all biases that are plain sums, 1 = R [directions, gates * hidden, hidden], 2 = lengths
/// [batch], i32 or i64, 3 = initial h, 4 = initial c, both [directions, batch, hidden] (batch_first: [batch,
/// directions, hidden]), 5 = peepholes [directions, 3 * hidden], 6 = the hidden gate's recurrent bias
/// [directions, hidden] (gru_linear); 2 to 6 are optional. Outputs: those asked for of Y [steps, directions,
/// batch, hidden] (batch_first: [batch, steps, directions, hidden]), the last h and the last c.
struct RecurrentProblem {
  enum Cell : uint8_t { lstm, gru, gru_linear /*linear_before_reset*/, rnn } cell = lstm;
  enum Direction : uint8_t { forward, reverse, bidirectional } direction = forward;
  bool batch_first = false;
  bool input_forget = false;                              ///< the forget gate is 1 - the input gate
  bool gives_y = false, gives_h = false, gives_c = false; ///< the outputs that are asked for
  double clip = std::numeric_limits<double>::infinity();  ///< bound of what goes into an activation
  /// Per direction: f, g and h of an LSTM, f and g of a GRU, f of an RNN, as ONNX calls them.
  std::vector<GateActivation> activations;

  int directions() const { return direction == bidirectional ? 2 : 1; }
  int gates() const { return cell == lstm ? 4 : cell == rnn ? 1 : 3; }
  size_t activations_of_direction() const { return cell == lstm ? 3 : cell == rnn ? 1 : 2; }
};

/// What becomes of the one row that a product reads, and of its results: steps of decoders, in one kernel.
struct RowWork {
  enum Norm : uint8_t { as_it_is, root_mean_square, layer } norm = as_it_is;
  enum Activation : uint8_t { none, relu, gelu_tanh, gelu_erf, silu } activation = none;
  /// The matrix has twice as many columns as there are results: those of the first or the second half go
  /// through the activation, and are multiplied by those of the other half.
  enum Gate : uint8_t { no_gate, first, second } gate = no_gate;
  float epsilon = 0;                ///< added to the mean of the squares
  DType rounded = DType::undefined; ///< the row over its root mean square becomes this before it is scaled
  bool operator==(const RowWork&) const = default;
};

/// One row times a constant matrix: inputs 0 = x [1, k] of f32, f16 or bf16, 1 = matrix [k, n], 2 = bias [1,
/// n], 3 = scale and 4 = shift of the norm [1, k]; 2 to 4 are optional. The normed row is taken in the type
/// of the matrix. Output: [1, n], behind a gate [1, n / 2].
struct RowProductProblem {
  RowWork work;
};

/// A product with a matrix of 2-, 4- or 8-bit integers that lie packed, lowest bits first, a scale for each
/// block of a column: inputs 0 = a [rows, k], 1 = integers [n, blocks, bytes] u8, 2 = scales [n * blocks] of
/// any float type, 3 = zero points: integers packed like those of the matrix, column by column, or floats [n
/// * blocks], 4 = bias [n]; 3 and 4 are optional. Without zero points they are half of the range. Output:
/// [rows, n]. Of one row there may be work before and behind the product, with 5 = scale and 6 = shift of the
/// norm [1, k] and 7 = what is added behind an activation or a gate [1, results], all optional. Output then:
/// [1, n], behind a gate [1, n / 2].
struct PackedMatMulProblem {
  int64_t k = 0, n = 0;
  int64_t block = 0;
  int bits = 4;
  bool rounds = false; ///< a may be rounded to 8 bits by blocks
  RowWork work = {};
};

/// Rows times the matrices that each of them chooses: inputs 0 = x [rows, k] f32, 1 = which matrices [rows,
/// choices] i64, 2 = matrices [experts, n, k] of f32, f16 or bf16, or with `bits` integers packed into bytes
/// [experts, n, k * bits / 8], 3 = bias [experts, n] f32, 4 = scales [experts, n], or with `block` [experts,
/// n, k / block], of any float type, 5 = zero points, packed along their last dimension: [experts, n] or
/// [experts, n, k / block]. 3 and 5 are optional, 4 where there are no integers. Output: [rows, choices, n]
/// f32.
struct ExpertsProblem {
  int bits = 0;        ///< 0: floats
  int64_t block = 0;   ///< 0: a scale for each row
  bool rounds = false; ///< x may be rounded to 8 bits by blocks
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

using Problem = std::variant<ConvProblem, MatMulProblem, AttentionProblem, RecurrentProblem,
                             PackedMatMulProblem, RowProductProblem, ExpertsProblem, HostProblem>;
/// Which of them: Problem::index().
enum class ProblemKind : size_t {
  conv,
  matmul,
  attention,
  recurrent,
  packed_matmul,
  row_product,
  experts,
  host
};
constexpr size_t kProblemKinds = std::variant_size_v<Problem>;
static_assert(kProblemKinds == static_cast<size_t>(ProblemKind::host) + 1);

/// "Conv", "ConvTranspose", "MatMul", "Attention", "LSTM", "GRU", "RNN", "MatMulNBits", "RowMatMul", "MoE",
/// "QMoE", or the host operator's name.
std::string name_of(const Problem& problem);
/// One line with all parameters; deterministic.
std::string to_string(const Problem& problem);

} // namespace tbx::extern_kernels
