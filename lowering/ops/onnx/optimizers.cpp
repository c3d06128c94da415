// Optimizers of ai.onnx.preview.training: one step of Adagrad, Adam and Momentum for any number of tensors.
// Inputs: learning rate R, update count T, then the tensors, their gradients and their states, group by
// group.
#include "lowering/op_helpers.h"
#include "lowering/ops/families.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

constexpr const char* kTraining = "ai.onnx.preview.training";

float required_float(const OpContext& ctx, const char* name) {
  TBX_MODEL(ctx.has_attr(name), "attribute '{}' is missing", name);
  return ctx.attr_float(name, 0);
}

/// The learning rate or the update count as one value of type `type`.
Expr scalar(OpContext& ctx, int input, DType type) {
  const TensorBox& x = ctx.in(input);
  if (auto n = ir::product(x.sizes()).as_constant())
    TBX_MODEL(*n == 1, "input {} has {} elements, expected one", input, *n);
  return to_compute(ir::reshape(ctx.program, x, {}).load(ctx.program, {}), compute_type(type));
}

/// Number of tensors when each brings `groups` inputs.
int tensors(const OpContext& ctx, int groups) {
  int n = ctx.num_inputs() - 2;
  TBX_MODEL(n > 0 && n % groups == 0, "{} inputs: expected R, T and {} for each tensor", ctx.num_inputs(),
            groups);
  return n / groups;
}

/// The inputs of tensor `i`, of one shape.
std::vector<TensorBox> inputs_of(OpContext& ctx, int i, int count, int groups) {
  std::vector<TensorBox> xs;
  for (int g = 0; g < groups; ++g) {
    xs.push_back(ctx.in(2 + g * count + i));
    TBX_MODEL(xs[g].rank() == xs[0].rank(), "tensor {} and its gradient or state differ in rank", i);
    TBX_MODEL(xs[g].dtype() == xs[0].dtype(), "tensor {} is {}, its gradient or state (input {}) is {}", i,
              name_of(xs[0].dtype()), 2 + g * count + i, name_of(xs[g].dtype()));
  }
  return xs;
}

/// gradient + norm_coefficient * tensor
Expr regularized(Expr x, Expr g, double coefficient) {
  return ir::add(ir::mul(x, number(x, coefficient)), g);
}

/// sqrt(h) + epsilon
Expr root(Expr h, double epsilon) { return ir::add(ir::unary(Op::sqrt, h), number(h, epsilon)); }

Values adagrad(OpContext& ctx) {
  int n = tensors(ctx, 3);
  double decay = ctx.attr_float("decay_factor", 0), epsilon = ctx.attr_float("epsilon", 1e-6f),
         norm = ctx.attr_float("norm_coefficient", 0);
  Values out(static_cast<size_t>(2 * n));
  for (int i = 0; i < n; ++i) {
    std::vector<TensorBox> xs = inputs_of(ctx, i, n, 3);
    DType type = xs[0].dtype();
    TensorBox h = map(ctx, type, xs, [&](std::span<const Expr> v) {
      Expr g = regularized(v[0], v[1], norm);
      return ir::add(v[2], ir::mul(g, g));
    });
    shared(ctx, h, 2);
    const TensorBox with_h[] = {xs[0], xs[1], h};
    TensorBox x = map(ctx, type, with_h, [&](std::span<const Expr> v) {
      Expr rate = scalar(ctx, 0, type), t = scalar(ctx, 1, type);
      rate = ir::div(rate, ir::add(number(t, 1), ir::mul(t, number(t, decay))));
      return ir::sub(v[0], ir::div(ir::mul(rate, regularized(v[0], v[1], norm)), root(v[2], epsilon)));
    });
    out[i] = x;
    out[n + i] = h;
  }
  return out;
}

