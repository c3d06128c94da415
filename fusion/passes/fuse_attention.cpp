// fuse_attention: scaled dot-product attention over many tokens, or of a few queries over any number of keys,
// becomes one node, whose kernel never stores the scores. Between these two products and a softmax are
// faster, and stay. Keys and values that are repeated for the query heads that share them are taken as they
// were before.
#include "fusion/passes/match.h"
#include "fusion/passes/passes.h"

namespace tbx::fusion {
namespace {

// The scores of a head (queries x keys) have to be many before not storing them outweighs the faster products
// of the library: measured with 2 threads at 4096 x 77 and 197 x 197 (slower) and 1024 x 1024 (faster).
constexpr int64_t kMinKeys = 256, kMinScores = int64_t{1} << 18;
// So few queries (decoding) read keys and values where they lie.
constexpr int64_t kFewQueries = 4;

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
  ValueId q = -1, k = -1, v = -1, mask = -1;
  double scale = 1;
  bool plain_keys = false; ///< k is [.., keys, size]; otherwise as the product takes it, transposed
  bool guarded = false;    ///< NaN probabilities become 0
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

const ir::SymInts* f32_shape(const Graph& g, ValueId id) {
  const ValueType& type = g.at(id).type;
  return type.kind == ValueType::tensor && type.dtype == DType::f32 && type.shape ? &*type.shape : nullptr;
}

/// The keys [B, H, T, D] of which `id` is [B, H, D, T], by a transpose alone or between reshapes that join
/// and split batch and heads; -1: `id` is something else.
ValueId transposed_keys(Editor& e, ValueId id) {
  const Graph& g = e.graph;
  const ir::SymInts* result = f32_shape(g, id);
  if (!result || result->size() != 4) return -1;
  ValueId from = -1;
  if (Node* swap = e.producer(id, "Transpose")) {
    if (transpose_order(g, *swap) == std::vector<int64_t>{0, 1, 3, 2}) from = swap->inputs[0];
  } else if (Node* split = e.producer(id, "Reshape")) {
    swap = e.producer(split->inputs[0], "Transpose");
    if (!swap || transpose_order(g, *swap) != std::vector<int64_t>{0, 2, 1}) return -1;
    Node* join = e.producer(swap->inputs[0], "Reshape");
    const ir::SymInts* joined = f32_shape(g, swap->inputs[0]);
    if (!join || !joined || joined->size() != 3) return -1;
    if (!((*joined)[1] == (*result)[3]) || !((*joined)[2] == (*result)[2])) return -1;
    from = join->inputs[0];
  }
  const ir::SymInts* keys = from < 0 ? nullptr : f32_shape(g, from);
  if (!keys || keys->size() != 4) return -1;
  for (auto [a, b] : {std::pair(0, 0), std::pair(1, 1), std::pair(2, 3), std::pair(3, 2)})
    if (!((*keys)[a] == (*result)[b])) return -1;
  return from;
}

/// `id` [B, H, T, D] repeats each head of a tensor [B, Hkv, T, D] -> that tensor; else `id`.
ValueId before_repeat(Editor& e, ValueId id) {
  const Graph& g = e.graph;
  Node* join = e.producer(id, "Reshape");
  Node* repeat = join ? e.producer(join->inputs[0], "Expand") : nullptr;
  Node* spread = repeat ? e.producer(repeat->inputs[0], "Unsqueeze") : nullptr;
  if (!spread) return id;
  const ir::SymInts *result = f32_shape(g, id), *wide = f32_shape(g, join->inputs[0]),
                    *narrow = f32_shape(g, repeat->inputs[0]), *source = f32_shape(g, spread->inputs[0]);
  if (!result || !wide || !narrow || !source) return id;
  if (result->size() != 4 || source->size() != 4 || wide->size() != 5 || narrow->size() != 5) return id;
  if (!(*narrow)[2].is(1) || !(*wide)[1].is_constant() || !(*wide)[2].is_constant()) return id;
  if (!(*result)[1].is((*wide)[1].constant() * (*wide)[2].constant())) return id;
  for (int d : {0, 1, 2, 3}) {
    int at = d < 2 ? d : d + 1;
    if (!((*source)[d] == (*narrow)[at]) || !((*source)[d] == (*wide)[at])) return id;
    if (d != 1 && !((*source)[d] == (*result)[d])) return id;
  }
  return spread->inputs[0];
}

/// Whether the mask may be added to scores of shape [.., queries, keys]: sizes that are not known to be equal
/// are compared by each run.
bool fits_mask(const ir::SymInts& mask, const ir::SymInts& scores) {
  if (mask.size() > scores.size()) return false;
  for (size_t d = 0; d < mask.size(); ++d) {
    ir::SymInt want = scores[d + scores.size() - mask.size()];
    if (mask[d].is(1) || mask[d] == want) continue;
    if (mask[d].is_constant() && want.is_constant()) return false;
  }
  return true;
}

/// The shapes that the node is for, and f32.
bool fits(Editor& e, Match& m) {
  const Graph& g = e.graph;
  const ir::SymInts *q = f32_shape(g, m.q), *k = f32_shape(g, m.k), *v = f32_shape(g, m.v);
  if (!q || !k || !v || (q->size() != 3 && q->size() != 4)) return false;
  size_t rank = q->size();
  if (k->size() != rank || v->size() != rank) return false;
  for (size_t d = 0; d + 2 < rank; ++d)
    if (!((*q)[d] == (*k)[d]) || !((*q)[d] == (*v)[d])) return false;
  ir::SymInt queries = (*q)[rank - 2], keys = (*k)[rank - 1];
  if (!((*q)[rank - 1] == (*k)[rank - 2]) || !(keys == (*v)[rank - 2])) return false;
  if (!queries.is_constant()) return false;
  const bool few = queries.constant() <= kFewQueries && rank == 4;
  if (!few && (!keys.is_constant() || keys.constant() < kMinKeys)) return false;
  if (!few && queries.constant() < kMinScores / keys.constant()) return false;
  if (m.mask >= 0) {
    const ir::SymInts* mask = f32_shape(g, m.mask);
    ir::SymInts scores(q->begin(), q->end());
    scores.back() = keys;
    if (!mask || !fits_mask(*mask, scores)) return false;
  }
  if (ValueId plain = transposed_keys(e, m.k); plain >= 0) {
    ValueId narrow_k = before_repeat(e, plain), narrow_v = before_repeat(e, m.v);
    const ir::SymInts *a = f32_shape(g, narrow_k), *b = f32_shape(g, narrow_v);
    const bool both = (*a)[1] == (*b)[1];
    m.k = both ? narrow_k : plain;
    m.v = both ? narrow_v : m.v;
    m.plain_keys = true;
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
    if (!m || !fits(e, *m)) continue;
    std::vector<ValueId> inputs = {m->q, m->k, m->v};
    if (m->mask >= 0) inputs.push_back(m->mask);
    e.become(node, "FusedAttention", 1, inputs,
             {{"scale", static_cast<float>(m->scale)},
              {"zero_undefined_rows", int64_t{m->guarded}},
              {"plain_keys", int64_t{m->plain_keys}}});
    node.domain = "tensorbox";
    ++count;
  }
  return count;
}

} // namespace tbx::fusion
