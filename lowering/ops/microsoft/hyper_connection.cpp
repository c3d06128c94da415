// com.microsoft operators around the attention of recent language models: normalisations per branch and with
// a gate, sums with a gate, and residual streams that are mixed before and after a block. All of them compute
// in f32 and round to the type of their data where the schemas say so.
#include "ir/activations.h"
#include "lowering/ops/attention_core.h"
#include "lowering/ops/families.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

void require_floats(OpContext& ctx, int i, const char* name) {
  TBX_MODEL(ctx.has(i), "{} is missing", name);
  const DType type = ctx.dtype(i);
  TBX_MODEL(type == DType::f32 || type == DType::f16 || type == DType::bf16,
            "{} is of type {}, expected float, float16 or bfloat16", name, name_of(type));
}

void require_rank(const TensorBox& x, const char* name, int least, int most = -1) {
  TBX_MODEL(x.rank() >= least && (most < 0 || x.rank() <= most), "{} has rank {}, expected {}{}", name,
            x.rank(), most < 0 ? "at least " : "", least);
}

/// ModelError, or a check of each run, unless the first `count` sizes of both are equal.
void require_same(OpContext& ctx, const TensorBox& a, const TensorBox& b, int count,
                  const std::string& what) {
  for (int d = 0; d < count; ++d)
    require_equal(ctx, a.sizes()[d], b.sizes()[d], fmt::format("dimension {} of {}", d, what));
}

Expr wide(Expr e) { return to_compute(e, DType::f32); }

/// Stored as `type`, from a body in f32.
TensorBox stored(OpContext& ctx, DType type, const SymInts& sizes,
                 const std::function<Expr(std::span<const SymInt>)>& body) {
  return generate(ctx, type, sizes, [&](std::span<const SymInt> at) { return rounded(body(at), type); });
}

/// 1 / sqrt(mean of squares + epsilon) along the last dimension, kept as 1; f32.
TensorBox inverse_root_mean(OpContext& ctx, const TensorBox& x, double epsilon) {
  shared(ctx, x, 2);
  AxisReducer reduce(ctx, x.sizes(), {x.rank() - 1});
  TensorBox squares = reduce(ReduceOp::sum, DType::f32, x, [](Expr e) { return ir::mul(wide(e), wide(e)); });
  TensorBox inverse = map(ctx, DType::f32, squares, [&](Expr s) {
    Expr mean = ir::div(s, size_as(ctx.c, reduce.count(), DType::f32));
    return ir::unary(Op::reciprocal, ir::unary(Op::sqrt, ir::add(mean, number(mean, epsilon))));
  });
  realize(ctx, inverse, "statistic of a row");
  return inverse;
}

/// The element of `inverse` for the row of `at`.
Expr of_row(OpContext& ctx, const TensorBox& inverse, std::span<const SymInt> at) {
  SymInts row(at.begin(), at.end());
  row.back() = 0;
  return inverse.load(ctx.program, row);
}

/// The last dimension of x as [count, rest].
TensorBox split_last(OpContext& ctx, const TensorBox& x, SymInt count, SymInt rest) {
  SymInts sizes(x.sizes().begin(), x.sizes().end() - 1);
  sizes.push_back(count);
  sizes.push_back(rest);
  return ir::reshape(ctx.program, x, sizes);
}

