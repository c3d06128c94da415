// fuse_layer_norm: LayerNormalization spelled with ReduceMean, Sub, Pow, Sqrt and Div.
#include "graph/passes/match.h"
#include "graph/passes/passes.h"

namespace tbx::graph {
namespace {

struct Match {
  ValueId x;
  double epsilon;
};

/// (x - mean) / sqrt(mean((x - mean)^2) + epsilon) -> x
std::optional<Match> normalised(Editor& e, ValueId id) {
  Node* div = e.producer(id, "Div");
  Node* centred = div ? e.producer(div->inputs[0], "Sub") : nullptr;
  Node* root = div ? e.producer(div->inputs[1], "Sqrt") : nullptr;
  Node* sum = root ? e.producer(root->inputs[0], "Add") : nullptr;
  if (!centred || !sum) return std::nullopt;
  ValueId x = centred->inputs[0];
  if (mean_of_last(e, centred->inputs[1]) != x) return std::nullopt;
  auto split = either(*sum, [&](ValueId v) { return e.number(v).has_value(); });
  if (!split) return std::nullopt;
  ValueId squared = mean_of_last(e, split->second);
  if (squared < 0) return std::nullopt;
  auto is_centred = [&](ValueId v) {
    if (v == div->inputs[0]) return true;
    Node* again = e.producer(v, "Sub"); // exporters repeat the subtraction
    return again && again->inputs == centred->inputs;
  };
  Node* pow = e.producer(squared, "Pow");
  Node* mul = e.producer(squared, "Mul");
  bool square = (pow && e.is_number(pow->inputs[1], 2) && is_centred(pow->inputs[0])) ||
                (mul && mul->inputs[0] == mul->inputs[1] && is_centred(mul->inputs[0]));
  if (!square) return std::nullopt;
  return Match{x, *e.number(split->first)};
}

} // namespace

int fuse_layer_norm(Graph& graph) {
  Editor e(graph);
  int count = 0;
  for (Node& add : graph.nodes) {
    if (!add.domain.empty() || add.op_type != "Add" || add.opset < 7) continue;
    for (int k = 0; k < 2; ++k) {
      Node* mul = e.producer(add.inputs[k], "Mul");
      if (!mul || e.uses(add.inputs[k]) != 1) continue;
      std::optional<Match> match;
      ValueId scale = -1;
      for (int j = 0; j < 2 && !match; ++j) {
        match = normalised(e, mul->inputs[j]);
        scale = mul->inputs[1 - j];
      }
      ValueId bias = add.inputs[1 - k];
      if (!match || graph.at(match->x).type.dtype != DType::f32) continue;
      if (!is_vector_over_last(graph, scale, match->x) || !is_vector_over_last(graph, bias, match->x) ||
          !keeps_rank(e, add, match->x))
        continue;
      e.become(add, "LayerNormalization", 17, {match->x, scale, bias},
               {{"axis", int64_t{-1}}, {"epsilon", static_cast<float>(match->epsilon)}});
      ++count;
      break;
    }
  }
  return count;
}

} // namespace tbx::graph
