// com.microsoft MoE and QMoE: every token goes through the k of all experts that its router prefers, two
// layers with an activation between them, and gets the weighted sum of what they give. Routing, activation
// and sum are loop nests; the products with the chosen matrices are a kernel (extern_kernels/moe/).
#include <limits>

#include "ir/activations.h"
#include "lowering/ops/attention_core.h"
#include "lowering/ops/families.h"
#include "lowering/ops/host_call.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

/// Inputs of one layer; -1: the operator has none.
struct Layer {
  int weights, bias, scales = -1, zeros = -1;
  int64_t bits = 0; ///< 0: floats
};

struct Form {
  bool quantized;
  int64_t k, block = 0;
  bool rounds = false; ///< what goes in may be rounded to 8 bits by blocks
  std::string activation;
  bool gated; ///< fc1 gives gate and value in one
  int fusion; ///< of the SwiGLU: 1 interleaved, 2 one behind the other
  float alpha, beta, limit;
  Layer fc1, fc2, fc3;
};

int64_t bits_of_layer(OpContext& ctx, const char* name) {
  const int64_t bits = ctx.attr_int(name, ctx.attr_int("expert_weight_bits", 4));
  TBX_MODEL(bits == 2 || bits == 4 || bits == 8, "{} is {}, expected 2, 4 or 8", name, bits);
  return bits;
}

Form form_of(OpContext& ctx) {
  Form f;
  f.quantized = ctx.node.op_type == "QMoE";
  f.k = ctx.attr_int("k", 1);
  TBX_MODEL(f.k >= 1, "k is {}", f.k);
  f.activation = ctx.attr_string("activation_type", "relu");
  bool swiglu = f.activation == "swiglu";
  TBX_MODEL(swiglu || f.activation == "relu" || f.activation == "gelu" || f.activation == "silu" ||
                f.activation == "identity",
            "activation_type is '{}', expected relu, gelu, silu, swiglu or identity", f.activation);
  const int64_t fusion = ctx.attr_int("swiglu_fusion", 0);
  TBX_MODEL(fusion >= 0 && fusion <= 2, "swiglu_fusion is {}, expected 0, 1 or 2", fusion);
  f.fusion = static_cast<int>(fusion);
  f.gated = swiglu && f.fusion != 0;
  f.alpha = ctx.attr_float("activation_alpha", 1);
  f.beta = ctx.attr_float("activation_beta", 0);
  f.limit = ctx.attr_float("swiglu_limit", std::numeric_limits<float>::infinity());
  TBX_MODEL(ctx.attr_int("use_sparse_mixer", 0) == 0 || f.k == 2, "the sparse mixer needs k = 2, k is {}",
            f.k);
  f.fc1 = {2, 3};
  f.fc2 = {4, 5};
  f.fc3 = {6, 7};
  if (f.quantized) {
    f.fc1 = {2, 4, 3, 11, bits_of_layer(ctx, "fc1_expert_weight_bits")};
    f.fc2 = {5, 7, 6, 12, bits_of_layer(ctx, "fc2_expert_weight_bits")};
    f.fc3 = {8, 10, 9, 13, bits_of_layer(ctx, "fc3_expert_weight_bits")};
    f.block = ctx.attr_int("block_size", 0);
    TBX_MODEL(f.block == 0 || (f.block >= 16 && f.block <= (1 << 30) && (f.block & (f.block - 1)) == 0),
              "block_size is {}, expected a power of two of at least 16", f.block);
    f.rounds = f.block != 0 && ctx.attr_int("accuracy_level", 0) == 4;
    const std::string type = ctx.attr_string("quant_type", "int");
    if (type != "int") throw_unsupported("quant_type '{}': experts are read as integers ('int') only", type);
    if (ctx.attr_int("weights_prepacked", -1) > 0)
      throw_unsupported("weights_prepacked {}: only plain weights are read",
                        ctx.attr_int("weights_prepacked", -1));
  }
  TBX_MODEL(!f.gated || !ctx.has(f.fc3.weights), "fc3_experts_weights beside a fused SwiGLU");
  TBX_MODEL(!swiglu || f.gated || ctx.has(f.fc3.weights),
            "activation_type swiglu needs fc3_experts_weights, or swiglu_fusion 1 or 2");
  TBX_MODEL(ctx.has(f.fc3.weights) || !ctx.has(f.fc3.bias), "fc3_experts_bias without fc3_experts_weights");
  return f;
}

