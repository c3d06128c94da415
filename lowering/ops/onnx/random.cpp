// Random numbers from a counter-based generator: an element's value depends on the seed of the draw and its
// position only. Every execution of a node is a draw, whose seed a step of the plan brings.
#include <bit>
#include <numbers>

#include "graph/node_attributes.h"
#include "lowering/op_helpers.h"
#include "lowering/ops/families.h"
#include "lowering/ops/host_call.h"

namespace tbx::lowering {
namespace {

/// The bits of the attribute, which is a float, or an integer in Dropout.
std::optional<int64_t> seed_attribute(const OpContext& ctx) {
  if (!ctx.has_attr("seed")) return std::nullopt;
  if (const auto* integer = find_attribute<int64_t>(ctx.node, "seed")) return *integer;
  return static_cast<int64_t>(std::bit_cast<uint32_t>(ctx.attr_float("seed", 0)));
}

/// A number that stays the same in all programs that are made of the node.
int64_t stream_of(const OpContext& ctx) {
  uint64_t hash = 14695981039346656037ull;
  for (char ch : ctx.graph.at(ctx.node.outputs.at(0)).name)
    hash = (hash ^ static_cast<uint8_t>(ch)) * 1099511628211ull;
  return static_cast<int64_t>(hash);
}

SymInt linear(std::span<const SymInt> at, const SymInts& sizes) {
  SymInt out = 0;
  for (size_t d = 0; d < at.size(); ++d) out = out * sizes[d] + at[d];
  return out;
}

/// The numbers of one draw.
class Draw {
public:
  explicit Draw(OpContext& ctx) : ctx_(ctx) {
    extern_kernels::Attributes attributes = {{"stream", stream_of(ctx)}};
    if (auto seed = seed_attribute(ctx)) attributes["seed"] = *seed;
    extern_kernels::HostProblem problem{"tensorbox",           "RandomSeed", 1,
                                        std::move(attributes), {DType::i64}, nullptr};
    ir::ExternCall call;
    call.outputs = {ctx.program.new_buffer("", DType::i64, {1})};
    call.problem = std::move(problem);
    seed_ = ir::make_buffer_box(ctx.program, call.outputs[0]);
    ctx.program.operations.push_back({std::move(call), {}, "host kernel"});
  }

  /// Uniform in [0, 1).
  Expr uniform(SymInt position) const {
    const SymInt first[] = {0};
    return ir::binary(Op::random, seed_->load(ctx_.program, first), ctx_.c.index(position));
  }

