// fuse_attention: softmax(q*k*scale + masks)*v becomes one node wherever its parts have no other readers.
// Whether it runs as two products and a softmax or in the kernel that never stores the scores is decided
// where it is lowered (lowering/ops/attention.cpp): only there all sizes are known, those of a cache that
// grows among them.
#include <algorithm>
#include <cmath>

#include "graph/passes/match.h"
#include "graph/passes/passes.h"

namespace tbx::graph {
namespace {

/// Strips products with numbers off `id` and gives their product.
double take_scale(Editor& e, ValueId& id) {
  double scale = 1;
  for (;;) {
    if (Node* mul = e.producer(id, "Mul"); mul && e.uses(id) == 1) {
      auto split = either(*mul, [&](ValueId v) { return e.number(v).has_value(); });
      if (!split || e.graph.at(split->first).constant->dims.size() > 2) return scale;
      scale *= *e.number(split->first);
      id = split->second;
    } else if (Node* div = e.producer(id, "Div"); div && e.uses(id) == 1 && e.number(div->inputs[1])) {
      if (e.graph.at(div->inputs[1]).constant->dims.size() > 2) return scale;
      scale /= *e.number(div->inputs[1]);
      id = div->inputs[0];
    } else {
      return scale;
    }
  }
}

/// What is added to the scaled scores. Windows of an image have masks of their own, which models add to
/// scores whose batch is seen as [images, windows].
struct Mask {
  ValueId id = -1;
  int64_t windows = 0; ///< 0: added to the scores as they are
};

struct Match {
  ValueId q = -1, k = -1, v = -1;
  std::vector<Mask> masks;
  double scale = 1;
  bool guarded = false; ///< NaN probabilities become 0
};

/// `id` is Where(IsNaN(p), 0, p), by which exporters keep rows that are masked whole -> p.
ValueId behind_guard(Editor& e, ValueId id, bool& guarded) {
  Node* where = e.producer(id, "Where");
  Node* is_nan = where ? e.producer(where->inputs[0], "IsNaN") : nullptr;
  if (!is_nan || is_nan->inputs[0] != where->inputs[2] || e.number(where->inputs[1]) != 0.0) return id;
  if (e.uses(id) != 1 || e.uses(where->inputs[0]) != 1 || e.uses(where->inputs[2]) != 2) return id;
  if (e.graph.at(where->inputs[1]).constant->dims.size() > 2) return id;
  guarded = true;
  return where->inputs[2];
}

bool over_last(const Graph& g, const Node& softmax) {
  const auto& shape = g.at(softmax.inputs[0]).type.shape;
  int64_t axis = attribute_or<int64_t>(softmax, "axis", softmax.opset >= 13 ? -1 : 1);
  return shape && (axis == -1 || axis + 1 == static_cast<int64_t>(shape->size()));
}

/// The two inputs of a product that only one node reads.
Node* single_product(Editor& e, ValueId id) {
  Node* product = e.producer(id, "MatMul");
  return product && e.uses(id) == 1 ? product : nullptr;
}

bool is_scaled_product(Editor& e, ValueId id) {
  take_scale(e, id);
  return single_product(e, id) != nullptr;
}

/// How many parts [batch / parts, parts, ...] has of each entry of [batch, ...]; 0: they differ otherwise.
int64_t parts_of(const Graph& g, ValueId whole, ValueId split) {
  const auto &a = g.at(whole).type.shape, &b = g.at(split).type.shape;
  if (!a || !b || a->empty() || b->size() != a->size() + 1) return 0;
  const auto parts = (*b)[1].as_constant();
  return parts && std::equal(a->begin() + 1, a->end(), b->begin() + 2, ir::provably_equal) ? *parts : 0;
}

/// Whether adding `mask` to `scores`, which are seen in parts, leaves their shape as it is.
bool repeats(const Graph& g, ValueId mask, ValueId scores) {
  const auto &m = g.at(mask).type.shape, &s = g.at(scores).type.shape;
  return m && s && m->size() <= s->size() &&
         std::equal(m->rbegin(), m->rend(), s->rbegin(), [](ir::SymInt have, ir::SymInt want) {
           return have.is(1) || ir::provably_equal(have, want);
         });
}

/// Follows sums down to the scaled product, which may be on either side of each; what else they add are
/// masks. `windows`: as in Mask, of `scores`. False: there is no product.
bool take_masks(Editor& e, ValueId& scores, std::vector<Mask>& masks, int64_t windows = 0) {
  constexpr size_t kMost = 4; // each is one more tensor that the softmax reads
  if (windows == 0 && is_scaled_product(e, scores)) return true;
  if (e.uses(scores) != 1) return false;
  if (const Node* reshape = e.producer(scores, "Reshape")) {
    ValueId below = reshape->inputs[0];
    const int64_t parts = windows == 0 ? parts_of(e.graph, scores, below) : parts_of(e.graph, below, scores);
    if (parts == 0 || (windows != 0 && parts != windows)) return false;
    if (!take_masks(e, below, masks, windows == 0 ? parts : 0)) return false;
    scores = below;
    return true;
  }
  const Node* add = e.producer(scores, "Add");
  if (!add || masks.size() == kMost) return false;
  for (int side : {0, 1}) {
    ValueId below = add->inputs[side];
    const ValueId mask = add->inputs[1 - side];
    if (windows != 0 && !repeats(e.graph, mask, below)) continue;
    masks.push_back({mask, windows});
    if (take_masks(e, below, masks, windows)) {
      scores = below;
      return true;
    }
    masks.pop_back();
  }
  return false;
}

std::optional<Match> match(Editor& e, const Node& last) {
  Match m;
  m.v = last.inputs[1];
  ValueId p = behind_guard(e, last.inputs[0], m.guarded);
  Node* softmax = e.producer(p, "Softmax");
  if (!softmax || !over_last(e.graph, *softmax) || (e.uses(p) != 1 && !m.guarded)) return std::nullopt;
  ValueId scores = softmax->inputs[0];
  if (e.uses(scores) != 1 || !take_masks(e, scores, m.masks)) return std::nullopt;
  m.scale = take_scale(e, scores);
  Node* product = single_product(e, scores);
  m.q = product->inputs[0];
  m.k = product->inputs[1];
  m.scale *= take_scale(e, m.q) * take_scale(e, m.k);
  // Numbers that are no normal one together keep their places.
  return std::isnormal(static_cast<float>(m.scale)) ? std::optional(m) : std::nullopt;
}

/// The rank of an f32 tensor; 0: it is none, or of unknown rank.
size_t f32_rank(const Graph& g, ValueId id) {
  const ValueType& type = g.at(id).type;
  if (type.kind != ValueType::tensor || type.dtype != DType::f32 || !type.shape) return 0;
  return type.shape->size();
}

/// Heads of matrices, with a batch of them or without.
bool fits(const Graph& g, const Match& m) {
  const size_t rank = f32_rank(g, m.q);
  if ((rank != 3 && rank != 4) || f32_rank(g, m.k) != rank || f32_rank(g, m.v) != rank) return false;
  return std::all_of(m.masks.begin(), m.masks.end(),
                     [&](const Mask& mask) { return g.at(mask.id).type.dtype == DType::f32; });
}

} // namespace

int fuse_attention(Graph& graph) {
  Editor e(graph);
  int count = 0;
  for (Node& node : graph.nodes) {
    if (!node.domain.empty() || node.op_type != "MatMul") continue;
    auto m = match(e, node);
    if (!m || !fits(graph, *m)) continue;
    std::vector<ValueId> inputs = {m->q, m->k, m->v};
    std::map<std::string, Attribute> attributes = {{"scale", static_cast<float>(m->scale)},
                                                   {"zero_undefined_rows", int64_t{m->guarded}}};
    std::vector<int64_t> windows;
    for (const Mask& mask : m->masks) {
      inputs.push_back(mask.id);
      windows.push_back(mask.windows);
    }
    if (std::any_of(windows.begin(), windows.end(), [](int64_t n) { return n != 0; }))
      attributes["windows"] = windows;
    e.become(node, "FusedAttention", 1, inputs, std::move(attributes));
    node.domain = "tensorbox";
    ++count;
  }
  return count;
}

} // namespace tbx::graph