/// x [rows, in] through the matrices of `chosen` [rows, choices] -> [rows, choices, out], f32.
TensorBox through(OpContext& ctx, const Form& f, const Layer& layer, const std::string& name,
                  const TensorBox& x, const TensorBox& chosen, SymInt experts, SymInt out) {
  ir::Program& p = ctx.program;
  TBX_MODEL(ctx.has(layer.weights), "{}_experts_weights are missing", name);
  const TensorBox& w = ctx.in(layer.weights);
  TBX_MODEL(w.rank() == 3, "{}_experts_weights have rank {}, expected 3", name, w.rank());
  TBX_MODEL(f.quantized ? w.dtype() == DType::u8
                        : w.dtype() == DType::f32 || w.dtype() == DType::f16 || w.dtype() == DType::bf16,
            "{}_experts_weights are of type {}", name, name_of(w.dtype()));
  auto check = [&](const TensorBox& t, int dimension, SymInt want, const char* what) {
    require_equal(ctx, t.sizes()[dimension], want, fmt::format("sizes of {}_experts_{}", name, what));
  };
  const SymInt in = x.sizes()[1];
  check(w, 0, experts, "weights and the experts of router_probs");
  check(w, 1, out, "weights and the layer's result");
  require_equal(ctx, layer.bits ? w.sizes()[2] * SymInt(8) : w.sizes()[2],
                layer.bits ? in * SymInt(layer.bits) : in,
                "rows of " + name + "_experts_weights and of its input");
  std::vector<std::optional<TensorBox>> inputs{x, chosen, w, std::nullopt, std::nullopt, std::nullopt};
  if (ctx.has(layer.bias)) {
    const TensorBox& b = ctx.in(layer.bias);
    TBX_MODEL(b.rank() == 2 && is_float(b.dtype()),
              "{}_experts_bias is {} of rank {}, expected floats of rank 2", name, name_of(b.dtype()),
              b.rank());
    check(b, 0, experts, "bias and the experts");
    check(b, 1, out, "bias and the layer's result");
    inputs[3] = convert(ctx, b, DType::f32);
  }
  if (f.quantized) {
    p.add_check(in - SymInt(1), false, ctx.node.op_type + ": the input of " + name + " has no elements");
    if (f.block)
      p.add_check(ir::mod(in, f.block), true,
                  ctx.node.op_type + ": block_size does not divide the rows of " + name);
    const SymInt blocks = f.block ? ir::floordiv(in, f.block) : SymInt(1);
    const int rank = f.block ? 3 : 2;
    TBX_MODEL(ctx.has(layer.scales), "{}_scales are missing", name);
    const TensorBox& s = ctx.in(layer.scales);
    TBX_MODEL(s.rank() == rank && is_float(s.dtype()),
              "{}_scales are {} of rank {}, expected floats of rank {}", name, name_of(s.dtype()), s.rank(),
              rank);
    check(s, 0, experts, "scales and the experts");
    check(s, 1, out, "scales and the layer's result");
    if (f.block) check(s, 2, blocks, "scales and the blocks of a row");
    inputs[4] = s;
    if (ctx.has(layer.zeros)) {
      const TensorBox& z = ctx.in(layer.zeros);
      TBX_MODEL(z.rank() == rank && z.dtype() == DType::u8,
                "{}_zero_points are {} of rank {}, expected uint8 of rank {}", name, name_of(z.dtype()),
                z.rank(), rank);
      auto bytes = [&](SymInt n) { return ir::floordiv(n * SymInt(layer.bits) + SymInt(7), 8); };
      check(z, 0, experts, "zero_points and the experts");
      if (f.block) check(z, 1, out, "zero_points and the layer's result");
      check(z, rank - 1, bytes(f.block ? blocks : out), "zero_points and what they belong to");
      inputs[5] = z;
    }
  }
  const extern_kernels::ExpertsProblem products{static_cast<int>(layer.bits), f.block, f.rounds};
  return typed_call(ctx, inputs, {{DType::f32, {x.sizes()[0], chosen.sizes()[1], out}}}, products)
      .at(0)
      .tensor;
}