  /// Standard normal (Box and Muller) from two uniform numbers.
  Expr normal(SymInt position) const {
    Expr u = uniform(position * 2), v = uniform(position * 2 + 1);
    Expr radius = ir::unary(Op::sqrt, ir::mul(number(u, -2), ir::unary(Op::log, ir::sub(number(u, 1), u))));
    return ir::mul(radius, ir::unary(Op::cos, ir::mul(v, number(v, 2 * std::numbers::pi))));
  }

private:
  OpContext& ctx_;
  std::optional<TensorBox> seed_;
};

LowerFn random(bool is_normal, bool like) {
  return [=](OpContext& ctx) -> std::vector<LoweredValue> {
    SymInts sizes;
    if (like)
      sizes = ctx.sizes(0);
    else
      for (int64_t d : ctx.attr_ints("shape")) {
        TBX_MODEL(d >= 0, "size {} is negative", d);
        sizes.push_back(d);
      }
    DType type = ctx.attr_dtype("dtype", like ? ctx.dtype(0) : DType::f32);
    TBX_MODEL(is_float(type), "random numbers of type {}", name_of(type));
    double offset = is_normal ? ctx.attr_float("mean", 0) : ctx.attr_float("low", 0);
    double scale = is_normal ? ctx.attr_float("scale", 1) : ctx.attr_float("high", 1) - offset;
    const Draw draw(ctx);
    TensorBox out = generate(ctx, type, sizes, [&](std::span<const SymInt> at) {
      SymInt position = linear(at, sizes);
      Expr e = is_normal ? draw.normal(position) : draw.uniform(position);
      return ir::add(number(e, offset), ir::mul(e, number(e, scale)));
    });
    realize(ctx, out, "random numbers");
    return {out};
  };
}

std::vector<LoweredValue> lower_bernoulli(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  const Draw draw(ctx);
  TensorBox out =
      generate(ctx, ctx.attr_dtype("dtype", x.dtype()), x.sizes(), [&](std::span<const SymInt> at) {
        Expr u = draw.uniform(linear(at, x.sizes()));
        return ir::binary(Op::less, u, to_compute(x.load(ctx.program, at), u->dtype));
      });
  realize(ctx, out, "random numbers");
  return {out};
}

/// Draws classes by inverting the running sum of exp(log probabilities) of each row.
std::vector<LoweredValue> lower_multinomial(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  TBX_MODEL(x.rank() == 2, "input of rank {}", x.rank());
  int64_t samples = ctx.attr_int("sample_size", 1);
  TBX_MODEL(samples >= 0, "sample_size is {}", samples);
  DType type = ctx.attr_dtype("dtype", DType::i32);
  AxisReducer over_classes(ctx, x.sizes(), {1});
  TensorBox greatest = over_classes(ReduceOp::max, compute_type(x.dtype()), x);
  TensorBox weight = map(ctx, DType::f32, x, greatest, [](Expr v, Expr m) {
    return ir::unary(Op::exp, to_compute(ir::sub(v, to_compute(m, v->dtype)), DType::f32));
  });
  SymInts at = loop_vars(ctx.c, 2);
  TensorBox running = ir::make_scan(ctx.program, ReduceOp::sum, DType::f32, x.sizes(), 1, false, false,
                                    weight.load(ctx.program, at));
  SymInt classes = x.sizes()[1];
  SymInts space = {x.sizes()[0], samples, classes};
  AxisReducer reduce(ctx, space, {2});
  const Draw draw(ctx);
  TensorBox below = reduce(ReduceOp::sum, DType::i64, [&](std::span<const SymInt> i) {
    const SymInt here[] = {i[0], i[2]}, last[] = {i[0], classes - 1};
    Expr total = running.load(ctx.program, last);
    Expr target = ir::mul(draw.uniform(i[0] * samples + i[1]), total);
    return to_compute(ir::binary(Op::less_equal, running.load(ctx.program, here), target), DType::i64);
  });
  TensorBox out = map(ctx, type, reduce.drop(below), [&](Expr n) {
    return to_compute(ir::binary(Op::min, n, ctx.c.index(classes - 1)), type);
  });
  realize(ctx, out, "random numbers");
  return {out};
}

// --- Dropout

TensorBox keep_all(OpContext& ctx, DType type, const SymInts& sizes) { return full(ctx, type, sizes, 1); }

std::vector<LoweredValue> lower_dropout(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  DType mask_type = ctx.opset() < 10 ? x.dtype() : DType::boolean;
  bool training = false;
  if (ctx.opset() >= 12) {
    training = ctx.has(2) && ctx.int_or_throw(2, "training_mode") != 0;
  } else if (ctx.opset() < 7) {
    training = ctx.attr_int("is_test", 0) == 0 && ctx.wants(1);
  }
  auto ratio = ctx.opset() >= 12 ? ctx.constant(1) : nullptr;
  if (!training || (ratio && element_as_double(*ratio, 0) == 0))
    return {x, keep_all(ctx, mask_type, x.sizes())};
  auto drop_ratio = [&](DType type) {
    if (ctx.opset() < 12) return ctx.c.constant(type, ctx.attr_float("ratio", 0.5f));
    if (!ctx.has(1)) return ctx.c.constant(type, 0.5);
    return to_compute(ir::reshape(ctx.program, ctx.in(1), {}).load(ctx.program, {}), type);
  };
  const Draw draw(ctx);
  TensorBox mask = generate(ctx, DType::boolean, x.sizes(), [&](std::span<const SymInt> at) {
    Expr u = draw.uniform(linear(at, x.sizes()));
    return ir::binary(Op::greater_equal, u, drop_ratio(u->dtype));
  });
  realize(ctx, mask, "random numbers");
  TensorBox y = map(ctx, x.dtype(), x, mask, [&](Expr e, Expr keep) {
    Expr scale = ir::sub(number(e, 1), drop_ratio(e->dtype));
    return ir::where(keep, ir::div(e, scale), number(e, 0));
  });
  return {y, convert(ctx, mask, mask_type)};
}

} // namespace

void register_random(Registry& r) {
  r.add("RandomUniform", since(1), random(false, false));
  r.add("RandomUniformLike", since(1), random(false, true));
  r.add("RandomNormal", since(1), random(true, false));
  r.add("RandomNormalLike", since(1), random(true, true));
  r.add("Bernoulli", since(15), lower_bernoulli);
  r.add("Multinomial", since(7), lower_multinomial);
  r.add("Dropout", since(1), lower_dropout);
  r.mark(Trait::random, {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
                         "Bernoulli", "Multinomial", "Dropout"});
  r.mark(Trait::reads_shape, {"RandomNormalLike", "RandomUniformLike"});
}

} // namespace tbx::lowering
