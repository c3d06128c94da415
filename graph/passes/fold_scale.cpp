// fold_scale: a product or sum with constants after a linear operator becomes part of its weights and bias. A
// bias that only a MatMul could take stays an Add: the scheduler makes it a post-operation.
#include <cmath>
#include <functional>

#include "graph/node_attributes.h"
#include "graph/passes/match.h"
#include "graph/passes/passes.h"
#include "lowering/op_registry.h"

namespace tbx::graph {
namespace {

using Channels = std::vector<double>; ///< one number per output channel

/// The numbers of constant `id` per channel, where it varies along dimension `axis` of a result of `rank`
/// dimensions only; nullopt where it varies otherwise, or would enlarge the result.
std::optional<Channels> per_channel(const Graph& g, ValueId id, int rank, int axis, int64_t channels) {
  const Tensor* t = f32_constant(g, id);
  int own = t ? static_cast<int>(t->dims.size()) : 0;
  if (!t || own > rank) return std::nullopt;
  for (int k = 0; k < own; ++k) {
    bool is_axis = k + rank - own == axis && t->dims[k] == channels;
    if (t->dims[k] != 1 && !is_axis) return std::nullopt;
  }
  Channels values(channels);
  for (int64_t c = 0; c < channels; ++c) values[c] = t->as<float>()[t->numel() == 1 ? 0 : c];
  return values;
}

/// y = W*x + bias, seen per output channel.
struct Linear {
  Node* node = nullptr; ///< the operator with the weights
  Node* add = nullptr;  ///< MatMul only: the Add with the bias
  int rank = 0, axis = 0;
  int64_t channels = 0;
  Channels bias; ///< empty: none
  /// The channel that element `i` of the weights belongs to.
  std::function<int64_t(int64_t i)> channel_of;
};

int64_t product_from(const std::vector<int64_t>& dims, size_t first) {
  int64_t n = 1;
  for (size_t k = first; k < dims.size(); ++k) n *= dims[k];
  return n;
}

bool describe_conv(const Graph& g, Linear& l, const Tensor& w, bool transposed) {
  if (w.dims.size() < 3) return false;
  l.rank = static_cast<int>(w.dims.size());
  l.axis = 1;
  int64_t inner = product_from(w.dims, 2);
  if (!transposed) {
    l.channels = w.dims[0];
    l.channel_of = [n = w.dims[1] * inner](int64_t i) { return i / n; };
  } else {
    int64_t groups = attribute_or<int64_t>(*l.node, "group", 1), columns = w.dims[1];
    if (groups < 1 || w.dims[0] % groups != 0) return false;
    int64_t rows = w.dims[0] / groups; // input channels of a group
    l.channels = columns * groups;
    l.channel_of = [=](int64_t i) { return i / (inner * columns) / rows * columns + i / inner % columns; };
  }
  if (l.node->input(2) < 0) return true;
  const Tensor* bias = f32_constant(g, l.node->inputs[2]);
  if (!bias || bias->dims != std::vector{l.channels}) return false; // another one the lowering reports
  l.bias.assign(bias->as<float>().begin(), bias->as<float>().end());
  return true;
}

bool describe_gemm(const Graph& g, Linear& l, const Tensor& w) {
  if (w.dims.size() != 2 || l.node->opset < 7) return false;
  bool swapped = attribute_or<int64_t>(*l.node, "transB", 0) != 0;
  l.rank = 2;
  l.axis = 1;
  l.channels = w.dims[swapped ? 0 : 1];
  l.channel_of = [columns = w.dims[1], swapped](int64_t i) { return swapped ? i / columns : i % columns; };
  if (l.node->input(2) < 0) return true;
  auto bias = per_channel(g, l.node->inputs[2], 2, 1, l.channels);
  if (!bias) return false;
  for (double& b : *bias) b *= attribute_or<float>(*l.node, "beta", 1);
  l.bias = *bias;
  return true;
}

bool describe_matmul(Editor& e, Linear& l, const Tensor& w, ValueId result) {
  const auto& shape = e.graph.at(result).type.shape;
  if (w.dims.size() != 2 || !shape || shape->size() < 2) return false;
  l.rank = static_cast<int>(shape->size());
  l.axis = l.rank - 1;
  l.channels = w.dims[1];
  l.channel_of = [columns = w.dims[1]](int64_t i) { return i % columns; };
  return true;
}

/// The linear operator whose result only `reader` reads, with weights that nobody else uses.
std::optional<Linear> linear_of(Editor& e, ValueId id) {
  if (id < 0 || e.uses(id) != 1) return std::nullopt;
  Linear l;
  if (Node* add = e.producer(id, "Add")) {
    auto split = either(*add, [&](ValueId v) { return e.producer(v, "MatMul") != nullptr; });
    if (!split || e.uses(split->first) != 1) return std::nullopt;
    auto inner = linear_of(e, split->first);
    if (!inner) return std::nullopt;
    auto bias = per_channel(e.graph, split->second, inner->rank, inner->axis, inner->channels);
    if (!bias) return std::nullopt;
    inner->add = add;
    inner->bias = *bias;
    return inner;
  }
  for (const char* op : {"Conv", "ConvTranspose", "Gemm", "MatMul"})
    if (Node* n = e.producer(id, op)) l.node = n;
  if (!l.node || l.node->inputs.size() < 2 || e.uses(l.node->inputs[1]) != 1) return std::nullopt;
  const Tensor* w = f32_constant(e.graph, l.node->inputs[1]);
  if (!w || w->numel() == 0) return std::nullopt;
  // Scaled weights are a copy in memory beside the file; products scale their results for nothing
  // (post-operations).
  constexpr int64_t kLargeProduct = 1 << 16;
  if (l.node->op_type == "MatMul" && w->numel() > kLargeProduct) return std::nullopt;
  bool fits = l.node->op_type == "Gemm"     ? describe_gemm(e.graph, l, *w)
              : l.node->op_type == "MatMul" ? describe_matmul(e, l, *w, id)
                                            : describe_conv(e.graph, l, *w, l.node->op_type != "Conv");
  return fits ? std::optional(l) : std::nullopt;
}

/// y*scale + shift, per channel.
struct Affine {
  Channels scale, shift;
};

/// What `node` does to its input `k`, which is the result of `l`.
std::optional<Affine> affine_of(const Graph& g, const Node& node, int k, const Linear& l) {
  auto c = per_channel(g, node.inputs[1 - k], l.rank, l.axis, l.channels);
  if (!c) return std::nullopt;
  Affine a{Channels(l.channels, 1), Channels(l.channels, 0)};
  for (int64_t i = 0; i < l.channels; ++i) {
    double v = (*c)[i];
    if (node.op_type == "Mul") a.scale[i] = v;
    if (node.op_type == "Div") a.scale[i] = 1 / v;
    if (node.op_type == "Add") a.shift[i] = v;
    if (node.op_type == "Sub") a.shift[i] = k == 0 ? -v : v;
    if (node.op_type == "Sub" && k == 1) a.scale[i] = -1;
    if (!std::isfinite(a.scale[i]) || !std::isfinite(a.shift[i])) return std::nullopt;
  }
  if (node.op_type == "Div" && k == 1) return std::nullopt;
  return a;
}

bool all_equal(const Channels& v, double wanted) {
  for (double x : v)
    if (x != wanted) return false;
  return true;
}

/// nullopt where weights leave the range of f32 by the scale: then the model keeps its own order.
std::optional<Tensor> scaled_weights(const Graph& g, const Linear& l, const Channels& scale) {
  const Tensor& w = *g.at(l.node->inputs[1]).constant;
  Tensor out = Tensor::make(DType::f32, w.dims);
  for (int64_t i = 0; i < w.numel(); ++i)
    out.as_mutable<float>()[i] = static_cast<float>(w.as<float>()[i] * scale[l.channel_of(i)]);
  return keeps_digits(w, out) || all_equal(scale, 0) ? std::optional(std::move(out)) : std::nullopt;
}

/// nullopt where the bias becomes infinite.
std::optional<Tensor> new_bias(const Linear& l, const Affine& a) {
  Tensor out = Tensor::make(DType::f32, {l.channels});
  for (int64_t c = 0; c < l.channels; ++c) {
    const auto value = static_cast<float>((l.bias.empty() ? 0 : l.bias[c]) * a.scale[c] + a.shift[c]);
    if (!std::isfinite(value)) return std::nullopt;
    out.as_mutable<float>()[c] = value;
  }
  return out;
}

/// `last` (which reads the result of `l` alone) takes the place of the whole.
bool fold(Editor& e, Node& last, const Linear& l, const Affine& a) {
  Graph& g = e.graph;
  bool matmul = l.node->op_type == "MatMul", scales = !all_equal(a.scale, 1);
  bool has_bias = !l.bias.empty() || !all_equal(a.shift, 0);
  if (matmul && !l.add && has_bias) return false;
  std::optional<Tensor> weights, bias;
  if (scales && !(weights = scaled_weights(g, l, a.scale))) return false;
  if (has_bias && !(bias = new_bias(l, a))) return false;
  ValueId w = l.node->inputs[1], b = -1;
  std::string name = g.at(w).name;
  if (weights) w = e.add_constant(std::move(*weights), name + " scaled");
  if (bias) b = e.add_constant(std::move(*bias), name + " bias");
  std::vector<ValueId> inputs = {l.node->inputs[0], w};
  if (matmul && l.add) {
    // The Add comes last; the product before it gets its weights.
    ValueId product = l.node->outputs[0];
    e.become(*l.node, "MatMul", l.node->opset, inputs);
    e.become(last, "Add", l.add->opset, {product, b});
    if (&last != l.add) e.release(*l.add);
    return true;
  }
  auto attributes = l.node->attributes;
  if (b >= 0) {
    inputs.push_back(b);
    attributes.erase("beta"); // part of the bias by now
  }
  std::string op = l.node->op_type; // may be the same node
  e.become(last, op.c_str(), l.node->opset, inputs, std::move(attributes));
  if (&last != l.node) e.release(*l.node);
  return true;
}

/// A product with one number also passes what only moves elements, on its way to a linear operator.
ValueId behind_views(Editor& e, ValueId id) {
  for (const Node* view = e.producer(id); view && has(lowering::Trait::rearranges, *view) && e.uses(id) == 1;
       view = e.producer(id))
    id = view->inputs[0];
  return id;
}

bool fold_through_views(Editor& e, Node& node, int k) {
  ValueId from = behind_views(e, node.inputs[k]);
  auto factor = e.number(node.inputs[1 - k]);
  if (from == node.inputs[k] || !factor || (node.op_type == "Div" && k == 1)) return false;
  if (!e.graph.at(node.inputs[1 - k]).constant->dims.empty()) {
    // A constant of higher rank would add dimensions.
    const auto& shape = e.graph.at(node.inputs[k]).type.shape;
    if (!shape || shape->size() < e.graph.at(node.inputs[1 - k]).constant->dims.size()) return false;
  }
  auto l = linear_of(e, from);
  if (!l) return false;
  double scale = node.op_type == "Div" ? 1 / *factor : *factor;
  if (!std::isfinite(scale)) return false;
  Affine a{Channels(l->channels, scale), Channels(l->channels, 0)};
  Node& last = l->add ? *l->add : *l->node;
  if (!fold(e, last, *l, a)) return false;
  e.become(node, "Identity", node.opset, {node.inputs[k]});
  return true;
}

} // namespace

int fold_scale(Graph& graph) {
  Editor e(graph);
  int count = 0;
  for (Node& node : graph.nodes) {
    bool product = node.op_type == "Mul" || node.op_type == "Div";
    if (!node.domain.empty() || node.opset < 7 || node.inputs.size() != 2) continue;
    if (!product && node.op_type != "Add" && node.op_type != "Sub") continue;
    for (int k = 0; k < 2; ++k) {
      bool done = false;
      if (auto l = linear_of(e, node.inputs[k]))
        if (auto a = affine_of(graph, node, k, *l)) done = fold(e, node, *l, *a);
      if (!done && product) done = fold_through_views(e, node, k);
      if (!done) continue;
      ++count;
      break;
    }
  }
  return count;
}

} // namespace tbx::graph