Expr activated(const Form& f, Expr e) {
  if (f.activation == "relu") return ir::relu(e);
  if (f.activation == "gelu") return ir::gelu_tanh(e);
  if (f.activation == "silu") return ir::silu(e);
  return e;
}

/// gate * sigmoid(alpha * gate) * (value + beta), both clamped.
Expr swiglu(const Form& f, Expr gate, Expr value) {
  if (f.limit < std::numeric_limits<float>::infinity()) {
    Expr limit = number(gate, f.limit);
    gate = ir::binary(Op::min, gate, limit);
    value = ir::binary(Op::max, ir::binary(Op::min, value, limit), number(gate, -f.limit));
  }
  return ir::mul(ir::silu(gate, f.alpha), ir::add(value, number(value, f.beta)));
}

/// Which experts each token goes through, and how much each counts: [tokens, k], i64 and f32.
struct Routes {
  TensorBox chosen, weights;
};

Routes route(OpContext& ctx, const Form& f, const TensorBox& router) {
  ir::Program& p = ctx.program;
  const SymInt tokens = router.sizes()[0], experts = router.sizes()[1];
  TBX_MODEL(!experts.is_constant() || f.k <= experts.constant(), "k is {} for {} experts", f.k,
            experts.constant());
  // Of equal ones the last is preferred, TopK prefers the first.
  TensorBox reversed = ir::slice(p, router, 1, experts - SymInt(1), -1, experts);
  Values top = lower_as(
      ctx, "TopK", 11, {reversed, std::make_shared<const Tensor>(Tensor::of_ints(std::vector<int64_t>{f.k}))},
      {{"axis", int64_t{1}}});
  const TensorBox best = ctx.box(top[0]);
  Routes r;
  r.chosen = map(ctx, DType::i64, ctx.box(top[1]),
                 [&](Expr i) { return ir::sub(ctx.c.index(experts - SymInt(1)), i); });
  const bool normalize = ctx.attr_int("normalize_routing_weights", 0) != 0;
  AxisReducer over_chosen(ctx, best.sizes(), {1});
  auto shares = [&](const TensorBox& x, const TensorBox& sum) {
    return map(ctx, DType::f32, x, sum, [](Expr a, Expr b) { return ir::div(a, b); });
  };
  if (f.quantized && ctx.has(14)) {
    const TensorBox& given = ctx.in(14);
    TBX_MODEL(given.rank() == 2, "router_weights have rank {}, expected 2", given.rank());
    require_equal(ctx, given.sizes()[0], tokens, "tokens of router_weights and router_probs");
    require_equal(ctx, given.sizes()[1], experts, "experts of router_weights and router_probs");
    realize(ctx, r.chosen, "chosen experts");
    r.weights = generate(ctx, DType::f32, best.sizes(), [&](std::span<const SymInt> at) {
      const SymInt from[] = {at[0], ctx.c.indirect(r.chosen.load(p, at), experts, false)};
      return to_compute(given.load(p, from), DType::f32);
    });
    auto positive = [](Expr w) { // others do not count
      return ir::where(ir::binary(Op::greater, w, number(w, 1e-8)), w, number(w, 0));
    };
    if (normalize) {
      TensorBox sum = over_chosen(ReduceOp::sum, DType::f32, r.weights);
      r.weights = map(ctx, DType::f32, r.weights, sum, [&](Expr w, Expr all) {
        return ir::where(ir::binary(Op::equal, all, number(all, 0)), number(w, 0), ir::div(w, all));
      });
    }
    r.weights = map(ctx, DType::f32, r.weights, positive);
    return r;
  }
  // The softmax over all experts, or over the chosen ones: the greatest is the first of those.
  const TensorBox greatest = ir::slice(p, best, 1, 0, 1, 1);
  auto exponentials = [&](const TensorBox& x) {
    return map(ctx, DType::f32, x, greatest,
               [](Expr a, Expr b) { return ir::unary(Op::exp, ir::sub(a, b)); });
  };
  // QMoE has the latter only.
  TensorBox all = exponentials(normalize || f.quantized ? best : router);
  AxisReducer over_all(ctx, all.sizes(), {1});
  r.weights = shares(exponentials(best), over_all(ReduceOp::sum, DType::f32, all));
  return r;
}

