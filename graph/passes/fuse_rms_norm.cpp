// fuse_rms_norm: RMSNormalization spelled with ReduceMean of squares and a root.
#include "graph/passes/match.h"
#include "graph/passes/passes.h"

namespace tbx::graph {
namespace {

struct Match {
  ValueId x;
  double epsilon;
};

/// `id` is mean(x^2) + epsilon over the last dimension -> x, epsilon.
std::optional<Match> mean_square(Editor& e, ValueId id) {
  Node* sum = e.producer(id, "Add");
  if (!sum) return std::nullopt;
  auto split = either(*sum, [&](ValueId v) { return e.number(v).has_value(); });
  ValueId squared = split ? mean_of_last(e, split->second) : -1;
  if (squared < 0) return std::nullopt;
  Node *pow = e.producer(squared, "Pow"), *mul = e.producer(squared, "Mul");
  if (pow && e.is_number(pow->inputs[1], 2)) return Match{pow->inputs[0], *e.number(split->first)};
  if (mul && mul->inputs[0] == mul->inputs[1]) return Match{mul->inputs[0], *e.number(split->first)};
  return std::nullopt;
}

/// `id` is sqrt(mean(x^2) + epsilon).
std::optional<Match> root(Editor& e, ValueId id) {
  if (Node* sqrt = e.producer(id, "Sqrt")) return mean_square(e, sqrt->inputs[0]);
  Node* pow = e.producer(id, "Pow");
  return pow && e.is_number(pow->inputs[1], 0.5) ? mean_square(e, pow->inputs[0]) : std::nullopt;
}

/// `id` is 1/sqrt(mean(x^2) + epsilon).
std::optional<Match> inverse_root(Editor& e, ValueId id) {
  if (Node* inverse = e.producer(id, "Reciprocal")) return root(e, inverse->inputs[0]);
  if (Node* div = e.producer(id, "Div"))
    return e.is_number(div->inputs[0], 1) ? root(e, div->inputs[1]) : std::nullopt;
  Node* pow = e.producer(id, "Pow");
  return pow && e.is_number(pow->inputs[1], -0.5) ? mean_square(e, pow->inputs[0]) : std::nullopt;
}

/// `id` is x / sqrt(mean(x^2) + epsilon).
std::optional<Match> normalised(Editor& e, ValueId id) {
  if (Node* div = e.producer(id, "Div")) {
    auto m = root(e, div->inputs[1]);
    return m && m->x == div->inputs[0] ? m : std::nullopt;
  }
  Node* mul = e.producer(id, "Mul");
  for (int k = 0; mul && k < 2; ++k) {
    auto m = inverse_root(e, mul->inputs[k]);
    if (m && m->x == mul->inputs[1 - k]) return m;
  }
  return std::nullopt;
}

} // namespace

int fuse_rms_norm(Graph& graph) {
  Editor e(graph);
  int count = 0;
  for (Node& node : graph.nodes) {
    if (!node.domain.empty() || node.op_type != "Mul" || node.opset < 7 || node.inputs.size() != 2) continue;
    for (int k = 0; k < 2; ++k) {
      ValueId normal = node.inputs[k], scale = node.inputs[1 - k];
      if (normal < 0 || e.uses(normal) != 1) continue;
      // Narrow types are normalised in f32 and rounded before the scale, as the operator does by itself.
      Node* narrowed = e.producer(normal, "Cast");
      if (narrowed && e.uses(narrowed->inputs[0]) != 1) continue;
      auto match = normalised(e, narrowed ? narrowed->inputs[0] : normal);
      if (!match || graph.at(match->x).type.dtype != DType::f32) continue;
      ValueId x = match->x;
      if (narrowed) {
        Node* widened = e.producer(x, "Cast");
        if (!widened || graph.at(widened->inputs[0]).type.dtype != graph.at(normal).type.dtype) continue;
        x = widened->inputs[0];
      }
      if (!is_vector_over_last(graph, scale, x) || !keeps_rank(e, node, x)) continue;
      e.become(node, "RMSNormalization", 23, {x, scale},
               {{"axis", int64_t{-1}}, {"epsilon", static_cast<float>(match->epsilon)}});
      ++count;
      break;
    }
  }
  return count;
}

} // namespace tbx::graph