/// X * rsqrt(mean(X^2) + epsilon) * scale * activation(gate), over each group of as many elements as scale
/// has.
Values gated_rms_norm(OpContext& ctx) {
  for (int i : {0, 1, 2}) require_floats(ctx, i, i == 0 ? "X" : i == 1 ? "scale" : "gate");
  const TensorBox &x = ctx.in(0), &scale = ctx.in(1), &gate = ctx.in(2);
  const std::string activation = ctx.attr_string("activation", "silu");
  TBX_MODEL(activation == "silu" || activation == "swish" || activation == "sigmoid",
            "activation is '{}', expected silu, swish or sigmoid", activation);
  require_rank(x, "X", 1);
  require_rank(scale, "scale", 1, 1);
  TBX_MODEL(gate.rank() == x.rank(), "gate has rank {}, X {}", gate.rank(), x.rank());
  require_same(ctx, x, gate, x.rank(), "X and gate");
  const SymInt last = x.sizes().back(), c = scale.sizes()[0];
  ctx.program.add_check(c - SymInt(1), false, "GatedRMSNorm: scale is empty");
  TBX_MODEL(!c.is_constant() || c.constant() > 0, "scale is empty");
  require_equal(ctx, ir::mod(last, ir::max(c, 1)), 0, "the last dimension of X and a multiple of scale's");
  const SymInt groups = ir::floordiv(last, ir::max(c, 1));
  const TensorBox g = split_last(ctx, x, groups, c), z = split_last(ctx, gate, groups, c);
  const TensorBox inverse = inverse_root_mean(ctx, g, ctx.attr_float("epsilon", 1e-5f));
  TensorBox y = stored(ctx, x.dtype(), g.sizes(), [&](std::span<const SymInt> at) {
    Expr e = ir::mul(wide(g.load(ctx.program, at)), of_row(ctx, inverse, at));
    e = ir::mul(e, wide(scale.load(ctx.program, at.last(1))));
    Expr gated = wide(z.load(ctx.program, at));
    return ir::mul(e, activation == "sigmoid" ? ir::unary(Op::sigmoid, gated) : ir::silu(gated));
  });
  return {ir::reshape(ctx.program, y, x.sizes())};
}

/// Streams grouped as [..., C, H], or flattened as [..., C * H] where `num_branches` says C.
struct Streams {
  TensorBox grouped;
  bool flattened;
  SymInt branches, features;
  int rank() const { return grouped.rank(); }
};

Streams streams(OpContext& ctx, const char* name) {
  require_floats(ctx, 0, name);
  const TensorBox& x = ctx.in(0);
  const int64_t branches = ctx.attr_int("num_branches", 0);
  TBX_MODEL(branches >= 0 && branches <= (int64_t{1} << 31), "num_branches is {}", branches);
  if (branches == 0) {
    require_rank(x, name, 2);
    return {x, false, x.sizes()[x.rank() - 2], x.sizes().back()};
  }
  require_rank(x, name, 1);
  require_equal(ctx, ir::mod(x.sizes().back(), branches), 0,
                fmt::format("the last dimension of {} and a multiple of num_branches", name));
  const SymInt features = ir::floordiv(x.sizes().back(), branches);
  return {split_last(ctx, x, branches, features), true, branches, features};
}

/// Whether a size is `a`, else it has to be `b`. A size that may be either must be known.
bool is_first(OpContext& ctx, SymInt size, SymInt a, SymInt b, const char* what) {
  if (size == a || a == b) return require_equal(ctx, size, a, what), true;
  if (size == b) return false;
  if (!size.is_constant() || !a.is_constant() || !b.is_constant())
    ask_for_sizes(fmt::format("{}: the shape decides what it means", what));
  TBX_MODEL(size == b, "{} has size {}, expected {} or {}", what, size.constant(), a.constant(),
            b.constant());
  return false;
}

Values branchwise_rms_norm(OpContext& ctx) {
  const Streams s = streams(ctx, "X");
  const TensorBox& x = s.grouped;
  TensorBox scale; // [H] or [C, H]
  if (ctx.has(1)) {
    require_floats(ctx, 1, "scale");
    scale = ctx.in(1);
    require_rank(scale, "scale", 1, 2);
    if (scale.rank() == 2) {
      require_equal(ctx, scale.sizes()[0], s.branches, "branches of scale and X");
      require_equal(ctx, scale.sizes()[1], s.features, "features of scale and X");
    } else if (!is_first(ctx, scale.sizes()[0], s.features, s.branches * s.features, "scale")) {
      scale = split_last(ctx, scale, s.branches, s.features);
    }
  }
  const TensorBox inverse = inverse_root_mean(ctx, x, ctx.attr_float("epsilon", 1e-5f));
  TensorBox y = stored(ctx, x.dtype(), x.sizes(), [&](std::span<const SymInt> at) {
    Expr e = ir::mul(wide(x.load(ctx.program, at)), of_row(ctx, inverse, at));
    return scale.defined() ? ir::mul(e, wide(scale.load(ctx.program, at.last(scale.rank())))) : e;
  });
  return {ir::reshape(ctx.program, y, ctx.sizes(0))};
}