Values mixture(OpContext& ctx) {
  ir::Program& p = ctx.program;
  const Form f = form_of(ctx);
  const TensorBox &x = ctx.in(0), &probabilities = ctx.in(1);
  TBX_MODEL((x.rank() == 2 || x.rank() == 3) && is_float(x.dtype()),
            "input is {} of rank {}, expected floats of rank 2 or 3", name_of(x.dtype()), x.rank());
  TBX_MODEL(probabilities.rank() == 2 && is_float(probabilities.dtype()),
            "router_probs is {} of rank {}, expected floats of rank 2", name_of(probabilities.dtype()),
            probabilities.rank());
  const SymInt hidden = x.sizes().back();
  const SymInt tokens = ir::product(std::span<const SymInt>(x.sizes().data(), x.sizes().size() - 1));
  require_equal(ctx, probabilities.sizes()[0], tokens, "tokens of router_probs and input");
  const SymInt experts = probabilities.sizes()[1];
  TBX_MODEL(ctx.has(f.fc2.weights) && ctx.rank(f.fc2.weights) == 3,
            "fc2_experts_weights are missing, or not of rank 3");
  const SymInt stored = ctx.sizes(f.fc2.weights)[2];
  const SymInt inter = f.quantized ? ir::floordiv(stored * SymInt(8), f.fc2.bits) : stored;

  TensorBox rows = ir::reshape(p, convert(ctx, x, DType::f32), {tokens, hidden});
  Routes routes = route(ctx, f, convert(ctx, probabilities, DType::f32));
  realize(ctx, rows, "read by several layers");
  realize(ctx, routes.chosen, "read by several layers");
  const SymInts between{tokens, f.k, inter};
  TensorBox h =
      through(ctx, f, f.fc1, "fc1", rows, routes.chosen, experts, f.gated ? inter * SymInt(2) : inter);
  if (f.gated) {
    TensorBox joined = h;
    h = generate(ctx, DType::f32, between, [&](std::span<const SymInt> at) {
      const bool interleaved = f.fusion == 1;
      const SymInt gate[] = {at[0], at[1], interleaved ? at[2] * SymInt(2) : at[2]};
      const SymInt value[] = {at[0], at[1], interleaved ? at[2] * SymInt(2) + SymInt(1) : at[2] + inter};
      return swiglu(f, joined.load(p, gate), joined.load(p, value));
    });
  } else if (ctx.has(f.fc3.weights)) {
    TensorBox value = through(ctx, f, f.fc3, "fc3", rows, routes.chosen, experts, inter);
    h = map(ctx, DType::f32, h, value, [&](Expr a, Expr b) {
      return f.activation == "swiglu" ? swiglu(f, a, b) : ir::mul(activated(f, a), b);
    });
  } else {
    h = map(ctx, DType::f32, h, [&](Expr e) { return activated(f, e); });
  }
  const SymInt pairs = tokens * SymInt(f.k);
  TensorBox made = through(ctx, f, f.fc2, "fc2", ir::reshape(p, h, {pairs, inter}),
                           ir::reshape(p, routes.chosen, {pairs, 1}), experts, hidden);
  made = ir::reshape(p, made, {tokens, f.k, hidden});
  realize(ctx, routes.weights, "weights of a token's experts");
  AxisReducer reduce(ctx, made.sizes(), {1});
  TensorBox y = reduce.drop(reduce(ReduceOp::sum, DType::f32, [&](std::span<const SymInt> at) {
    return ir::mul(routes.weights.load(p, at.first(2)), made.load(p, at));
  }));
  return {convert(ctx, ir::reshape(p, y, x.sizes()), x.dtype())};
}

} // namespace

void register_moe(Registry& r) {
  r.add("MoE", since(1), mixture, "com.microsoft");
  r.add("QMoE", since(1), mixture, "com.microsoft");
  r.type_from(0, {"MoE", "QMoE"}, "com.microsoft");
}

} // namespace tbx::lowering
