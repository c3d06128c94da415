#include "extern_kernels/catalogue.h"

namespace tbx::extern_kernels {

LayoutWish input_layout(const Problem& problem, int input, bool channels_last) {
  if (std::holds_alternative<ConvProblem>(problem)) {
    if (input == 0) return channels_last ? LayoutWish::channels_last : LayoutWish::row_major;
    return LayoutWish::any;
  }
  if (std::holds_alternative<MatMulProblem>(problem)) return input < 2 ? LayoutWish::matrix : LayoutWish::any;
  if (std::holds_alternative<AttentionProblem>(problem)) return LayoutWish::any;
  return LayoutWish::row_major;
}

LayoutWish output_layout(const Problem& problem, bool channels_last) {
  bool conv = std::holds_alternative<ConvProblem>(problem);
  return conv && channels_last ? LayoutWish::channels_last : LayoutWish::row_major;
}

std::string accepts_post_op(const Problem& problem, const PostOp& op, DType result, Spread operand) {
  bool product =
      std::holds_alternative<ConvProblem>(problem) || std::holds_alternative<MatMulProblem>(problem);
  if (!product) return name_of(problem) + " takes no post-operations";
  if (result != DType::f32) return "post-operations work on float32 results only";
  // The libraries' fast kernels know no other repetition, and their slow ones are slower than a kernel of its
  // own.
  if (op.operand >= 0 && operand == Spread::other) return "an operand repeated over some dimensions only";
  if (op.kind == PostOp::sum) return "in-place sums are decided after layouts";
  return {};
}

#if defined(TBX_WITH_ONEDNN)
namespace onednn {
std::string inexact_bytes(); // extern_kernels/onednn/common.h
}
bool has_byte_products() { return onednn::inexact_bytes().empty(); }
#else
bool has_byte_products() { return false; }
#endif

} // namespace tbx::extern_kernels
