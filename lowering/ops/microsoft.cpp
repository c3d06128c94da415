// com.microsoft operators that are forms of ai.onnx ones, and small ones of its own.
#include <algorithm>
#include <numeric>

#include "lowering/ops/families.h"
#include "lowering/ops/host_call.h"
#include "lowering/realize_policy.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;
using Attributes = std::map<std::string, Attribute>;

/// Lowers the node as if it were this operator of ai.onnx, with its own inputs.
Values as_onnx(OpContext& ctx, const char* op, int opset, Attributes attributes) {
  Node node = ctx.node;
  node.op_type = op;
  node.domain.clear();
  node.opset = opset;
  node.attributes = std::move(attributes);
  Values inputs;
  for (int i = 0; i < ctx.num_inputs(); ++i) inputs.push_back(ctx.value(i));
  OpContext as(ctx.program, ctx.graph, node, std::move(inputs), ctx.pool, ctx.lower_subgraph);
  return Registry::instance().find("", op, opset)->lower(as);
}

LowerFn same_as(const char* op, int opset) {
  return [=](OpContext& ctx) {
    TBX_MODEL(ctx.has(0), "input 0 is missing");
    return as_onnx(ctx, op, opset, ctx.node.attributes);
  };
}

/// delta is 1 where it is not given.
Values range(OpContext& ctx) {
  for (int i : {0, 1}) TBX_MODEL(ctx.has(i), "input {} is missing", i);
  if (ctx.has(2)) return as_onnx(ctx, "Range", 11, {});
  DType type = ctx.dtype(0);
  Tensor one = Tensor::make(type, {});
  switch (type) {
  case DType::f32: one.as_mutable<float>()[0] = 1; break;
  case DType::f64: one.as_mutable<double>()[0] = 1; break;
  case DType::i16: one.as_mutable<int16_t>()[0] = 1; break;
  case DType::i32: one.as_mutable<int32_t>()[0] = 1; break;
  case DType::i64: one.as_mutable<int64_t>()[0] = 1; break;
  default: throw_model_error("start is of type {}", name_of(type));
  }
  Node node = ctx.node;
  node.op_type = "Range";
  node.domain.clear();
  node.opset = 11;
  node.inputs.resize(3, -1);
  OpContext as(ctx.program, ctx.graph, node,
               {ctx.value(0), ctx.value(1), std::make_shared<const Tensor>(std::move(one))}, ctx.pool,
               ctx.lower_subgraph);
  return Registry::instance().find("", "Range", 11)->lower(as);
}

/// Values in the order of their first occurrence, where each element went, and counts.
Values unique(OpContext& ctx) {
  TBX_MODEL(ctx.rank(0) == 1, "x has rank {}, expected 1", ctx.rank(0));
  Values y = as_onnx(ctx, "Unique", 11, {{"sorted", int64_t{0}}});
  return {y[0], y[2], y[3]};
}

Values expand_dims(OpContext& ctx) {
  std::vector<int64_t> axis = ctx.ints_or_throw(1, "axis");
  TBX_MODEL(axis.size() == 1, "axis has {} elements, expected 1", axis.size());
  const TensorBox& x = ctx.in(0);
  return {ir::unsqueeze(ctx.program, x, std::vector<int>{ctx.axis(axis[0], x.rank() + 1)})};
}

Values torch_embedding(OpContext& ctx) {
  for (int i : {0, 1}) TBX_MODEL(ctx.has(i), "input {} is missing", i);
  TBX_MODEL(ctx.has(0) && ctx.has(1), "weight or indices are missing");
  return lower_as(ctx, "Gather", 13, {ctx.value(0), ctx.value(1)}, {{"axis", int64_t{0}}});
}

/// One boolean over all inputs.
Values is_all_finite(OpContext& ctx) {
  bool nan_only = ctx.attr_int("isnan_only", 0) != 0, inf_only = ctx.attr_int("isinf_only", 0) != 0;
  TBX_MODEL(!(nan_only && inf_only), "isnan_only and isinf_only exclude each other");
  TensorBox all;
  for (int i = 0; i < ctx.num_inputs(); ++i) {
    const TensorBox& x = ctx.in(i);
    AxisReducer reduce(ctx, x.sizes(), axes_from(0, x.rank()));
    auto good = [&](Expr e) {
      Expr nan = ir::unary(Op::is_nan, e), inf = ir::unary(Op::is_inf, e);
      return ir::unary(Op::logical_not, nan_only   ? nan
                                        : inf_only ? inf
                                                   : ir::binary(Op::logical_or, nan, inf));
    };
    TensorBox one = x.rank() == 0 ? map(ctx, DType::boolean, x, good)
                                  : reduce.drop(reduce(ReduceOp::all, DType::boolean, x, good));
    all = all.defined() ? map(ctx, DType::boolean, all, one,
                              [](Expr a, Expr b) { return ir::binary(Op::logical_and, a, b); })
                        : one;
  }
  TBX_MODEL(all.defined(), "no inputs");
  return {all};
}

