#include "graph/differentiate/gradient_rules.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/error.h"
#include "graph/differentiate/derivative_node.h"

namespace tbx::graph {
namespace {

// Shorthand: x is the first input, y the result, g its gradient; every helper emits one node.
struct Terms {
  explicit Terms(const RuleCall& c) : c(c), x(c.in(0)), y(c.out()), g(c.gradient()) {}
  ValueId one(const char* op, ValueId a) const { return c.b.emit(op, {a}, a); }
  ValueId two(const char* op, ValueId a, ValueId b) const { return c.b.emit(op, {a, b}, y); }
  ValueId mul(ValueId a, ValueId b) const { return two("Mul", a, b); }
  ValueId div(ValueId a, ValueId b) const { return two("Div", a, b); }
  ValueId add(ValueId a, ValueId b) const { return two("Add", a, b); }
  ValueId sub(ValueId a, ValueId b) const { return two("Sub", a, b); }
  ValueId neg(ValueId a) const { return one("Neg", a); }
  ValueId n(double v) const { return c.b.number(y, v); }
  ValueId where(const char* comparison, ValueId a, ValueId b, ValueId yes, ValueId no) const {
    return c.b.emit("Where", {c.b.emit(comparison, {a, b}, y), yes, no}, y);
  }
  /// Gives a gradient of the shape of the result to input `i`.
  void give(int i, ValueId gradient) const {
    if (c.needs(i)) c.give(i, c.b.sum_to(gradient, y, c.in(i)));
  }
  const RuleCall& c;
  ValueId x, y, g;
};

// --- pointwise: where the slope at a kink, or its precision, is not what the expression says

/// Max and Min: to the operand that gave the result, in equal parts where several did.
void extreme_rule(const RuleCall& c) {
  Terms t(c);
  auto hit = [&](int i) { return t.where("Equal", c.in(i), t.y, t.n(1), t.n(0)); };
  ValueId hits = hit(0);
  for (size_t i = 1; i < c.node.inputs.size(); ++i) hits = t.add(hits, hit(static_cast<int>(i)));
  for (size_t i = 0; i < c.node.inputs.size(); ++i)
    if (c.needs(static_cast<int>(i)))
      t.give(static_cast<int>(i), t.div(t.mul(t.g, hit(static_cast<int>(i))), hits));
}
void clip_rule(const RuleCall& c) {
  Terms t(c);
  t.give(0, t.where("Equal", t.x, t.y, t.g, t.n(0)));
}

/// 1 / (1 + |x|)^2: the quotient rule takes the difference of two terms that are nearly equal for large x.
void softsign_rule(const RuleCall& c) {
  Terms t(c);
  ValueId d = t.add(t.n(1), t.one("Abs", t.x));
  t.give(0, t.div(t.g, t.mul(d, d)));
}

// --- shapes: the gradient goes back into the shape of the input

void reshape_rule(const RuleCall& c) { c.give(0, c.b.reshape_like(c.gradient(), c.in(0))); }

void identity_rule(const RuleCall& c) { c.give(0, c.gradient()); }

/// Slices of the gradient, one per input.
void concat_rule(const RuleCall& c) {
  ValueId start = c.b.ints({0}), axis = c.b.ints({c.integer("axis", 1)});
  for (size_t i = 0; i < c.node.inputs.size(); ++i) {
    ValueId x = c.in(static_cast<int>(i));
    ValueId length = c.b.emit("Gather", {c.b.emit("Shape", {x}, axis), axis}, axis);
    ValueId end = c.b.emit("Add", {start, length}, axis);
    if (c.needs(static_cast<int>(i)))
      c.give(static_cast<int>(i), c.b.emit("Slice", {c.gradient(), start, end, axis}, x));
    start = end;
  }
}

// --- rows: the largest element, which their lowering subtracts, has no part in the gradient

/// exp(x - y), spread over what was reduced.
void log_sum_exp_rule(const RuleCall& c) {
  Terms t(c);
  auto spread = [&](ValueId v) {
    const std::vector<int64_t> axes = c.integers("axes");
    ValueId list = axes.empty() ? c.node.input(1) : c.b.ints(axes);
    if (c.integer("keepdims", 1) == 0 && list >= 0) v = c.b.emit_any("Unsqueeze", {v, list}, v);
    return c.b.emit("Expand", {v, c.b.emit("Shape", {t.x}, t.x)}, t.x);
  };
  ValueId part = c.b.emit("Exp", {c.b.emit("Sub", {t.x, spread(t.y)}, t.x)}, t.x);
  c.give(0, c.b.emit("Mul", {spread(t.g), part}, t.x));
}

/// The axes that a softmax runs over: one, before opset 13 all from `axis` on.
ValueId softmax_axes(const RuleCall& c) {
  if (c.node.opset >= 13) return c.b.ints({c.integer("axis", -1)});
  const auto rank = static_cast<int64_t>(c.b.sizes(c.out()).size());
  int64_t first = c.integer("axis", 1);
  std::vector<int64_t> axes(static_cast<size_t>(rank - (first < 0 ? first + rank : first)));
  std::iota(axes.begin(), axes.end(), -static_cast<int64_t>(axes.size()));
  return c.b.ints(axes);
}

/// y * (g - sum(g * y))
void softmax_rule(const RuleCall& c) {
  Terms t(c);
  ValueId sum = c.b.emit("ReduceSum", {t.mul(t.g, t.y), softmax_axes(c)}, t.y, {{"keepdims", int64_t{1}}});
  c.give(0, t.mul(t.y, t.sub(t.g, sum)));
}

void log_softmax_rule(const RuleCall& c) {
  Terms t(c);
  ValueId sum = c.b.emit("ReduceSum", {t.g, softmax_axes(c)}, t.y, {{"keepdims", int64_t{1}}});
  c.give(0, t.sub(t.g, t.mul(t.one("Exp", t.y), sum)));
}

/// Without training it passes everything on.
void dropout_rule(const RuleCall& c) {
  if (c.node.input(2) >= 0) throw_unsupported("the gradient of Dropout with an input training_mode");
  c.give(0, c.gradient());
}

// --- products

ValueId transposed(const RuleCall& c, ValueId v) {
  size_t rank = c.b.sizes(v).size();
  std::vector<int64_t> order(rank);
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[rank - 1], order[rank - 2]);
  ValueId out = c.b.emit("Transpose", {v}, v, {{"perm", order}});
  ir::SymInts shape = c.b.sizes(v);
  std::swap(shape[rank - 1], shape[rank - 2]);
  c.b.graph.at(out).type.shape = std::move(shape);
  return out;
}

/// A product with these batch dimensions, summed to `like`.
ValueId product_to(GradientBuilder& b, ValueId left, ValueId right, ValueId like, ir::SymInts batch) {
  ValueId p = b.emit("MatMul", {left, right}, like);
  const ir::SymInts& wanted = b.sizes(like);
  batch.insert(batch.end(), wanted.end() - 2, wanted.end());
  b.graph.at(p).type.shape = std::move(batch);
  return b.sum_to(p, p, like);
}

void matmul_rule(const RuleCall& c) {
  GradientBuilder& b = c.b;
  const size_t ranks[] = {b.sizes(c.in(0)).size(), b.sizes(c.in(1)).size()};
  // A vector takes part as a row on the left, as a column on the right.
  auto matrix = [&](ValueId v, int64_t axis) {
    ValueId out = b.emit("Unsqueeze", {v, b.ints({axis})}, v);
    ir::SymInts shape = b.sizes(v);
    shape.insert(axis < 0 ? shape.end() : shape.end() - (axis == 0 ? 1 : 0), ir::SymInt(1));
    b.graph.at(out).type.shape = std::move(shape);
    return out;
  };
  ValueId x = ranks[0] == 1 ? matrix(c.in(0), 0) : c.in(0), y = ranks[1] == 1 ? matrix(c.in(1), -1) : c.in(1);
  ValueId g = c.gradient();
  if (ranks[1] == 1) g = b.emit("Unsqueeze", {g, b.ints({-1})}, g);
  if (ranks[0] == 1) g = b.emit("Unsqueeze", {g, b.ints({-2})}, g);
  ir::SymInts batch = b.sizes(c.out());
  batch.resize(batch.size() - (ranks[0] > 1) - (ranks[1] > 1));
  if (c.needs(0)) c.give(0, b.reshape_like(product_to(b, g, transposed(c, y), x, batch), c.in(0)));
  if (c.needs(1)) c.give(1, b.reshape_like(product_to(b, transposed(c, x), g, y, batch), c.in(1)));
}

void gemm_rule(const RuleCall& c) {
  ValueId a = c.in(0), b = c.in(1), g = c.gradient();
  int64_t ta = c.integer("transA", 0), tb = c.integer("transB", 0);
  auto alpha = static_cast<float>(c.real("alpha", 1));
  auto product = [&](ValueId x, ValueId y, int64_t tx, int64_t ty, ValueId like) {
    return c.b.emit("Gemm", {x, y}, like, {{"transA", tx}, {"transB", ty}, {"alpha", alpha}});
  };
  if (c.needs(0)) c.give(0, ta ? product(b, g, tb, 1, a) : product(g, b, 0, 1 - tb, a));
  if (c.needs(1)) c.give(1, tb ? product(g, a, 1, ta, b) : product(a, g, 1 - ta, 0, b));
  if (c.needs(2)) {
    ValueId part = c.b.emit("Mul", {g, c.b.number(g, c.real("beta", 1))}, c.out());
    c.give(2, c.b.sum_to(part, c.out(), c.in(2)));
  }
}

struct Entry {
  std::string_view op;
  Rule rule;
};

constexpr std::array kRules = {
    Entry{"AveragePool", average_pool_rule},
    Entry{"Clip", clip_rule},
    Entry{"Compress", movement_rule},
    Entry{"Concat", concat_rule},
    Entry{"Conv", conv_rule},
    Entry{"ConvTranspose", conv_transpose_rule},
    Entry{"DepthToSpace", movement_rule},
    Entry{"Dropout", dropout_rule},
    Entry{"Einsum", einsum_rule},
    Entry{"Flatten", reshape_rule},
    Entry{"Gather", movement_rule},
    Entry{"GatherElements", movement_rule},
    Entry{"GatherND", movement_rule},
    Entry{"Gemm", gemm_rule},
    Entry{"Identity", identity_rule},
    Entry{"If", if_rule},
    Entry{"LogSoftmax", log_softmax_rule},
    Entry{"Loop", loop_rule},
    Entry{"MatMul", matmul_rule},
    Entry{"Max", extreme_rule},
    Entry{"MaxPool", max_pool_rule},
    Entry{"Min", extreme_rule},
    Entry{"Pad", pad_rule},
    Entry{"ReduceLogSumExp", log_sum_exp_rule},
    Entry{"Reshape", reshape_rule},
    Entry{"Resize", resize_rule},
    Entry{"ReverseSequence", movement_rule},
    Entry{"Scan", scan_rule},
    Entry{"Slice", movement_rule},
    Entry{"Softmax", softmax_rule},
    Entry{"Softsign", softsign_rule},
    Entry{"SpaceToDepth", movement_rule},
    Entry{"Split", movement_rule},
    Entry{"Squeeze", reshape_rule},
    Entry{"Tile", movement_rule},
    Entry{"TopK", top_k_rule},
    Entry{"Trilu", movement_rule},
    Entry{"Unsqueeze", reshape_rule},
    Entry{"Upsample", resize_rule},
};

} // namespace

