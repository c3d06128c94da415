#include "extern_kernels/catalogue.h"

#include <fmt/format.h>

#include "base/multiply_rates.h"
#include "extern_kernels/attention/blocks.h"
#include "extern_kernels/bytes/tile.h"
#include "extern_kernels/direct/lines.h"
#include "extern_kernels/direct/tap_products.h"

namespace tbx::extern_kernels {

bool is_product(const Problem& problem) {
  return std::holds_alternative<ConvProblem>(problem) || std::holds_alternative<MatMulProblem>(problem);
}

bool is_for_libraries(const Problem& problem) {
  return is_product(problem) || std::holds_alternative<AttentionProblem>(problem);
}

LayoutWish input_layout(const Problem& problem, int input, bool channels_last) {
  if (std::holds_alternative<ConvProblem>(problem)) {
    // Operands of post-operations, too: libraries have only plain loops for those in another order than the
    // result.
    if (input == 0 || input > 2) return channels_last ? LayoutWish::channels_last : LayoutWish::row_major;
    return LayoutWish::any;
  }
  if (std::holds_alternative<MatMulProblem>(problem) || std::holds_alternative<RowProductProblem>(problem))
    return input < 2 ? LayoutWish::matrix : LayoutWish::any;
  if (std::holds_alternative<AttentionProblem>(problem)) return LayoutWish::any;
  return LayoutWish::row_major;
}

bool takes_planes(const Problem& problem, std::span<const OperandInfo> inputs,
                  std::span<const OperandInfo> outputs, const Target& target) {
  const auto* conv = std::get_if<ConvProblem>(&problem);
  if (!conv) return false;
  const DType result = outputs[0].dtype;
  // Of bytes the library may compute few results, too.
  if (is_float(inputs[0].dtype) && direct::is_best_by_taps(*conv, inputs[1].sizes)) return true;
  const bool wants_planes =
      direct::is_best_by_lines(*conv, inputs, result, vector_bytes(target.library_isa)) ||
      (is_float(result) &&
       direct::is_less_by_taps(*conv, inputs[1].sizes, inputs[0].sizes, outputs[0].sizes, size_of(result)));
  return wants_planes && copies_image(problem, inputs, outputs, target);
}

bool copies_image(const Problem& problem, std::span<const OperandInfo> inputs,
                  std::span<const OperandInfo> outputs, const Target& target) {
  if (!std::holds_alternative<ConvProblem>(problem)) return false;
  for (const Candidate& c : candidates(problem))
    if (c.supports(problem, inputs, outputs, target).empty())
      return std::string_view(c.name) == "direct_conv" || std::string_view(c.name) == "byte_conv";
  return false;
}

LayoutWish output_layout(const Problem& problem, bool channels_last) {
  bool conv = std::holds_alternative<ConvProblem>(problem);
  return conv && channels_last ? LayoutWish::channels_last : LayoutWish::row_major;
}

std::string accepts_post_op(const Problem& problem, const PostOp& op, DType result, Spread operand) {
  if (!is_product(problem)) return name_of(problem) + " takes no post-operations";
  if (result != DType::f32) return "post-operations work on float32 results only";
  // The libraries' fast kernels know no other repetition, and their slow ones are slower than a kernel of its
  // own.
  if (op.operand >= 0 && operand == Spread::other) return "an operand repeated over some dimensions only";
  if (op.kind == PostOp::sum) return "in-place sums are decided after layouts";
  return {};
}

bool has_attention_tiles() { return attention::tile_blocks() != nullptr; }

#if defined(TBX_WITH_ONEDNN)
namespace onednn {
std::string inexact_bytes(); // extern_kernels/onednn/common.h
bool multiplies(DType half);
bool has_tiles(DType type);
std::string identity();
// Why bias and post-operations are not done inside of a fast kernel; empty: they are.
std::string slow_work(const ConvProblem&, std::span<const OperandInfo>, std::span<const OperandInfo>,
                      const Target&);
std::string slow_work(const MatMulProblem&, std::span<const OperandInfo>, std::span<const OperandInfo>,
                      const Target&);
} // namespace onednn

std::string library_identity() { return onednn::identity(); }
int64_t least_byte_group() {
  if (onednn::inexact_bytes().empty()) return 1;
  return least_byte_group(host_isa());
}
int64_t least_byte_group(Isa isa) { return isa >= Isa::avx2 ? bytes::kLeastGroup : 0; }
bool has_half_products(DType type) {
  // Without tiles the library multiplies f16 as f32, which it converts them to on the way.
  return onednn::has_tiles(type) || (type == DType::bf16 && onednn::multiplies(type) && has_fast_pairs());
}

std::string accepts_post_ops(const Problem& problem, std::span<const OperandInfo> inputs,
                             std::span<const OperandInfo> outputs, const Target& target) {
  std::string reasons;
  for (const Candidate& c : candidates(problem)) {
    const bool is_onednn = std::string_view(c.name).starts_with("onednn");
    std::string refusal =
        is_plain_loops(c.name) ? "plain loops" : c.supports(problem, inputs, outputs, target);
    if (refusal.empty() && is_onednn)
      refusal = std::holds_alternative<ConvProblem>(problem)
                    ? onednn::slow_work(std::get<ConvProblem>(problem), inputs, outputs, target)
                    : onednn::slow_work(std::get<MatMulProblem>(problem), inputs, outputs, target);
    if (refusal.empty()) return {};
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", c.name, refusal);
  }
  return reasons;
}
#else
std::string library_identity() { return "none"; }
int64_t least_byte_group() { return 0; } // nothing takes their post-operations
int64_t least_byte_group(Isa) { return 0; }
bool has_half_products(DType) { return false; }

std::string accepts_post_ops(const Problem&, std::span<const OperandInfo>, std::span<const OperandInfo>,
                             const Target&) {
  return "no library";
}
#endif

} // namespace tbx::extern_kernels
