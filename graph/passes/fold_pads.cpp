// fold_pads: zeros that a Pad puts around the image of a convolution become the padding of the convolution.
// Keras writes ZeroPadding2D before each convolution with strides, since its own padding would differ by
// side.
#include <algorithm>

#include "graph/node_attributes.h"
#include "graph/passes/match.h"
#include "graph/passes/passes.h"

namespace tbx::graph {
namespace {

using Sizes = std::vector<int64_t>;

constexpr int64_t kLargest = int64_t{1} << 31; ///< of what a model says: sums and products stay in range

std::optional<Sizes> constant_sizes(const Graph& g, ValueId id) {
  const Tensor* tensor = id < 0 ? nullptr : g.at(id).constant.get();
  if (!tensor || tensor->dtype != DType::i64) return std::nullopt;
  const auto values = tensor->as<int64_t>();
  return Sizes(values.begin(), values.end());
}

bool pads_with_zeros(const Editor& e, const Node& pad) {
  if (attribute_or<std::string>(pad, "mode", "constant") != "constant") return false;
  if (pad.opset < 11) return attribute_or<float>(pad, "value", 0) == 0;
  return pad.input(2) < 0 || e.number(pad.input(2)) == 0.0;
}

/// What the Pad puts before and behind each dimension, as its attribute and input list it for all of them;
/// nullopt where that is not known while compiling.
std::optional<Sizes> pads_of(const Editor& e, const Node& pad, size_t rank) {
  std::optional<Sizes> given =
      pad.opset < 11 ? attribute_or<Sizes>(pad, "pads", {}) : constant_sizes(e.graph, pad.input(1));
  if (!given || pad.input(3) < 0) return given && given->size() == 2 * rank ? given : std::nullopt;
  const std::optional<Sizes> axes = constant_sizes(e.graph, pad.input(3));
  if (!axes || given->size() != 2 * axes->size()) return std::nullopt;
  Sizes all(2 * rank);
  std::vector<bool> named(rank);
  for (size_t k = 0; k < axes->size(); ++k) {
    const int64_t axis = (*axes)[k] < 0 ? (*axes)[k] + static_cast<int64_t>(rank) : (*axes)[k];
    if (axis < 0 || axis >= static_cast<int64_t>(rank) || named[axis]) return std::nullopt;
    named[axis] = true;
    all[axis] = (*given)[k];
    all[axis + rank] = (*given)[k + axes->size()];
  }
  return all;
}

/// Whether no window of the convolution lies in the padding alone: libraries are made for such.
bool windows_reach_the_image(const Graph& g, const Node& conv, const Sizes& pads) {
  const ir::SymInts& weights = *g.at(conv.inputs[1]).type.shape;
  const size_t spatial = pads.size() / 2;
  const Sizes dilations = attribute_or<Sizes>(conv, "dilations", Sizes(spatial, 1));
  for (size_t k = 0; k < pads.size(); ++k) {
    const auto& size = weights[2 + k % spatial];
    if (dilations.size() != spatial || !size.is_constant()) return false;
    if (size.constant() > kLargest || dilations[k % spatial] > kLargest) return false;
    if (pads[k] > (size.constant() - 1) * dilations[k % spatial]) return false;
  }
  return true;
}

/// Padding of `conv` where it pads itself what `pad` does before it; nullopt: it cannot.
std::optional<Sizes> joined_pads(const Editor& e, const Node& pad, const Node& conv) {
  const auto automatic = attribute_or<std::string>(conv, "auto_pad", "NOTSET");
  if (automatic != "NOTSET" && automatic != "VALID") return std::nullopt;
  const ValueId weights = conv.input(1);
  if (weights < 0 || !e.graph.at(weights).type.shape) return std::nullopt;
  const size_t rank = e.graph.at(weights).type.shape->size();
  if (rank < 3) return std::nullopt;
  const std::optional<Sizes> outer = pads_of(e, pad, rank);
  if (!outer || (*outer)[0] != 0 || (*outer)[1] != 0 || (*outer)[rank] != 0 || (*outer)[rank + 1] != 0)
    return std::nullopt;
  const size_t spatial = rank - 2;
  Sizes pads = automatic == "NOTSET" ? attribute_or<Sizes>(conv, "pads", {}) : Sizes{};
  if (pads.empty()) pads.resize(2 * spatial);
  if (pads.size() != 2 * spatial) return std::nullopt;
  for (size_t k = 0; k < 2 * spatial; ++k) {
    const int64_t more = (*outer)[k < spatial ? 2 + k : 4 + k];
    if (more < 0 || more > kLargest || pads[k] < 0 || pads[k] > kLargest) return std::nullopt;
    pads[k] += more;
  }
  if (!windows_reach_the_image(e.graph, conv, pads)) return std::nullopt;
  return pads;
}

} // namespace

int fold_pads(Graph& graph) {
  Editor e(graph);
  int count = 0;
  for (Node& conv : graph.nodes) {
    if (!conv.domain.empty() || conv.op_type != "Conv" || conv.inputs.empty()) continue;
    while (const Node* pad = e.producer(conv.inputs[0], "Pad")) {
      std::optional<Sizes> pads;
      if (pads_with_zeros(e, *pad)) pads = joined_pads(e, *pad, conv);
      if (!pads) break;
      conv.inputs[0] = pad->inputs[0];
      conv.attributes.erase("auto_pad");
      conv.attributes["pads"] = *std::move(pads);
      ++count;
    }
  }
  return count;
}

} // namespace tbx::graph