Rule find_rule(std::string_view op) {
  for (const Entry& e : kRules)
    if (e.op == op) return e.rule;
  return nullptr;
}

void derivative_rule(const RuleCall& c) {
  bool has_body = false;
  for_each_body(c.node, [&](const Graph&) { has_body = true; });
  if (has_body || c.node.custom)
    throw_unsupported("there is no rule to differentiate {}", describe(c.b.graph, c.node));
  GradientBuilder& b = c.b;
  Node node = DerivativeNode::make(c.node, c.gradients);
  for (ValueId v : c.node.outputs) // errors name the operator by its result
    if (node.name.empty() && v >= 0) node.name = b.graph.at(v).name;
  for (size_t i = 0; i < c.node.inputs.size(); ++i) {
    node.outputs.push_back(-1);
    if (!c.needs(static_cast<int>(i))) continue;
    Value v = b.graph.at(c.node.inputs[i]);
    v.name = fmt::format("{}'{}", v.name, b.graph.values.size());
    v.constant = nullptr;
    node.outputs.back() = static_cast<ValueId>(b.graph.values.size());
    b.graph.values.push_back(std::move(v));
  }
  const std::vector<ValueId> made = node.outputs;
  b.push(std::move(node));
  for (size_t i = 0; i < made.size(); ++i)
    if (made[i] >= 0) c.give(static_cast<int>(i), made[i]);
}

bool takes_all_gradients(std::string_view op) {
  const Rule rule = find_rule(op);
  return rule == movement_rule || rule == if_rule || rule == loop_rule || rule == scan_rule;
}

} // namespace tbx::graph
