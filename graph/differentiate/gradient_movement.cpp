// The gradient of operators that move elements: each element of the result comes from one element of an
// input, or is zero. The operator itself, applied to numbers of elements, says from which.
#include "graph/differentiate/gradient_rules.h"

namespace tbx::graph {
namespace {

/// `node` moves elements of its inputs `data`. It runs once more on numbers of elements: 0 is no element,
/// those of the first input are 1, 2, ..., those of the next go on from there. Gradients are summed by
/// number.
void give_by_number(const RuleCall& c, Node node, const std::vector<int>& data) {
  GradientBuilder& b = c.b;
  auto scalar = [&](ValueId v) {
    ValueId out = b.emit("Squeeze", {v}, v);
    b.graph.at(out).type.shape = ir::SymInts{};
    return out;
  };
  ValueId end = b.ints({1}), one = scalar(end);
  std::vector<std::pair<ValueId, ValueId>> ranges;
  for (int i : data) {
    ValueId x = c.in(i), start = end;
    end = b.emit("Add", {start, b.emit("Size", {x}, start)}, start);
    ValueId numbers = b.emit_any("Range", {scalar(start), scalar(end), one}, start);
    node.inputs[i] = b.reshape_like(numbers, x, DType::i64);
    ranges.emplace_back(start, end);
  }
  ValueId sums = b.full(end, c.gradient(), 0);
  b.append(node, DType::i64);
  for (size_t k = 0; k < node.outputs.size(); ++k)
    if (ValueId g = c.gradient(static_cast<int>(k)); g >= 0)
      sums = b.emit("ScatterElements", {sums, b.flat(node.outputs[k]), b.flat(g)}, sums,
                    {{"reduction", std::string("add")}});
  for (size_t k = 0; k < data.size(); ++k) {
    if (!c.needs(data[k])) continue;
    ValueId part = b.emit("Slice", {sums, ranges[k].first, ranges[k].second}, sums);
    c.give(data[k], b.reshape_like(part, c.in(data[k])));
  }
}

} // namespace

void movement_rule(const RuleCall& c) { give_by_number(c, c.node, {0}); }

void pad_rule(const RuleCall& c) {
  Node node = c.node;
  node.attributes.erase("value");
  if (node.inputs.size() > 2) node.inputs[2] = -1; // what is added has the number 0
  give_by_number(c, std::move(node), {0});
}

void resize_rule(const RuleCall& c) {
  if (c.text("mode", "nearest") != "nearest" ||
      c.text("coordinate_transformation_mode", "") == "tf_crop_and_resize")
    return derivative_rule(c);
  give_by_number(c, c.node, {0});
}

/// To the elements that were taken; the second output says which.
void top_k_rule(const RuleCall& c) {
  GradientBuilder& b = c.b;
  ValueId x = c.in(0), indices = c.node.outputs.size() > 1 ? c.node.outputs[1] : -1;
  if (indices < 0) throw_unsupported("the gradient of TopK without its output 1");
  c.give(0, b.emit("ScatterElements", {b.filled(x, 0), indices, c.gradient()}, x,
                   {{"axis", c.integer("axis", -1)}, {"reduction", std::string("add")}}));
}

} // namespace tbx::graph
