#include "lowering/complex.h"

#include <algorithm>
#include <cstring>

#include "graph/node_attributes.h"
#include "lowering/op_helpers.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;
using LowerReal = std::function<Values(const Node&, Values)>;

/// Each part of the result is the operator of that part of the inputs.
bool works_by_part(const Node& node) {
  if (!has(Trait::by_part, node) && (!has(Trait::moves, node) || has(Trait::selects, node))) return false;
  const std::string reduction = attribute_or<std::string>(node, "reduction", "none");
  return reduction == "none" || reduction == "add";
}

DType bit_cast_target(const Node& node) {
  const auto* number = find_attribute<int64_t>(node, "to");
  return number && has(Trait::recasts, node) ? static_cast<DType>(*number) : DType::undefined;
}

Values part_of(const Values& values, size_t part) {
  Values real = values;
  for (LoweredValue& v : real)
    if (v.parts) v = LoweredValue((*v.parts)[part]);
  return real;
}

Values by_part(const Node& node, const Values& inputs, const LowerReal& lower_real) {
  Values real = lower_real(node, part_of(inputs, 0)), imaginary = lower_real(node, part_of(inputs, 1)), out;
  for (size_t i = 0; i < real.size(); ++i) out.push_back(make_complex(real[i], imaginary.at(i)));
  return out;
}

/// Whole pairs are kept or left out, along an axis of the pairs' tensor.
Values by_pair(OpContext& ctx, const Values& inputs, const LowerReal& lower_real) {
  TensorBox pairs = to_pairs(ctx.program, ctx.pool, inputs[0]);
  const int rank = pairs.rank() - 1;
  Node node = ctx.node;
  if (ctx.has_attr("axis")) {
    node.attributes["axis"] = int64_t{ctx.axis(ctx.attr_int("axis", 0), rank)};
  } else {
    SymInt count = ir::product({pairs.sizes().begin(), pairs.sizes().end() - 1});
    pairs = ir::reshape(ctx.program, pairs, {count, 2});
    node.attributes["axis"] = int64_t{0};
  }
  Values real = inputs;
  real[0] = LoweredValue(pairs);
  Values out = lower_real(node, std::move(real));
  out.at(0) = from_pairs(ctx.program, ctx.box(out[0]));
  return out;
}

/// complex64 <-> numbers of 64 bits: the real part is the low half in memory.
Values bit_cast(OpContext& ctx, const LoweredValue& x, DType to, const LowerReal& lower_real) {
  if (x.dtype() == to) return {x};
  TBX_MODEL(bits_of(x.dtype()) == bits_of(to), "a bit cast from {} to {}", name_of(x.dtype()), name_of(to));
  ir::Context& c = ctx.c;
  auto as = [&](LoweredValue v, DType type) {
    if (v.dtype() == type) return v;
    Node node = ctx.node;
    node.attributes["to"] = static_cast<int64_t>(type);
    return lower_real(node, {std::move(v)}).at(0);
  };
  auto u64 = [&](int64_t v) { return c.constant_int(DType::u64, v); };
  if (x.parts) {
    TensorBox low = ctx.box(as((*x.parts)[0], DType::u32)), high = ctx.box(as((*x.parts)[1], DType::u32));
    TensorBox whole = map(ctx, DType::u64, low, high, [&](Expr l, Expr h) {
      return ir::binary(Op::bitwise_or, c.cast(l, DType::u64),
                        ir::binary(Op::shift_left, c.cast(h, DType::u64), u64(32)));
    });
    return {as(whole, to)};
  }
  TensorBox whole = ctx.box(as(x, DType::u64));
  auto half = [&](int64_t shift) {
    return as(map(ctx, DType::u32, whole,
                  [&](Expr e) { return c.cast(ir::binary(Op::shift_right, e, u64(shift)), DType::u32); }),
              DType::f32);
  };
  return {make_complex(half(0), half(32))};
}

} // namespace

DType part_type(DType complex) { return complex == DType::c128 ? DType::f64 : DType::f32; }

LoweredValue make_complex(LoweredValue real, LoweredValue imaginary) {
  LoweredValue v;
  v.parts = std::make_shared<const Values>(Values{std::move(real), std::move(imaginary)});
  return v;
}

LoweredValue complex_constant(const Tensor& t) {
  Values parts;
  const int64_t n = t.numel(), width = size_of(part_type(t.dtype));
  for (int64_t part = 0; part < 2; ++part) {
    Tensor half = Tensor::make(part_type(t.dtype), t.dims);
    for (int64_t i = 0; i < n; ++i)
      std::memcpy(half.mutable_data() + i * width, t.data + (2 * i + part) * width,
                  static_cast<size_t>(width));
    parts.emplace_back(std::make_shared<const Tensor>(std::move(half)));
  }
  return make_complex(parts[0], parts[1]);
}

LoweredValue from_pairs(ir::Program& program, const TensorBox& pairs) {
  SymInts sizes(pairs.sizes().begin(), pairs.sizes().end() - 1);
  auto part = [&](int64_t i) {
    SymInts at = loop_vars(*program.context, static_cast<int>(sizes.size()));
    at.emplace_back(i);
    return pairs.view(*program.context, sizes, at);
  };
  return make_complex(part(0), part(1));
}

TensorBox to_pairs(ir::Program& program, BoxPool& pool, const LoweredValue& complex) {
  ir::Context& c = *program.context;
  auto box = [&](const LoweredValue& v) { return v.tensor.defined() ? v.tensor : pool.box(program, v); };
  TensorBox real = box((*complex.parts)[0]), imaginary = box((*complex.parts)[1]);
  SymInts sizes = real.sizes(), at = loop_vars(c, real.rank());
  Expr is_real = ir::binary(Op::equal, c.index(c.var(real.rank())), c.constant_int(DType::i64, 0));
  Expr value = ir::where(is_real, real.load(program, at), imaginary.load(program, at));
  sizes.emplace_back(2);
  return ir::make_pointwise(program, real.dtype(), sizes, value);
}

bool is_complex_node(const Node& node, const Values& inputs) {
  if (is_complex(bit_cast_target(node))) return true;
  return !has(Trait::any_values, node) &&
         std::any_of(inputs.begin(), inputs.end(), [](const LoweredValue& v) { return v.parts != nullptr; });
}

Values lower_complex(OpContext& ctx, const LowerReal& lower_real) {
  const Node& node = ctx.node;
  Values inputs;
  for (int i = 0; i < ctx.num_inputs(); ++i) inputs.push_back(ctx.value(i));
  if (works_by_part(node)) return by_part(node, inputs, lower_real);
  if (has(Trait::reads_shape, node)) return lower_real(node, part_of(inputs, 0));
  if (bit_cast_target(node) != DType::undefined)
    return bit_cast(ctx, inputs.at(0), bit_cast_target(node), lower_real);
  if (has(Trait::by_pair, node) && inputs[0].parts) return by_pair(ctx, inputs, lower_real);
  if (has(Trait::tests, node)) {
    TensorBox real = ctx.box((*inputs[0].parts)[0]), imaginary = ctx.box((*inputs[0].parts)[1]);
    return lower_real(node, {map(ctx, DType::boolean, real, imaginary, [](Expr a, Expr b) {
                        return ir::binary(Op::logical_or, ir::binary(Op::not_equal, a, number(a, 0)),
                                          ir::binary(Op::not_equal, b, number(b, 0)));
                      })});
  }
  ask_for_run(fmt::format("operator {} of complex elements", node.op_type));
}

} // namespace tbx::lowering
