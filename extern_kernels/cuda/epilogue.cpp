#include "extern_kernels/cuda/epilogue.h"

#include <fmt/format.h>

#include <algorithm>

namespace tbx::extern_kernels::cuda {

namespace {

/// One value for each index along `axis`.
bool is_row(const OperandInfo& o, const OperandInfo& result, int axis) {
  if (o.sizes.size() == 1 && result.sizes.size() != 1) return o.sizes[0] == result.sizes[axis];
  if (o.sizes.size() != result.sizes.size()) return false;
  for (size_t d = 0; d < o.sizes.size(); ++d)
    if (o.sizes[d] != (static_cast<int>(d) == axis ? result.sizes[d] : 1)) return false;
  return true;
}

} // namespace

Epilogue epilogue_of(const std::vector<PostOp>& ops, int bias, std::span<const OperandInfo> inputs,
                     const OperandInfo& result, int axis) {
  Epilogue e;
  auto refuse = [&](std::string why) {
    e.refusal = std::move(why);
    return e;
  };
  auto add = [&](int operand, bool in_place) -> std::string {
    const OperandInfo& o = inputs[operand];
    if (o.dtype != result.dtype)
      return fmt::format("{} is added to {}", name_of(o.dtype), name_of(result.dtype));
    if (is_row(o, result, axis) && e.bias < 0 && !in_place) {
      e.bias = operand;
    } else if (o.sizes == result.sizes && e.residual < 0) {
      e.residual = operand;
      e.in_place = in_place;
    } else {
      return "more than one row and one whole tensor that are added";
    }
    return {};
  };
  if (bias >= 0)
    if (std::string why = add(bias, false); !why.empty()) return refuse(why);
  for (const PostOp& op : ops) {
    if (e.activation != Activation::none) return refuse("work behind an activation");
    switch (op.kind) {
    case PostOp::add:
    case PostOp::sum:
      if (std::string why = add(op.operand, op.kind == PostOp::sum); !why.empty()) return refuse(why);
      break;
    case PostOp::relu: e.activation = Activation::relu; break;
    case PostOp::gelu_tanh: e.activation = Activation::gelu; break;
    case PostOp::gelu_erf: e.activation = Activation::gelu_erf; break;
    default: return refuse("an activation other than Relu and GELU");
    }
  }
  return e;
}

} // namespace tbx::extern_kernels::cuda
