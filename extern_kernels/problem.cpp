#include "extern_kernels/problem.h"

#include <fmt/format.h>

namespace tbx::extern_kernels {
namespace {

std::string text(const PostOp& op) {
  static constexpr const char* kNames[] = {
      "relu",       "leaky_relu", "clip",  "gelu_erf", "gelu_tanh", "silu", "sigmoid", "tanh", "hard_sigmoid",
      "hard_swish", "linear",     "round", "add",      "sub",       "mul",  "div",     "sum"};
  std::string s = fmt::format("+{}", kNames[op.kind]);
  switch (op.kind) {
  case PostOp::leaky_relu:
  case PostOp::silu: return s + fmt::format("({})", op.alpha);
  case PostOp::clip:
  case PostOp::hard_sigmoid:
  case PostOp::linear: return s + fmt::format("({}, {})", op.alpha, op.beta);
  default: return op.operand >= 0 ? s + fmt::format("(#{})", op.operand) : s;
  }
}

const char* text(Precision precision) {
  switch (precision) {
  case Precision::strict: return "";
  case Precision::bf16: return " in bfloat16";
  case Precision::any: return " in any precision";
  }
  return "";
}

std::string text(const std::vector<PostOp>& ops) {
  std::string s;
  for (const PostOp& op : ops) s += " " + text(op);
  return s;
}

std::string text(const Attribute& a) {
  return std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::shared_ptr<const Tensor>>) {
          return "tensor";
        } else if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, double> ||
                             std::is_same_v<T, std::string>) {
          return fmt::format("{}", v);
        } else {
          return fmt::format("[{}]", fmt::join(v, ", "));
        }
      },
      a);
}

} // namespace

std::string name_of(const Problem& problem) {
  if (const auto* conv = std::get_if<ConvProblem>(&problem))
    return conv->transposed ? "ConvTranspose" : "Conv";
  if (std::holds_alternative<MatMulProblem>(problem)) return "MatMul";
  if (std::holds_alternative<AttentionProblem>(problem)) return "Attention";
  return std::get<HostProblem>(problem).op;
}

std::string to_string(const Problem& problem) {
  if (const auto* p = std::get_if<ConvProblem>(&problem))
    return fmt::format("{} group {} strides [{}] dilations [{}] pads [{}][{}]{}{}{}{}", name_of(problem),
                       p->group, fmt::join(p->strides, ", "), fmt::join(p->dilations, ", "),
                       fmt::join(p->pads_begin, ", "), fmt::join(p->pads_end, ", "),
                       p->has_bias ? " +bias" : "", p->x_zero >= 0 ? " zero point" : "", text(p->post_ops),
                       text(p->precision));
  if (const auto* p = std::get_if<MatMulProblem>(&problem))
    return fmt::format("MatMul{}{}{}{}{}", p->alpha == 1 ? "" : fmt::format(" alpha {}", p->alpha),
                       p->has_bias ? " +bias" : "", p->a_zero >= 0 || p->b_zero >= 0 ? " zero points" : "",
                       text(p->post_ops), text(p->precision));
  if (const auto* p = std::get_if<AttentionProblem>(&problem))
    return fmt::format("Attention scale {}{}{}{}{}{}{}{}{}", p->scale, p->causal ? " causal" : "",
                       p->causal && p->from_end ? " from the end" : "",
                       p->window > 0 ? fmt::format(" window {}", p->window) : "",
                       p->softcap > 0 ? fmt::format(" softcap {}", p->softcap) : "",
                       p->has_mask ? " +mask" : "", p->has_starts ? " +starts" : "",
                       p->has_sinks ? " +sinks" : "", p->zero_undefined_rows ? " 0 for undefined rows" : "");
  const auto& host = std::get<HostProblem>(problem);
  std::string s = host.op;
  for (const auto& [name, value] : host.attributes) s += fmt::format(" {}={}", name, text(value));
  return s;
}

} // namespace tbx::extern_kernels
