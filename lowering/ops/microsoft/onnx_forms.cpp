// com.microsoft operators that are forms of ai.onnx ones.
#include "lowering/op_helpers.h"
#include "lowering/ops/families.h"

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

} // namespace

void register_onnx_forms(Registry& r) {
  const char* const domain = "com.microsoft";
  r.add("ExpandDims", since(1), expand_dims, domain);
  r.add("GatherND", since(1), same_as("GatherND", 12), domain);
  r.add("GridSample", since(1), same_as("GridSample", 16), domain);
  r.add("Pad", since(1), same_as("Pad", 13), domain);
  r.add("SampleOp", since(1), same_as("Identity", 1), domain);
  r.add("Range", since(1), range, domain);
  r.add("Unique", since(1), unique, domain);
  r.add("TorchEmbedding", since(1), torch_embedding, domain);
  r.type_from(
      0, {"ExpandDims", "GatherND", "GridSample", "Pad", "SampleOp", "Range", "Unique", "TorchEmbedding"},
      domain);
  r.mark(Trait::selects, {"Unique"}, domain);
  r.need("GatherND", 1, index_tuple(), domain);
}

} // namespace tbx::lowering