/// X + round(Y * gate), one gate per row.
Values gated_add(OpContext& ctx) {
  for (int i : {0, 1, 2}) require_floats(ctx, i, i == 0 ? "X" : i == 1 ? "Y" : "gate");
  const TensorBox &x = ctx.in(0), &y = ctx.in(1), &gate = ctx.in(2);
  require_rank(x, "X", 1);
  TBX_MODEL(y.rank() == x.rank() && gate.rank() == x.rank(), "X, Y and gate have ranks {}, {} and {}",
            x.rank(), y.rank(), gate.rank());
  require_same(ctx, x, y, x.rank(), "X and Y");
  require_same(ctx, x, gate, x.rank() - 1, "X and gate");
  require_equal(ctx, gate.sizes().back(), 1, "the last dimension of gate and 1");
  return {stored(ctx, x.dtype(), x.sizes(), [&](std::span<const SymInt> at) {
    Expr product = ir::mul(wide(y.load(ctx.program, at)), wide(of_row(ctx, gate, at)));
    return ir::add(wide(x.load(ctx.program, at)), rounded(product, x.dtype()));
  })};
}

/// decay_scale * softplus(a + dt_bias), and sigmoid(b).
Values linear_attention_gate(OpContext& ctx) {
  require_floats(ctx, 0, "a");
  const TensorBox &a = ctx.in(0), &bias = ctx.in(1), &scale = ctx.in(2);
  require_rank(a, "a", 3, 3);
  for (const TensorBox* t : {&bias, &scale}) {
    const char* name = t == &bias ? "dt_bias" : "decay_scale";
    TBX_MODEL(t->dtype() == DType::f32, "{} is of type {}, expected float", name, name_of(t->dtype()));
    require_rank(*t, name, 1, 1);
    require_equal(ctx, t->sizes()[0], a.sizes()[2], fmt::format("heads of {} and a", name));
  }
  Values out{stored(ctx, a.dtype(), a.sizes(), [&](std::span<const SymInt> at) {
    Expr e = ir::add(wide(a.load(ctx.program, at)), bias.load(ctx.program, at.last(1)));
    return ir::mul(scale.load(ctx.program, at.last(1)), ir::unary(Op::softplus, e));
  })};
  TBX_MODEL(ctx.has(3) || !ctx.wants(1), "the output beta needs the input b");
  if (!ctx.has(3)) return out;
  require_floats(ctx, 3, "b");
  const TensorBox& b = ctx.in(3);
  require_rank(b, "b", 3, 3);
  require_same(ctx, a, b, 3, "a and b");
  out.push_back(map(ctx, b.dtype(), b, [&](Expr e) { return ir::unary(Op::sigmoid, e); }));
  return out;
}

/// z * sigmoid(z) of z = scale * x, each step rounded.
Values scaled_silu(OpContext& ctx) {
  require_floats(ctx, 0, "X");
  const TensorBox& x = ctx.in(0);
  if (ctx.has(1)) {
    require_floats(ctx, 1, "scale");
    TBX_MODEL(ctx.rank(1) == 0, "scale has rank {}, expected a scalar", ctx.rank(1));
  }
  const float alpha = ctx.attr_float("alpha", 1);
  return {stored(ctx, x.dtype(), x.sizes(), [&](std::span<const SymInt> at) {
    Expr e = wide(x.load(ctx.program, at));
    Expr factor = ctx.has(1) ? wide(ctx.in(1).load(ctx.program, {})) : number(e, alpha);
    Expr z = rounded(ir::mul(factor, e), x.dtype());
    return ir::mul(z, rounded(ir::unary(Op::sigmoid, z), x.dtype()));
  })};
}