Values adam(OpContext& ctx) {
  int n = tensors(ctx, 4);
  double alpha = ctx.attr_float("alpha", 0.9f), beta = ctx.attr_float("beta", 0.999f),
         epsilon = ctx.attr_float("epsilon", 1e-6f), norm = ctx.attr_float("norm_coefficient", 0),
         norm_post = ctx.attr_float("norm_coefficient_post", 0);
  Values out(static_cast<size_t>(3 * n));
  for (int i = 0; i < n; ++i) {
    std::vector<TensorBox> xs = inputs_of(ctx, i, n, 4);
    DType type = xs[0].dtype();
    auto average = [&](int state, double keep, bool square) {
      const TensorBox in[] = {xs[0], xs[1], xs[state]};
      return map(ctx, type, in, [&](std::span<const Expr> v) {
        Expr g = regularized(v[0], v[1], norm);
        if (square) g = ir::mul(g, g);
        return ir::add(ir::mul(v[2], number(g, keep)), ir::mul(g, number(g, 1 - keep)));
      });
    };
    TensorBox v = average(2, alpha, false), h = average(3, beta, true);
    shared(ctx, v, 2);
    shared(ctx, h, 2);
    const TensorBox in[] = {xs[0], v, h};
    TensorBox x = map(ctx, type, in, [&](std::span<const Expr> e) {
      // The first updates correct the bias of averages that started at zero.
      Expr rate = scalar(ctx, 0, type), t = scalar(ctx, 1, type), one = number(t, 1);
      auto rest = [&](double keep) { return ir::sub(one, ir::binary(Op::pow, number(t, keep), t)); };
      Expr corrected = ir::div(ir::mul(rate, ir::unary(Op::sqrt, rest(beta))), rest(alpha));
      rate = ir::where(ir::binary(Op::greater, t, number(t, 0)), corrected, rate);
      Expr step = ir::mul(rate, ir::div(e[1], root(e[2], epsilon)));
      return ir::mul(number(t, 1 - norm_post), ir::sub(e[0], step));
    });
    out[i] = x;
    out[n + i] = v;
    out[2 * n + i] = h;
  }
  return out;
}

Values momentum(OpContext& ctx) {
  int n = tensors(ctx, 3);
  double alpha = required_float(ctx, "alpha"), beta = required_float(ctx, "beta"),
         norm = required_float(ctx, "norm_coefficient");
  std::string mode = ctx.attr_string("mode", "");
  TBX_MODEL(mode == "standard" || mode == "nesterov", "mode is '{}', expected 'standard' or 'nesterov'",
            mode);
  Values out(static_cast<size_t>(2 * n));
  for (int i = 0; i < n; ++i) {
    std::vector<TensorBox> xs = inputs_of(ctx, i, n, 3);
    DType type = xs[0].dtype();
    TensorBox v = map(ctx, type, xs, [&](std::span<const Expr> e) {
      Expr t = scalar(ctx, 1, type), g = regularized(e[0], e[1], norm);
      Expr weight = ir::where(ir::binary(Op::greater, t, number(t, 0)), number(t, beta), number(t, 1));
      return ir::add(ir::mul(e[2], number(g, alpha)), ir::mul(weight, g));
    });
    shared(ctx, v, 2);
    const TensorBox in[] = {xs[0], xs[1], v};
    TensorBox x = map(ctx, type, in, [&](std::span<const Expr> e) {
      Expr step = e[2];
      if (mode == "nesterov")
        step = ir::add(regularized(e[0], e[1], norm), ir::mul(e[2], number(e[2], alpha)));
      return ir::sub(e[0], ir::mul(scalar(ctx, 0, type), step));
    });
    out[i] = x;
    out[n + i] = v;
  }
  return out;
}

} // namespace

void register_optimizers(Registry& r) {
  r.add("Adagrad", since(1), adagrad, kTraining);
  r.add("Adam", since(1), adam, kTraining);
  r.add("Momentum", since(1), momentum, kTraining);
}

} // namespace tbx::lowering
