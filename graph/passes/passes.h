// The graph passes, one file each; graph/passes/graph_passes.cpp has their order.
#pragma once

#include "graph/passes/graph_passes.h"

namespace tbx::graph {

/// Identity, Dropout in inference, Transpose with the identity permutation -> their input.
int eliminate_no_ops(Graph& graph);
/// Transpose(Transpose(x)) -> one Transpose, or x.
int merge_transposes(Graph& graph);
/// Transposes move behind elementwise nodes where fewer of them are left by that.
int sink_transposes(Graph& graph);
/// MaxPool over DequantizeLinear -> MaxPool of the integers.
int pool_integers(Graph& graph);
/// MatMul, Gemm and Conv over DequantizeLinear -> products of the integers themselves, scaled.
int multiply_integers(Graph& graph, const PassContext& context);
/// An integer product that is scaled and quantised again -> one that is scaled once.
int fold_quantisation(Graph& graph);
/// MatMul and Gemm with constant integers behind DequantizeLinear -> MatMulNBits, which reads the integers.
int keep_weights_packed(Graph& graph, const PassContext& context);
/// A node whose inputs are all constant -> its value. Integer weights keep their DequantizeLinear.
int fold_constants(Graph& graph);
/// The same for DequantizeLinear and what follows from it: floats where products in float read them.
int dequantize_weights(Graph& graph);
/// Values of float16 and bfloat16 around matrix products and convolutions -> float32, with casts where the
/// types of the model are seen.
int widen_halves(Graph& graph, const PassContext& context);
/// Two equal nodes over the same inputs -> one.
int eliminate_common_subexpressions(Graph& graph);
/// Pad of zeros -> Conv becomes Conv with wider padding.
int fold_pads(Graph& graph);
/// Conv -> BatchNormalization with constant parameters -> Conv with other weights.
int fold_batch_norm(Graph& graph);
/// Products and sums with constants after Conv, ConvTranspose, Gemm or MatMul with constant weights -> other
/// weights and bias.
int fold_scale(Graph& graph);
/// Products with constants, of few rows or for a GPU, of which each is split into heads -> one product and a
/// Split.
int join_products(Graph& graph, const PassContext& context);
/// Pairs of a convolution of one pixel and one of each channel alone, of few channels and one input -> one
/// pair and a Split.
int join_convolutions(Graph& graph, const PassContext& context);
/// A product with constants that is multiplied by the activation of another one of its input, for a GPU ->
/// one product and a Split.
int join_gates(Graph& graph, const PassContext& context);
/// Products of one input with packed integers, for a GPU -> one product and a Split.
int join_packed_products(Graph& graph, const PassContext& context);
/// Products of one dynamically quantised input that are split into heads, for a GPU -> one product and a
/// Split.
int join_integer_products(Graph& graph, const PassContext& context);
/// 0.5*x*(1 + erf(x/sqrt(2))) and its tanh form, in any spelling -> Gelu.
int fuse_gelu(Graph& graph);
/// x*Sigmoid(x) -> Swish; x*HardSigmoid(x, 1/6, 1/2) -> HardSwish.
int fuse_swish(Graph& graph);
/// (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * scale + bias -> LayerNormalization.
int fuse_layer_norm(Graph& graph);
/// x / sqrt(mean(x^2) + eps) * scale, in any spelling -> RMSNormalization.
int fuse_rms_norm(Graph& graph);
/// Softmax(q * k * scale + masks) * v -> one node, tensorbox::FusedAttention.
int fuse_attention(Graph& graph);
/// What is read at one place of an axis alone is computed there alone.
int compute_selected(Graph& graph);
/// float32 values that memory may hold narrower -> Value::stored; weights of products -> that type.
int narrow_storage(Graph& graph, const PassContext& context);
/// Constant weights of MatMul and Gemm of one row, or of an unknown number -> narrower ones behind a Cast.
int narrow_row_weights(Graph& graph, const PassContext& context);
/// Nodes nobody needs -> nothing.
int eliminate_dead_code(Graph& graph);

} // namespace tbx::graph
