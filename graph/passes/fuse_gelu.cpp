// fuse_gelu: the exported spellings of GELU, matched by the role of each operand.
#include <cmath>

#include "graph/passes/match.h"
#include "graph/passes/passes.h"

namespace tbx::graph {
namespace {

/// x when `id` is x scaled by `factor` (Mul by it or Div by its inverse).
std::optional<ValueId> unscaled(Editor& e, ValueId id, double factor) {
  if (Node* mul = e.producer(id, "Mul")) {
    auto split = either(*mul, [&](ValueId v) { return e.is_number(v, factor); });
    return split ? std::optional(split->second) : std::nullopt;
  }
  Node* div = e.producer(id, "Div");
  if (div && e.is_number(div->inputs[1], 1 / factor)) return div->inputs[0];
  return std::nullopt;
}

/// x when `id` is 1 + erf(x/sqrt(2)).
std::optional<ValueId> erf_argument(Editor& e, ValueId id) {
  Node* add = e.producer(id, "Add");
  if (!add) return std::nullopt;
  auto split = either(*add, [&](ValueId v) { return e.is_number(v, 1); });
  Node* erf = split ? e.producer(split->second, "Erf") : nullptr;
  return erf ? unscaled(e, erf->inputs[0], M_SQRT1_2) : std::nullopt;
}

/// x when `id` is x^3.
std::optional<ValueId> cube_argument(Editor& e, ValueId id) {
  if (Node* pow = e.producer(id, "Pow"))
    return e.is_number(pow->inputs[1], 3) ? std::optional(pow->inputs[0]) : std::nullopt;
  Node* mul = e.producer(id, "Mul");
  if (!mul) return std::nullopt;
  auto is_square = [&](ValueId v) {
    Node* square = e.producer(v, "Mul");
    return square && square->inputs[0] == square->inputs[1];
  };
  auto split = either(*mul, is_square);
  if (!split) return std::nullopt;
  ValueId x = e.producer(split->first, "Mul")->inputs[0];
  return x == split->second ? std::optional(x) : std::nullopt;
}

/// x when `id` is 1 + tanh(sqrt(2/pi)*(x + 0.044715*x^3)).
std::optional<ValueId> tanh_argument(Editor& e, ValueId id) {
  Node* add = e.producer(id, "Add");
  if (!add) return std::nullopt;
  auto split = either(*add, [&](ValueId v) { return e.is_number(v, 1); });
  Node* tanh = split ? e.producer(split->second, "Tanh") : nullptr;
  auto inner = tanh ? unscaled(e, tanh->inputs[0], std::sqrt(2 / M_PI)) : std::nullopt;
  Node* sum = inner ? e.producer(*inner, "Add") : nullptr;
  if (!sum) return std::nullopt;
  for (int k = 0; k < 2; ++k) {
    auto cube = unscaled(e, sum->inputs[k], 0.044715);
    auto x = cube ? cube_argument(e, *cube) : std::nullopt;
    if (x && *x == sum->inputs[1 - k]) return x;
  }
  return std::nullopt;
}

/// The leaves of a product of up to three factors.
void factors(Editor& e, ValueId id, std::vector<ValueId>& leaves, int depth) {
  Node* mul = depth > 0 ? e.producer(id, "Mul") : nullptr;
  if (!mul || (depth < 2 && e.uses(id) > 1)) {
    leaves.push_back(id);
    return;
  }
  for (ValueId v : mul->inputs) factors(e, v, leaves, depth - 1);
}

/// x and the form when the product of `leaves` is 0.5 * x * (1 + f(x)).
std::optional<std::pair<ValueId, const char*>> gelu_of(Editor& e, const std::vector<ValueId>& leaves) {
  if (leaves.size() != 3) return std::nullopt;
  for (int h = 0; h < 3; ++h) {
    if (!e.is_number(leaves[h], 0.5)) continue;
    for (int k = 1; k < 3; ++k) {
      ValueId x = leaves[(h + k) % 3], f = leaves[(h + 3 - k) % 3];
      if (auto a = erf_argument(e, f); a && *a == x) return std::pair(x, "none");
      if (auto a = tanh_argument(e, f); a && *a == x) return std::pair(x, "tanh");
    }
  }
  return std::nullopt;
}

} // namespace

int fuse_gelu(Graph& graph) {
  Editor e(graph);
  int count = 0;
  for (Node& node : graph.nodes) {
    if (!node.domain.empty() || node.op_type != "Mul" || node.opset < 7) continue;
    // (0.5*x)*(1+f), 0.5*(x*(1+f)), x*(0.5*(1+f)): every way to nest three factors.
    std::vector<ValueId> leaves;
    factors(e, node.outputs[0], leaves, 2);
    auto match = gelu_of(e, leaves);
    if (!match) {
      // A factor may itself be a product (x = a*b): stop at one side.
      for (int k = 0; k < 2 && !match; ++k) {
        leaves.clear();
        factors(e, node.inputs[k], leaves, 1);
        leaves.push_back(node.inputs[1 - k]);
        match = gelu_of(e, leaves);
      }
    }
    if (!match || !keeps_rank(e, node, match->first)) continue;
    e.become(node, "Gelu", 20, {match->first}, {{"approximate", std::string(match->second)}});
    ++count;
  }
  return count;
}

} // namespace tbx::graph