/// Gates of streams as [..., C, 1] or [..., C, H].
TensorBox gates(OpContext& ctx, int i, const char* name, const Streams& s, bool may_be_flat) {
  require_floats(ctx, i, name);
  TensorBox g = ctx.in(i);
  const int lead = s.rank() - 2;
  TBX_MODEL(g.rank() == lead + 1 || g.rank() == lead + 2, "{} has rank {}, expected {} or {}", name, g.rank(),
            lead + 1, lead + 2);
  require_same(ctx, s.grouped, g, lead, fmt::format("streams and {}", name));
  if (g.rank() == lead + 1) {
    bool per_branch = true;
    if (may_be_flat && s.flattened)
      per_branch = is_first(ctx, g.sizes().back(), s.branches, s.branches * s.features, name);
    else
      require_equal(ctx, g.sizes().back(), s.branches, fmt::format("branches of {} and streams", name));
    return split_last(ctx, g, s.branches, per_branch ? SymInt(1) : s.features);
  }
  require_equal(ctx, g.sizes()[lead], s.branches, fmt::format("branches of {} and streams", name));
  is_first(ctx, g.sizes().back(), 1, s.features, name);
  return g;
}

Expr gate_at(OpContext& ctx, const TensorBox& gates, SymInts at) {
  if (gates.sizes().back().is(1)) at.back() = 0;
  return wide(gates.load(ctx.program, at));
}

/// reduction_scale * sum over c of X[..., c, h] * pre_mix[..., c, h]
Values pre_mix(OpContext& ctx) {
  const Streams s = streams(ctx, "streams");
  const TensorBox& x = s.grouped;
  const TensorBox mix = gates(ctx, 1, "pre_mix", s, true);
  const double scale = ctx.attr_float("reduction_scale", 1);
  AxisReducer reduce(ctx, x.sizes(), {x.rank() - 2});
  TensorBox sum = reduce.drop(reduce(ReduceOp::sum, DType::f32, [&](std::span<const SymInt> at) {
    return ir::mul(wide(x.load(ctx.program, at)), gate_at(ctx, mix, {at.begin(), at.end()}));
  }));
  return {map(ctx, x.dtype(), sum,
              [&](Expr e) { return rounded(scale == 1 ? e : ir::mul(number(e, scale), e), x.dtype()); })};
}

/// sum over c of stream_mix[..., c, k] * streams[..., c, h], plus post_mix[..., k, h] * block_output[..., h]
Values post_mix(OpContext& ctx) {
  const Streams s = streams(ctx, "streams");
  ir::Program& p = ctx.program;
  const TensorBox& x = s.grouped;
  const int lead = s.rank() - 2;
  require_floats(ctx, 1, "block_output");
  const TensorBox& block = ctx.in(1);
  require_rank(block, "block_output", lead + 1, lead + 1);
  require_same(ctx, x, block, lead, "streams and block_output");
  require_equal(ctx, block.sizes()[lead], s.features, "features of streams and block_output");
  const TensorBox mix = gates(ctx, 2, "post_mix", s, false);
  TensorBox mixed;
  if (ctx.has(3)) {
    require_floats(ctx, 3, "stream_mix");
    const TensorBox& matrix = ctx.in(3);
    require_rank(matrix, "stream_mix", lead + 2, lead + 2);
    require_same(ctx, x, matrix, lead, "streams and stream_mix");
    for (int d : {lead, lead + 1})
      require_equal(ctx, matrix.sizes()[d], s.branches, "branches of streams and stream_mix");
    SymInts space = x.sizes(); // [..., k, c, h]
    space.insert(space.end() - 1, s.branches);
    AxisReducer reduce(ctx, space, {lead + 1});
    mixed = reduce.drop(reduce(ReduceOp::sum, DType::f32, [&](std::span<const SymInt> at) {
      SymInts from(at.begin(), at.end()), weight(at.begin(), at.end() - 1);
      from.erase(from.begin() + lead);
      std::swap(weight[lead], weight[lead + 1]);
      return ir::mul(wide(matrix.load(p, weight)), wide(x.load(p, from)));
    }));
  }
  TensorBox y = stored(ctx, x.dtype(), x.sizes(), [&](std::span<const SymInt> at) {
    SymInts feature(at.begin(), at.end());
    feature.erase(feature.begin() + lead);
    Expr injected = ir::mul(gate_at(ctx, mix, {at.begin(), at.end()}), wide(block.load(p, feature)));
    return ir::add(mixed.defined() ? mixed.load(p, at) : wide(x.load(p, at)), injected);
  });
  return {ir::reshape(p, y, ctx.sizes(0))};
}