/// Distances between the rows of A [m, n] and of B [k, n].
Values cdist(OpContext& ctx) {
  const TensorBox &a = ctx.in(0), &b = ctx.in(1);
  std::string metric = ctx.attr_string("metric", "sqeuclidean");
  if (metric != "sqeuclidean" && metric != "euclidean") throw_unsupported("metric '{}'", metric);
  TBX_MODEL(a.rank() == 2 && b.rank() == 2, "A and B have ranks {} and {}, expected 2", a.rank(), b.rank());
  ctx.program.add_check(a.sizes()[1] - b.sizes()[1], true, "CDist: rows of A and B differ in length");
  SymInts space{a.sizes()[0], b.sizes()[0], a.sizes()[1]};
  realize_if_repeated(ctx.program, a, space);
  realize_if_repeated(ctx.program, b, space);
  AxisReducer reduce(ctx, space, {2});
  TensorBox sum = reduce.drop(reduce(ReduceOp::sum, a.dtype(), [&](std::span<const SymInt> at) {
    const SymInt row_a[] = {at[0], at[2]}, row_b[] = {at[1], at[2]};
    Expr d = ir::sub(a.load(ctx.program, row_a), b.load(ctx.program, row_b));
    return ir::mul(d, d);
  }));
  if (metric == "sqeuclidean") return {sum};
  return {map(ctx, a.dtype(), sum, [](Expr e) { return ir::unary(Op::sqrt, e); })};
}

/// Pairs (real, imaginary) along the last dimension; B may be conjugated.
LowerFn complex_mul(bool conjugate) {
  return [conjugate](OpContext& ctx) -> Values {
    const TensorBox &a = ctx.in(0), &b = ctx.in(1);
    for (const TensorBox* x : {&a, &b}) {
      TBX_MODEL(x->rank() >= 1, "an operand has rank 0");
      ctx.program.add_check(x->sizes().back() - SymInt(2), true,
                            ctx.node.op_type + ": the last dimension is not 2");
    }
    auto part = [&](const TensorBox& x, int k) { return ir::slice(ctx.program, x, x.rank() - 1, k, 1, 1); };
    const TensorBox xs[] = {part(a, 0), part(a, 1), part(b, 0), part(b, 1)};
    DType type = compute_type(a.dtype());
    auto sign = [&](Expr e) { return conjugate ? ir::unary(Op::neg, e) : e; };
    TensorBox real = map(ctx, type, xs, [&](std::span<const Expr> v) {
      return ir::sub(ir::mul(v[0], v[2]), ir::mul(v[1], sign(v[3])));
    });
    TensorBox imaginary = map(ctx, type, xs, [&](std::span<const Expr> v) {
      return ir::add(ir::mul(v[0], sign(v[3])), ir::mul(v[1], v[2]));
    });
    SymInts sizes = real.sizes();
    sizes.back() = 2;
    return {generate(ctx, a.dtype(), sizes, [&](std::span<const SymInt> at) {
      SymInts from(at.begin(), at.end());
      from.back() = 0;
      Expr first = ir::binary(Op::equal, ctx.c.index(at.back()), ctx.c.constant_int(DType::i64, 0));
      return ir::where(first, real.load(ctx.program, from), imaginary.load(ctx.program, from));
    })};
  };
}

// --- Fourier transforms of one to three trailing dimensions

TensorBox dft(OpContext& ctx, const TensorBox& x, int axis, bool inverse, bool onesided) {
  return ctx.box(
      lower_as(ctx, "DFT", 17, {x},
               {{"axis", int64_t{axis}}, {"inverse", int64_t{inverse}}, {"onesided", int64_t{onesided}}})[0]);
}

int signal_dimensions(OpContext& ctx, int rank) {
  TBX_MODEL(ctx.attr_int("onesided", 1) == 1, "onesided must be 1");
  TBX_MODEL(ctx.attr_int("normalized", 0) == 0, "normalized must be 0");
  int64_t n = ctx.attr_int("signal_ndim", 1);
  TBX_MODEL(n >= 1 && n <= 3 && n <= rank, "signal_ndim is {} for data of rank {}", n, rank);
  return static_cast<int>(n);
}

