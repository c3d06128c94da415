#include "importer/gradient_rules.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>
#include <set>

#include "base/error.h"

namespace tbx::importer {
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

// --- pointwise, two or more operands

void add_rule(const RuleCall& c) {
  Terms t(c);
  for (size_t i = 0; i < c.node.inputs.size(); ++i) t.give(static_cast<int>(i), t.g);
}
void sub_rule(const RuleCall& c) {
  Terms t(c);
  t.give(0, t.g);
  if (c.needs(1)) t.give(1, t.neg(t.g));
}
void mul_rule(const RuleCall& c) {
  Terms t(c);
  if (c.needs(0)) t.give(0, t.mul(t.g, c.in(1)));
  if (c.needs(1)) t.give(1, t.mul(t.g, c.in(0)));
}
void div_rule(const RuleCall& c) {
  Terms t(c);
  if (c.needs(0)) t.give(0, t.div(t.g, c.in(1)));
  if (c.needs(1)) t.give(1, t.neg(t.div(t.mul(t.g, t.y), c.in(1))));
}
void pow_rule(const RuleCall& c) {
  Terms t(c);
  ValueId e = c.in(1);
  if (c.needs(0)) t.give(0, t.mul(t.g, t.mul(e, t.two("Pow", t.x, t.sub(e, t.n(1))))));
  if (c.needs(1)) {
    ValueId log = t.where("Greater", t.x, t.n(0), t.one("Log", t.x), t.n(0));
    t.give(1, t.mul(t.g, t.mul(t.y, log)));
  }
}
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
void where_rule(const RuleCall& c) {
  Terms t(c);
  ValueId zero = t.n(0);
  if (c.needs(1)) t.give(1, c.b.emit("Where", {c.in(0), t.g, zero}, t.y));
  if (c.needs(2)) t.give(2, c.b.emit("Where", {c.in(0), zero, t.g}, t.y));
}
void clip_rule(const RuleCall& c) {
  Terms t(c);
  t.give(0, t.where("Equal", t.x, t.y, t.g, t.n(0)));
}

// --- pointwise, one operand: gradient times derivative

template <auto derivative> void unary_rule(const RuleCall& c) {
  Terms t(c);
  t.give(0, t.mul(t.g, derivative(t)));
}
ValueId d_neg(const Terms& t) { return t.n(-1); }
ValueId d_exp(const Terms& t) { return t.y; }
ValueId d_log(const Terms& t) { return t.one("Reciprocal", t.x); }
ValueId d_sqrt(const Terms& t) { return t.div(t.n(0.5), t.y); }
ValueId d_reciprocal(const Terms& t) { return t.neg(t.mul(t.y, t.y)); }
ValueId d_sin(const Terms& t) { return t.one("Cos", t.x); }
ValueId d_cos(const Terms& t) { return t.neg(t.one("Sin", t.x)); }
ValueId d_tan(const Terms& t) { return t.add(t.n(1), t.mul(t.y, t.y)); }
ValueId d_atan(const Terms& t) { return t.one("Reciprocal", t.add(t.n(1), t.mul(t.x, t.x))); }
ValueId d_sinh(const Terms& t) { return t.one("Cosh", t.x); }
ValueId d_cosh(const Terms& t) { return t.one("Sinh", t.x); }
ValueId d_tanh(const Terms& t) { return t.sub(t.n(1), t.mul(t.y, t.y)); }
ValueId d_sigmoid(const Terms& t) { return t.mul(t.y, t.sub(t.n(1), t.y)); }
ValueId d_softplus(const Terms& t) { return t.one("Sigmoid", t.x); }
ValueId d_softsign(const Terms& t) {
  ValueId d = t.add(t.n(1), t.one("Abs", t.x));
  return t.one("Reciprocal", t.mul(d, d));
}
ValueId d_asin(const Terms& t) { return t.one("Reciprocal", t.one("Sqrt", t.sub(t.n(1), t.mul(t.x, t.x)))); }
ValueId d_acos(const Terms& t) { return t.neg(d_asin(t)); }
ValueId d_asinh(const Terms& t) { return t.one("Reciprocal", t.one("Sqrt", t.add(t.mul(t.x, t.x), t.n(1)))); }
ValueId d_acosh(const Terms& t) { return t.one("Reciprocal", t.one("Sqrt", t.sub(t.mul(t.x, t.x), t.n(1)))); }
ValueId d_atanh(const Terms& t) { return t.one("Reciprocal", t.sub(t.n(1), t.mul(t.x, t.x))); }
ValueId d_abs(const Terms& t) { return t.one("Sign", t.x); }
ValueId d_erf(const Terms& t) {
  return t.mul(t.n(2 / std::sqrt(std::numbers::pi)), t.one("Exp", t.neg(t.mul(t.x, t.x))));
}
ValueId d_relu(const Terms& t) { return t.where("Greater", t.x, t.n(0), t.n(1), t.n(0)); }
ValueId d_leaky(const Terms& t) {
  return t.where("Greater", t.x, t.n(0), t.n(1), t.n(t.c.real("alpha", 0.01f)));
}
ValueId d_elu(const Terms& t) {
  return t.where("Greater", t.x, t.n(0), t.n(1), t.add(t.y, t.n(t.c.real("alpha", 1))));
}

ValueId d_selu(const Terms& t) {
  const double alpha = t.c.real("alpha", 1.67326319217681884765625f),
               gamma = t.c.real("gamma", 1.05070102214813232421875f);
  return t.where("Greater", t.x, t.n(0), t.n(gamma), t.add(t.y, t.n(alpha * gamma)));
}
ValueId d_hard_sigmoid(const Terms& t) {
  ValueId below = t.where("Less", t.y, t.n(1), t.n(t.c.real("alpha", 0.2f)), t.n(0));
  return t.where("Greater", t.y, t.n(0), below, t.n(0));
}
ValueId d_thresholded_relu(const Terms& t) {
  return t.where("Greater", t.x, t.n(t.c.real("alpha", 1)), t.n(1), t.n(0));
}

// --- shapes: the gradient goes back into the shape of the input

void reshape_rule(const RuleCall& c) { c.give(0, c.b.reshape_like(c.gradient(), c.in(0))); }

void identity_rule(const RuleCall& c) { c.give(0, c.gradient()); }

void cast_rule(const RuleCall& c) { c.give(0, c.b.emit("CastLike", {c.gradient(), c.in(0)}, c.in(0))); }

void transpose_rule(const RuleCall& c) {
  auto rank = static_cast<int64_t>(c.b.sizes(c.in(0)).size());
  std::vector<int64_t> order(static_cast<size_t>(rank)), back(order.size());
  std::iota(order.rbegin(), order.rend(), 0);
  if (std::vector<int64_t> perm = c.integers("perm"); !perm.empty()) order = std::move(perm);
  for (size_t i = 0; i < order.size(); ++i) {
    int64_t axis = order[i] < 0 ? order[i] + rank : order[i];
    TBX_MODEL(order.size() == back.size() && axis >= 0 && axis < rank, "perm does not fit rank {}", rank);
    back[static_cast<size_t>(axis)] = static_cast<int64_t>(i);
  }
  ValueId g = c.b.emit("Transpose", {c.gradient()}, c.in(0), {{"perm", back}});
  c.b.graph.at(g).type.shape = c.b.type(c.in(0)).shape;
  c.give(0, g);
}

void expand_rule(const RuleCall& c) { Terms(c).give(0, c.gradient()); }

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

// --- reductions: the gradient is spread over what was reduced

/// Axes of a reduction, from the attribute or the input; empty: all.
std::vector<int64_t> reduced_axes(const RuleCall& c) {
  if (c.node.op_type == "GlobalMaxPool") {
    std::vector<int64_t> spatial(std::max<size_t>(c.b.sizes(c.in(0)).size(), 2) - 2);
    std::iota(spatial.begin(), spatial.end(), 2);
    return spatial;
  }
  if (std::vector<int64_t> axes = c.integers("axes"); !axes.empty()) return axes;
  if (c.node.input(1) < 0) return {};
  const auto& constant = c.b.graph.at(c.in(1)).constant;
  if (!constant) throw_unsupported("the gradient of a reduction over axes that are computed");
  return to_ints(*constant);
}

/// `v`, a result of the reduction, in the rank of the input.
ValueId with_axes(const RuleCall& c, ValueId v) {
  if (c.integer("keepdims", 1) != 0) return v;
  std::vector<int64_t> axes = reduced_axes(c);
  if (axes.empty()) return v; // a scalar broadcasts
  return c.b.emit("Unsqueeze", {v, c.b.ints(axes)}, v);
}

bool reduces_nothing(const RuleCall& c) {
  return c.integer("noop_with_empty_axes", 0) != 0 && reduced_axes(c).empty();
}

/// `v`, of the shape of the result, for every element that was reduced.
ValueId spread(const RuleCall& c, ValueId v) {
  return c.b.emit("Expand", {with_axes(c, v), c.b.emit("Shape", {c.in(0)}, c.in(0))}, c.in(0));
}

void reduce_sum_rule(const RuleCall& c) {
  if (reduces_nothing(c)) return c.give(0, c.gradient());
  c.give(0, spread(c, c.gradient()));
}

/// The derivative by one element of x: `derivative(terms, x, g)`, g and the result y spread over x.
template <auto derivative> void reduce_rule(const RuleCall& c) {
  ValueId x = c.in(0), y = c.out(), g = c.gradient();
  if (!reduces_nothing(c)) y = spread(c, y), g = spread(c, g);
  auto two = [&](const char* op, ValueId a, ValueId b) { return c.b.emit(op, {a, b}, x); };
  auto one = [&](const char* op, ValueId a) { return c.b.emit(op, {a}, x); };
  c.give(0, two("Mul", g, derivative(c, x, y, one, two)));
}
constexpr auto d_l1 = [](auto&, ValueId x, ValueId, auto one, auto) { return one("Sign", x); };
constexpr auto d_l2 = [](auto&, ValueId x, ValueId y, auto, auto two) { return two("Div", x, y); };
constexpr auto d_sum_square = [](auto&, ValueId x, ValueId, auto, auto two) { return two("Add", x, x); };
constexpr auto d_log_sum = [](auto&, ValueId, ValueId y, auto one, auto) {
  return one("Reciprocal", one("Exp", y));
};
constexpr auto d_log_sum_exp = [](auto&, ValueId x, ValueId y, auto one, auto two) {
  return one("Exp", two("Sub", x, y));
};

void reduce_mean_rule(const RuleCall& c) {
  if (reduces_nothing(c)) return c.give(0, c.gradient());
  ValueId x = c.in(0);
  auto count = [&](ValueId v) { return c.b.emit("CastLike", {c.b.emit("Size", {v}, v), x}, x); };
  ValueId part =
      c.b.emit("Div", {c.b.emit("Mul", {c.gradient(), count(c.out())}, c.out()), count(x)}, c.out());
  c.give(0, spread(c, part));
}

/// ReduceMax and ReduceMin: to the elements that gave the result, in equal parts.
void reduce_extreme_rule(const RuleCall& c) {
  if (reduces_nothing(c)) return c.give(0, c.gradient());
  ValueId x = c.in(0);
  ValueId hit = c.b.emit("CastLike", {c.b.emit("Equal", {x, with_axes(c, c.out())}, x), x}, x);
  std::vector<ValueId> inputs{hit};
  std::vector<int64_t> axes = reduced_axes(c);
  if (!axes.empty()) inputs.push_back(c.b.ints(axes));
  ValueId hits = c.b.emit("ReduceSum", inputs, x, {{"keepdims", int64_t{1}}});
  c.give(0, c.b.emit("Div", {c.b.emit("Mul", {hit, with_axes(c, c.gradient())}, x), hits}, x));
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

void cum_sum_rule(const RuleCall& c) {
  c.give(0, c.b.emit("CumSum", {c.gradient(), c.in(1)}, c.in(0),
                     {{"exclusive", c.integer("exclusive", 0)}, {"reverse", 1 - c.integer("reverse", 0)}}));
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

/// "ik,kj->ij" by its first operand: "ij,kj->ik".
void einsum_rule(const RuleCall& c) {
  std::string equation = c.text("equation", "");
  std::erase(equation, ' ');
  std::vector<std::string> terms;
  const size_t arrow = equation.find("->");
  for (size_t at = 0, end = 0; arrow != std::string::npos && at <= arrow; at = end + 1) {
    end = std::min(equation.find(',', at), arrow);
    terms.push_back(equation.substr(at, end - at));
  }
  bool plain = terms.size() == c.node.inputs.size() && equation.find('.') == std::string::npos;
  const std::string result = plain ? equation.substr(arrow + 2) : "";
  for (size_t i = 0; i < terms.size() && plain; ++i) {
    std::string others = result; // where the letters of this term must all occur
    for (size_t k = 0; k < terms.size(); ++k)
      if (k != i) others += terms[k];
    plain = std::set<char>(terms[i].begin(), terms[i].end()).size() == terms[i].size() &&
            terms[i].find_first_not_of(others) == std::string::npos;
  }
  if (!plain) throw_unsupported("the gradient of the Einsum '{}'", equation);
  for (size_t i = 0; i < terms.size(); ++i) {
    if (!c.needs(static_cast<int>(i))) continue;
    std::vector<ValueId> inputs{c.gradient()};
    std::string swapped = result;
    for (size_t k = 0; k < terms.size(); ++k)
      if (k != i) inputs.push_back(c.in(static_cast<int>(k))), swapped += "," + terms[k];
    c.give(static_cast<int>(i),
           c.b.emit("Einsum", inputs, c.in(static_cast<int>(i)), {{"equation", swapped + "->" + terms[i]}}));
  }
}

struct Entry {
  std::string_view op;
  Rule rule;
};

constexpr std::array kRules = {
    Entry{"Abs", unary_rule<d_abs>},
    Entry{"Acos", unary_rule<d_acos>},
    Entry{"Acosh", unary_rule<d_acosh>},
    Entry{"Add", add_rule},
    Entry{"Asin", unary_rule<d_asin>},
    Entry{"Asinh", unary_rule<d_asinh>},
    Entry{"Atan", unary_rule<d_atan>},
    Entry{"Atanh", unary_rule<d_atanh>},
    Entry{"AveragePool", average_pool_rule},
    Entry{"BatchNormalization", batch_norm_rule},
    Entry{"Cast", cast_rule},
    Entry{"CastLike", cast_rule},
    Entry{"Clip", clip_rule},
    Entry{"Compress", movement_rule},
    Entry{"Concat", concat_rule},
    Entry{"Conv", conv_rule},
    Entry{"ConvTranspose", conv_transpose_rule},
    Entry{"Cos", unary_rule<d_cos>},
    Entry{"Cosh", unary_rule<d_cosh>},
    Entry{"CumSum", cum_sum_rule},
    Entry{"DepthToSpace", movement_rule},
    Entry{"Div", div_rule},
    Entry{"Dropout", dropout_rule},
    Entry{"Einsum", einsum_rule},
    Entry{"Elu", unary_rule<d_elu>},
    Entry{"Erf", unary_rule<d_erf>},
    Entry{"Exp", unary_rule<d_exp>},
    Entry{"Expand", expand_rule},
    Entry{"Flatten", reshape_rule},
    Entry{"Gather", movement_rule},
    Entry{"GatherElements", movement_rule},
    Entry{"GatherND", movement_rule},
    Entry{"Gemm", gemm_rule},
    Entry{"GlobalAveragePool", reduce_mean_rule},
    Entry{"GlobalMaxPool", reduce_extreme_rule},
    Entry{"HardSigmoid", unary_rule<d_hard_sigmoid>},
    Entry{"Identity", identity_rule},
    Entry{"InstanceNormalization", instance_norm_rule},
    Entry{"LeakyRelu", unary_rule<d_leaky>},
    Entry{"Log", unary_rule<d_log>},
    Entry{"LogSoftmax", log_softmax_rule},
    Entry{"MatMul", matmul_rule},
    Entry{"Max", extreme_rule},
    Entry{"MaxPool", max_pool_rule},
    Entry{"Min", extreme_rule},
    Entry{"Mul", mul_rule},
    Entry{"Neg", unary_rule<d_neg>},
    Entry{"Pad", pad_rule},
    Entry{"Pow", pow_rule},
    Entry{"Reciprocal", unary_rule<d_reciprocal>},
    Entry{"ReduceL1", reduce_rule<d_l1>},
    Entry{"ReduceL2", reduce_rule<d_l2>},
    Entry{"ReduceLogSum", reduce_rule<d_log_sum>},
    Entry{"ReduceLogSumExp", reduce_rule<d_log_sum_exp>},
    Entry{"ReduceMax", reduce_extreme_rule},
    Entry{"ReduceMean", reduce_mean_rule},
    Entry{"ReduceMin", reduce_extreme_rule},
    Entry{"ReduceSum", reduce_sum_rule},
    Entry{"ReduceSumSquare", reduce_rule<d_sum_square>},
    Entry{"Relu", unary_rule<d_relu>},
    Entry{"Reshape", reshape_rule},
    Entry{"Resize", resize_rule},
    Entry{"ReverseSequence", movement_rule},
    Entry{"Scatter", scatter_rule},
    Entry{"ScatterElements", scatter_rule},
    Entry{"ScatterND", scatter_rule},
    Entry{"Selu", unary_rule<d_selu>},
    Entry{"Sigmoid", unary_rule<d_sigmoid>},
    Entry{"Sin", unary_rule<d_sin>},
    Entry{"Sinh", unary_rule<d_sinh>},
    Entry{"Slice", movement_rule},
    Entry{"Softmax", softmax_rule},
    Entry{"Softplus", unary_rule<d_softplus>},
    Entry{"Softsign", unary_rule<d_softsign>},
    Entry{"SpaceToDepth", movement_rule},
    Entry{"Split", movement_rule},
    Entry{"Sqrt", unary_rule<d_sqrt>},
    Entry{"Squeeze", reshape_rule},
    Entry{"Sub", sub_rule},
    Entry{"Sum", add_rule},
    Entry{"Tan", unary_rule<d_tan>},
    Entry{"Tanh", unary_rule<d_tanh>},
    Entry{"ThresholdedRelu", unary_rule<d_thresholded_relu>},
    Entry{"Tile", movement_rule},
    Entry{"TopK", top_k_rule},
    Entry{"Transpose", transpose_rule},
    Entry{"Trilu", movement_rule},
    Entry{"Unsqueeze", reshape_rule},
    Entry{"Upsample", resize_rule},
    Entry{"Where", where_rule},
};

} // namespace

Rule find_rule(std::string_view op) {
  for (const Entry& e : kRules)
    if (e.op == op) return e.rule;
  return nullptr;
}

bool takes_all_gradients(std::string_view op) { return find_rule(op) == movement_rule; }

bool stops_gradient(std::string_view op) {
  static const std::set<std::string_view> stops = {
      "ArgMax", "ArgMin", "Ceil", "ConstantOfShape", "Equal",   "Floor", "Greater", "GreaterOrEqual",
      "IsInf",  "IsNaN",  "Less", "LessOrEqual",     "NonZero", "Not",   "Round",   "Shape",
      "Sign",   "Size"};
  return stops.count(op) != 0;
}

} // namespace tbx::importer