/// How well normalised keys and queries agree decides how much of a value gets through.
Values engram_gate(OpContext& ctx) {
  ir::Program& p = ctx.program;
  const char* const names[] = {
      "key", "query", "value", "key_norm_scale", "query_norm_scale", "conv_norm_scale"};
  for (int i = 0; i < 6; ++i)
    if (i < 5 || ctx.has(i)) require_floats(ctx, i, names[i]);
  const TensorBox &key = ctx.in(0), &query = ctx.in(1), &value = ctx.in(2);
  require_rank(key, "key", 4, 4);
  require_rank(query, "query", 4, 4);
  require_rank(value, "value", 3, 3);
  require_same(ctx, key, query, 4, "key and query");
  require_same(ctx, key, value, 2, "key and value");
  require_equal(ctx, value.sizes()[2], key.sizes()[3], "hidden sizes of value and key");
  for (int i = 3; i < 6; ++i) {
    if (!ctx.has(i)) continue;
    require_rank(ctx.in(i), names[i], 2, 2);
    for (int d : {0, 1})
      require_equal(ctx, ctx.sizes(i)[d], key.sizes()[2 + d],
                    fmt::format("dimension {} of {} and key's", d, names[i]));
  }
  TBX_MODEL(ctx.has(5) || !ctx.wants(1), "the output gated_value_normed needs the input conv_norm_scale");
  const double epsilon = ctx.attr_float("epsilon", 1e-5f);
  const TensorBox of_key = inverse_root_mean(ctx, key, epsilon),
                  of_query = inverse_root_mean(ctx, query, epsilon);
  AxisReducer reduce(ctx, key.sizes(), {3});
  TensorBox dot = reduce(ReduceOp::sum, DType::f32, [&](std::span<const SymInt> at) {
    Expr k = ir::mul(wide(key.load(p, at)), wide(ctx.in(3).load(p, at.last(2))));
    Expr q = ir::mul(wide(query.load(p, at)), wide(ctx.in(4).load(p, at.last(2))));
    return ir::mul(k, q);
  });
  TensorBox gate = map(ctx, DType::f32, std::vector{dot, of_key, of_query}, [&](std::span<const Expr> v) {
    Expr e = ir::mul(ir::mul(v[0], v[1]), v[2]);
    e = ir::div(e, ir::unary(Op::sqrt, size_as(ctx.c, key.sizes()[3], DType::f32)));
    Expr root = ir::unary(Op::sqrt, ir::binary(Op::max, ir::unary(Op::abs, e), number(e, 1e-6)));
    return ir::unary(Op::sigmoid, ir::mul(ir::unary(Op::sign, e), root));
  });
  realize(ctx, gate, "one number for a row");
  const TensorBox y = stored(ctx, key.dtype(), key.sizes(), [&](std::span<const SymInt> at) {
    const SymInt from[] = {at[0], at[1], at[3]};
    return ir::mul(of_row(ctx, gate, at), wide(value.load(p, from)));
  });
  if (!ctx.wants(1)) return {y};
  const TensorBox inverse = inverse_root_mean(ctx, y, epsilon);
  return {y, stored(ctx, key.dtype(), key.sizes(), [&](std::span<const SymInt> at) {
            Expr e = ir::mul(wide(y.load(p, at)), of_row(ctx, inverse, at));
            return ir::mul(e, wide(ctx.in(5).load(p, at.last(2))));
          })};
}

} // namespace

void register_hyper_connection(Registry& r) {
  const char* const domain = "com.microsoft";
  r.add("GatedRMSNorm", since(1), gated_rms_norm, domain);
  r.add("BranchwiseRMSNorm", since(1), branchwise_rms_norm, domain);
  r.add("GatedAdd", since(1), gated_add, domain);
  r.add("LinearAttentionGate", since(1), linear_attention_gate, domain);
  r.add("ScaledSiLU", since(1), scaled_silu, domain);
  r.add("HyperConnectionPreMix", since(1), pre_mix, domain);
  r.add("HyperConnectionPostMix", since(1), post_mix, domain);
  r.add("EngramGate", since(1), engram_gate, domain);
  r.type_from(0,
              {"GatedRMSNorm", "BranchwiseRMSNorm", "GatedAdd", "LinearAttentionGate", "ScaledSiLU",
               "HyperConnectionPreMix", "HyperConnectionPostMix", "EngramGate"},
              domain);
}

} // namespace tbx::lowering
