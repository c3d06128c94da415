#include "graph/passes/graph_passes.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "base/error.h"
#include "base/stop.h"
#include "graph/passes/passes.h"

namespace tbx::graph {

std::span<const Pass> graph_passes() {
  static constexpr std::array kPasses = {
      Pass{"eliminate_no_ops",
           "Identity, Dropout in inference, Cast to the same type, Transpose in order -> input",
           eliminate_no_ops},
      // Before multiply_integers: what it leaves out is no quantisation of a product.
      Pass{"pool_integers", "MaxPool(DequantizeLinear(x)) -> DequantizeLinear(MaxPool(x))", pool_integers,
           kCompileOnly},
      // Before fold_constants: it would make floats of integer weights.
      Pass{"multiply_integers",
           "Conv/MatMul/Gemm(DequantizeLinear(x), DequantizeLinear(w)) -> ConvInteger/MatMulInteger(x, "
           "w)*scale",
           nullptr, kCompileOnly, multiply_integers},
      Pass{"fold_quantisation",
           "QuantizeLinear(integer product * a + b, s) -> QuantizeLinear(integer product * (a/s) + b/s, 1)",
           fold_quantisation, kCompileOnly},
      // After multiply_integers, which is for what is quantised on both sides; before the weights are folded.
      Pass{"keep_weights_packed", "MatMul/Gemm(x, DequantizeLinear(w)) -> MatMulNBits(x, w)", nullptr,
           kCompileOnly, keep_weights_packed},
      // Before the recognisers: they read constants and count users.
      Pass{"fold_constants", "a node over constants -> its value", fold_constants},
      Pass{"dequantize_weights", "DequantizeLinear over constants -> floats", dequantize_weights,
           kCompileOnly},
      // Behind the folding of what the model has as constants, before the recognisers: they know float32.
      Pass{"widen_halves", "float16 and bfloat16 around products -> float32, rounded where the model stores",
           nullptr, kCompileOnly, widen_halves},
      Pass{"eliminate_common_subexpressions", "equal nodes over equal inputs -> one",
           eliminate_common_subexpressions},
      // Before merge_transposes: what it moves meets there.
      Pass{"sink_transposes", "f(Transpose(x)) -> Transpose(f(x)) where fewer Transposes are left",
           sink_transposes},
      Pass{"merge_transposes", "Transpose(Transpose(x)) -> Transpose(x)", merge_transposes},
      Pass{"fold_pads", "Conv(Pad(x)) -> Conv(x) with its padding, of zeros", fold_pads},
      Pass{"fold_batch_norm", "Conv, BatchNormalization -> Conv", fold_batch_norm},
      // Before fold_scale: the scale of an attention costs nothing inside of it.
      Pass{"fuse_attention", "Softmax(q*k*scale + masks)*v -> FusedAttention", fuse_attention, kCompileOnly},
      // After fold_batch_norm: a scale behind the normalisation then follows the convolution.
      Pass{"fold_scale", "Conv/Gemm/MatMul(x, W)*a + b with constants -> Conv/Gemm/MatMul(x, W') + b'",
           fold_scale},
      // Behind what changes weights.
      Pass{"join_products",
           "MatMul(x, V), MatMul(x, W), of few rows or on a GPU, split into heads -> Split(MatMul(x, [V W]))",
           nullptr, kCompileOnly, join_products},
      Pass{"join_convolutions",
           "Conv(Conv(x, v)), Conv(Conv(x, w)) of few channels, 1x1 and depthwise, on a CPU -> "
           "Split(Conv(Conv(x, [v w])))",
           nullptr, kCompileOnly, join_convolutions},
      Pass{"join_packed_products",
           "MatMulNBits(x, v), MatMulNBits(x, w), on a GPU -> Split(MatMulNBits(x, [v w]))", nullptr,
           kCompileOnly, join_packed_products},
      Pass{"join_integer_products",
           "MatMulInteger(x, v)*s, MatMulInteger(x, w)*t, on a GPU, split into heads -> "
           "Split(MatMulInteger(x, [v w])*[s t])",
           nullptr, kCompileOnly, join_integer_products},
      Pass{"fuse_layer_norm", "(x - mean)/sqrt(variance + eps)*scale + bias -> LayerNormalization",
           fuse_layer_norm, 17},
      Pass{"fuse_rms_norm", "x/sqrt(mean(x^2) + eps)*scale -> RMSNormalization", fuse_rms_norm, 23},
      Pass{"fuse_gelu", "0.5*x*(1 + erf(x/sqrt(2))), and with tanh -> Gelu", fuse_gelu, 20},
      Pass{"fuse_swish", "x*Sigmoid(x) -> Swish, x*HardSigmoid(x) -> HardSwish", fuse_swish, 24},
      // Behind the recognisers of activations.
      Pass{"join_gates",
           "f(MatMul(x, V)) * MatMul(x, W), on a GPU -> f(y) * z of y, z = Split(MatMul(x, [V W]))", nullptr,
           kCompileOnly, join_gates},
      // Behind the recognisers: it knows what they make.
      Pass{"compute_selected", "f(x)[i] -> f(x[i]), where nothing else is read of f(x)", compute_selected,
           13},
      // Last: it decides for the values that are left.
      Pass{"narrow_storage", "float32 in memory -> the type of `precision`, where nothing sensitive reads it",
           nullptr, kCompileOnly, narrow_storage},
      // Behind the joining of products and the folding of constants, which would undo it.
      Pass{"narrow_row_weights",
           "MatMul/Gemm(one row or an unknown number, w) -> MatMul/Gemm(rows, Cast(w in the type of "
           "`precision`))",
           nullptr, kCompileOnly, narrow_row_weights},
      // Also runs behind every pass above that did something: they only rewire.
      Pass{"eliminate_dead_code", "nodes whose results nobody reads -> nothing", eliminate_dead_code},
  };
  return kPasses;
}

std::vector<PassResult> run_graph_passes(Graph& graph, std::span<const std::string> disabled,
                                         const PassContext& context) {
  std::span<const Pass> passes = graph_passes();
  for (const std::string& name : disabled) {
    bool known = std::any_of(passes.begin(), passes.end(), [&](const Pass& p) { return name == p.name; });
    TBX_MODEL(known, "unknown pass '{}'; `tbx explain --passes` lists them", name);
  }
  const bool eliminates_dead_code =
      std::find(disabled.begin(), disabled.end(), "eliminate_dead_code") == disabled.end();
  std::vector<PassResult> results;
  for (const Pass& pass : passes) {
    if (std::find(disabled.begin(), disabled.end(), pass.name) != disabled.end()) continue;
    auto start = std::chrono::steady_clock::now();
    check_stop();
    int rewrites = pass.run ? pass.run(graph) : pass.run_for(graph, context);
    // The next pass counts users: those that a rewrite left without readers of their own must not stand in
    // its way.
    if (rewrites > 0 && eliminates_dead_code) eliminate_dead_code(graph);
    std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    results.push_back({pass.name, rewrites, took.count()});
#ifndef NDEBUG
    try {
      verify(graph);
    } catch (Error& e) {
      e.set_where(fmt::format("after pass '{}'", pass.name));
      throw;
    }
#endif
  }
  return results;
}

} // namespace tbx::graph
