// fold_batch_norm: BatchNormalization after a convolution becomes part of its weights and bias.
#include <algorithm>
#include <cmath>

#include "graph/node_attributes.h"
#include "graph/passes/match.h"
#include "graph/passes/passes.h"

namespace tbx::graph {

int fold_batch_norm(Graph& graph) {
  Editor e(graph);
  int count = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    Node& norm = graph.nodes[i];
    if (!norm.domain.empty() || norm.op_type != "BatchNormalization" || norm.inputs.size() != 5) continue;
    if (attribute_or<int64_t>(norm, "training_mode", 0) != 0 || norm.opset < 7) continue;
    bool extra_outputs = false;
    for (size_t k = 1; k < norm.outputs.size(); ++k) extra_outputs |= norm.outputs[k] >= 0;
    Node* conv = e.producer(norm.inputs[0], "Conv");
    if (!conv || extra_outputs || e.uses(norm.inputs[0]) != 1) continue;
    const Tensor* w = f32_constant(graph, conv->input(1));
    const Tensor* b = f32_constant(graph, conv->input(2));
    const Tensor *scale = f32_constant(graph, norm.inputs[1]), *shift = f32_constant(graph, norm.inputs[2]),
                 *mean = f32_constant(graph, norm.inputs[3]), *variance = f32_constant(graph, norm.inputs[4]);
    if (!w || (conv->input(2) >= 0 && !b) || !scale || !shift || !mean || !variance || w->dims.empty())
      continue;
    int64_t m = w->dims[0];
    if (b && b->dims != std::vector{m}) continue; // the lowering reports that
    if (scale->numel() != m || shift->numel() != m || mean->numel() != m || variance->numel() != m || m == 0)
      continue;
    const auto epsilon = attribute_or<float>(norm, "epsilon", 1e-5f);
    Tensor weights = Tensor::make(DType::f32, w->dims), bias = Tensor::make(DType::f32, {m});
    int64_t per_channel = w->numel() / m;
    for (int64_t c = 0; c < m; ++c) {
      double factor =
          scale->as<float>()[c] / std::sqrt(static_cast<double>(variance->as<float>()[c]) + epsilon);
      for (int64_t k = 0; k < per_channel; ++k)
        weights.as_mutable<float>()[c * per_channel + k] =
            static_cast<float>(w->as<float>()[c * per_channel + k] * factor);
      double old = b ? b->as<float>()[c] : 0;
      bias.as_mutable<float>()[c] =
          static_cast<float>((old - mean->as<float>()[c]) * factor + shift->as<float>()[c]);
    }
    const auto scales = scale->as<float>();
    const bool zero = std::all_of(scales.begin(), scales.end(), [](float s) { return s == 0; });
    if (!zero && !keeps_digits(*w, weights)) continue; // beyond the range of f32
    ValueId x = conv->inputs[0];
    int opset = conv->opset;
    auto attributes = conv->attributes;
    std::string name = conv->name;
    ValueId new_w = e.add_constant(std::move(weights), name + ".weights*scale");
    ValueId new_b = e.add_constant(std::move(bias), name + ".bias+shift");
    e.become(graph.nodes[i], "Conv", opset, {x, new_w, new_b}, std::move(attributes));
    graph.nodes[i].outputs.resize(1);
    ++count;
  }
  return count;
}

} // namespace tbx::graph