/// x [..., n] -> [..., n / 2 + 1, 2]
Values rfft(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  int rank = x.rank(), n = signal_dimensions(ctx, rank);
  TensorBox y = dft(ctx, ir::unsqueeze(ctx.program, x, std::vector<int>{rank}), rank - 1, false, true);
  for (int k = 2; k <= n; ++k) y = dft(ctx, y, rank - k, false, false);
  return {y};
}

/// x [..., m, 2] -> [..., 2 * (m - 1)]
Values irfft(OpContext& ctx) {
  TensorBox x = ctx.in(0);
  int rank = x.rank() - 1;
  TBX_MODEL(rank >= 1, "the input has rank {}, expected at least 2", rank + 1);
  int n = signal_dimensions(ctx, rank);
  for (int k = n; k >= 2; --k) x = dft(ctx, x, rank - k, true, false);
  TensorBox y = dft(ctx, x, rank - 1, true, true);
  return {ir::squeeze(ctx.program, y, std::vector<int>{rank})};
}

// --- MurmurHash3 of numbers (MurmurHash3_x86_32 of their bytes)

Expr rotated(Expr x, int bits) {
  Expr left = ir::binary(Op::shift_left, x, number(x, bits));
  return ir::binary(Op::bitwise_or, left, ir::binary(Op::shift_right, x, number(x, 32 - bits)));
}

Expr mixed(Expr h, Expr block) {
  auto n = [&](uint32_t v) { return number(h, v); };
  Expr k = ir::mul(rotated(ir::mul(block, n(0xcc9e2d51)), 15), n(0x1b873593));
  h = rotated(ir::binary(Op::bitwise_xor, h, k), 13);
  return ir::add(ir::mul(h, n(5)), n(0xe6546b64));
}

Expr finished(Expr h) {
  auto n = [&](uint32_t v) { return number(h, v); };
  auto fold = [&](Expr e, int bits) {
    return ir::binary(Op::bitwise_xor, e, ir::binary(Op::shift_right, e, n(bits)));
  };
  h = ir::mul(fold(h, 16), n(0x85ebca6b));
  return fold(ir::mul(fold(h, 13), n(0xc2b2ae35)), 16);
}

Values murmur_hash3(OpContext& ctx) {
  DType from = ctx.dtype(0), to = ctx.attr_int("positive", 1) ? DType::u32 : DType::i32;
  int bits = bits_of(from);
  TBX_MODEL((is_integer(from) || is_float(from)) && (bits == 32 || bits == 64),
            "X is of type {}, expected a number of 32 or 64 bits", name_of(from));
  auto seed = static_cast<uint32_t>(ctx.attr_int("seed", 0));
  return {map(ctx, to, ctx.in(0), [&](Expr x) {
    Expr h = ctx.c.constant_int(DType::u32, seed);
    if (bits == 32) {
      h = mixed(h, ctx.c.bitcast(x, DType::u32));
    } else {
      Expr whole = ctx.c.bitcast(x, DType::u64);
      h = mixed(h, ctx.c.cast(ir::binary(Op::bitwise_and, whole, ctx.c.constant_int(DType::u64, 0xffffffff)),
                              DType::u32));
      h = mixed(
          h, ctx.c.cast(ir::binary(Op::shift_right, whole, ctx.c.constant_int(DType::u64, 32)), DType::u32));
    }
    h = finished(ir::binary(Op::bitwise_xor, h, ctx.c.constant_int(DType::u32, bits / 8)));
    return to == DType::u32 ? h : ctx.c.bitcast(h, DType::i32);
  })};
}

} // namespace

void register_microsoft(Registry& r) {
  const char* const domain = "com.microsoft";
  r.add("ExpandDims", since(1), expand_dims, domain);
  r.add("GatherND", since(1), same_as("GatherND", 12), domain);
  r.add("GridSample", since(1), same_as("GridSample", 16), domain);
  r.add("Pad", since(1), same_as("Pad", 13), domain);
  r.add("SampleOp", since(1), same_as("Identity", 1), domain);
  r.add("Range", since(1), range, domain);
  r.add("Unique", since(1), unique, domain);
  r.add("TorchEmbedding", since(1), torch_embedding, domain);
  r.add("IsAllFinite", since(1), is_all_finite, domain);
  r.add("CDist", since(1), cdist, domain);
  r.add("ComplexMul", since(1), complex_mul(false), domain);
  r.add("ComplexMulConj", since(1), complex_mul(true), domain);
  r.add("Rfft", since(1), rfft, domain);
  r.add("Irfft", since(1), irfft, domain);
  r.add("MurmurHash3", since(1), murmur_hash3, domain);
}

} // namespace tbx::lowering
