// Attention as one extern call; what fusion/passes/fuse_attention.cpp makes.
#include "lowering/op_helpers.h"
#include "lowering/ops/families.h"
#include "lowering/ops/products.h"

namespace tbx::lowering {
namespace {

/// Inputs q [(B,) H, S, D], k transposed [(B,) H, D, T], v [(B,) H, T, Dv], and a mask to be added that
/// broadcasts to [(B,) H, S, T]; all f32.
std::vector<LoweredValue> fused_attention(OpContext& ctx) {
  int rank = ctx.rank(0);
  auto four = [&](TensorBox x) {
    std::vector<int> axes;
    for (int k = x.rank(); k < 4; ++k) axes.push_back(k - x.rank());
    return axes.empty() ? x : ir::unsqueeze(ctx.program, x, axes);
  };
  std::vector<int> last_swapped{0, 1, 3, 2}, heads_swapped{0, 2, 1, 3};
  TensorBox q = four(ctx.in(0)), k = ir::permute(ctx.program, four(ctx.in(1)), last_swapped),
            v = four(ctx.in(2));

  extern_kernels::AttentionProblem problem;
  problem.scale = ctx.attr_float("scale", 1);
  problem.zero_undefined_rows = ctx.attr_int("zero_undefined_rows", 0) != 0;
  problem.has_mask = ctx.has(3);
  // Whatever follows joins the heads of a token again: so they lie side by side.
  problem.tokens_first = true;
  ir::ExternCall call;
  for (const TensorBox& x : {q, k, v})
    call.inputs.push_back(operand_of(ir::realize_strided(ctx.program, x, "operand of attention")));
  if (problem.has_mask)
    call.inputs.push_back(operand_of(ir::realize_strided(ctx.program, four(ctx.in(3)), "mask of attention")));
  call.problem = problem;
  SymInts sizes = {q.sizes()[0], q.sizes()[2], q.sizes()[1], v.sizes()[3]};
  ir::BufferId out = ctx.program.new_buffer("", DType::f32, sizes);
  call.outputs = {out};
  ctx.program.operations.push_back({std::move(call), {}, "attention"});
  TensorBox y = ir::permute(ctx.program, ir::make_buffer_box(ctx.program, out), heads_swapped);
  return {rank == 3 ? ir::squeeze(ctx.program, y, std::vector<int>{0}) : y};
}

} // namespace

void register_attention(Registry& r) { r.add("FusedAttention", since(1), fused_attention, "tensorbox"); }

} // namespace tbx::lowering
