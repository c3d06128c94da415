// fuse_attention: scaled dot-product attention over many tokens becomes one node, whose kernel never stores
// the scores. With few tokens two products and a softmax are faster, and stay.
#include "fusion/passes/match.h"
#include "fusion/passes/passes.h"

namespace tbx::fusion {
namespace {

// The scores of a head (queries x keys) have to be many before not storing them outweighs the faster products
// of the library: measured with 2 threads at 4096 x 77 and 197 x 197 (slower) and 1024 x 1024 (faster).
constexpr int64_t kMinKeys = 256, kMinScores = int64_t{1} << 18;

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

struct Match {
  ValueId q = -1, k = -1, v = -1, mask = -1; ///< k as the product takes it: transposed
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
  int64_t axis = attribute_int(softmax, "axis", softmax.opset >= 13 ? -1 : 1);
  return shape && (axis == -1 || axis + 1 == static_cast<int64_t>(shape->size()));
}

/// The two inputs of a product that only one node reads.
Node* single_product(Editor& e, ValueId id) {
  Node* product = e.producer(id, "MatMul");
  return product && e.uses(id) == 1 ? product : nullptr;
}

std::optional<Match> match(Editor& e, const Node& last) {
  Match m;
  m.v = last.inputs[1];
  ValueId p = behind_guard(e, last.inputs[0], m.guarded);
  Node* softmax = e.producer(p, "Softmax");
  if (!softmax || !over_last(e.graph, *softmax) || (e.uses(p) != 1 && !m.guarded)) return std::nullopt;
  ValueId scores = softmax->inputs[0];
  if (e.uses(scores) != 1) return std::nullopt;
  if (Node* add = e.producer(scores, "Add")) {
    for (int i = 0; i < 2 && m.mask < 0; ++i) {
      ValueId side = add->inputs[i];
      take_scale(e, side);
      if (single_product(e, side)) {
        scores = add->inputs[i];
        m.mask = add->inputs[1 - i];
      }
    }
  }
  m.scale = take_scale(e, scores);
  Node* product = single_product(e, scores);
  if (!product) return std::nullopt;
  m.q = product->inputs[0];
  m.k = product->inputs[1];
  m.scale *= take_scale(e, m.q) * take_scale(e, m.k);
  return m;
}

/// The shapes that the node is for, all known, and f32.
bool fits(const Graph& g, const Match& m) {
  auto shape_of = [&](ValueId id) -> const ir::SymInts* {
    const ValueType& type = g.at(id).type;
    return type.kind == ValueType::tensor && type.dtype == DType::f32 && type.shape ? &*type.shape : nullptr;
  };
  const ir::SymInts *q = shape_of(m.q), *k = shape_of(m.k), *v = shape_of(m.v);
  if (!q || !k || !v || (q->size() != 3 && q->size() != 4)) return false;
  size_t rank = q->size();
  if (k->size() != rank || v->size() != rank) return false;
  for (size_t d = 0; d + 2 < rank; ++d)
    if (!((*q)[d] == (*k)[d]) || !((*q)[d] == (*v)[d])) return false;
  ir::SymInt queries = (*q)[rank - 2], keys = (*k)[rank - 1];
  if (!((*q)[rank - 1] == (*k)[rank - 2]) || !(keys == (*v)[rank - 2])) return false;
  if (!queries.is_constant() || !keys.is_constant() || keys.constant() < kMinKeys) return false;
  if (queries.constant() < kMinScores / keys.constant()) return false;
  if (m.mask < 0) return true;
  const ir::SymInts* mask = shape_of(m.mask);
  if (!mask || mask->size() > rank) return false;
  for (size_t d = 0; d < mask->size(); ++d) {
    size_t at = d + rank - mask->size();
    ir::SymInt want = at + 1 == rank ? keys : (*q)[at];
    if (!(*mask)[d].is(1) && !((*mask)[d] == want)) return false;
  }
  return true;
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
    if (m->mask >= 0) inputs.push_back(m->mask);
    e.become(node, "FusedAttention", 1, inputs,
             {{"scale", static_cast<float>(m->scale)}, {"zero_undefined_rows", int64_t{m->guarded}}});
    node.domain = "tensorbox";
    ++count;
  }
  return count;
}

} // namespace tbx::fusion
