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

std::string text(const GateActivation& a) {
  static constexpr const char* kNames[] = {"affine", "relu",        "leaky_relu", "thresholded_relu",
                                           "tanh",   "scaled_tanh", "sigmoid",    "hard_sigmoid",
                                           "elu",    "softsign",    "softplus"};
  switch (a.kind) {
  case GateActivation::leaky_relu:
  case GateActivation::thresholded_relu:
  case GateActivation::elu: return fmt::format("{}({})", kNames[a.kind], a.alpha);
  case GateActivation::affine:
  case GateActivation::scaled_tanh:
  case GateActivation::hard_sigmoid: return fmt::format("{}({}, {})", kNames[a.kind], a.alpha, a.beta);
  default: return kNames[a.kind];
  }
}

std::string text(const RecurrentProblem& p) {
  static constexpr const char* kDirections[] = {"", " reverse", " bidirectional"};
  std::string s = kDirections[p.direction];
  for (const GateActivation& a : p.activations) s += " " + text(a);
  if (p.cell == RecurrentProblem::gru_linear) s += " linear before reset";
  if (p.input_forget) s += " input forget";
  if (p.clip < std::numeric_limits<double>::infinity()) s += fmt::format(" clip {}", p.clip);
  if (p.batch_first) s += " batch first";
  s += p.gives_y ? " +Y" : "";
  s += p.gives_h ? " +Y_h" : "";
  return s + (p.gives_c ? " +Y_c" : "");
}

std::string text(const HeadRotation& r) {
  if (r.width == 0) return {};
  return fmt::format(" rotates {} elements{}{}", r.width, r.interleaved ? " in pairs" : "",
                     r.rounded == DType::undefined ? "" : fmt::format(" in {}", name_of(r.rounded)));
}

std::string text(const RowWork& work) {
  static constexpr const char* kNorms[] = {"", " of a row over its root mean square", " of a normalised row"};
  static constexpr const char* kActivations[] = {"", " +relu", " +gelu_tanh", " +gelu_erf", " +silu"};
  static constexpr const char* kGates[] = {"", " *second half", " *first half"};
  return std::string(kNorms[work.norm]) + kActivations[work.activation] + kGates[work.gate];
}

std::string in_blocks(int bits, int64_t block, bool rounds) {
  return fmt::format(" of {} bits{}{}", bits, block ? fmt::format(" in blocks of {}", block) : "",
                     rounds ? ", activations rounded to 8 bits" : "");
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
  if (const auto* layer = std::get_if<RecurrentProblem>(&problem))
    return layer->cell == RecurrentProblem::lstm  ? "LSTM"
           : layer->cell == RecurrentProblem::rnn ? "RNN"
                                                  : "GRU";
  if (std::holds_alternative<PackedMatMulProblem>(problem)) return "MatMulNBits";
  if (std::holds_alternative<RowProductProblem>(problem)) return "RowMatMul";
  if (const auto* experts = std::get_if<ExpertsProblem>(&problem)) return experts->bits ? "QMoE" : "MoE";
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
    return fmt::format("Attention scale {}{}{}{}{}{}{}{}{}{}{}{}", p->scale, p->causal ? " causal" : "",
                       p->causal && p->from_end ? " from the end" : "",
                       p->window > 0 ? fmt::format(" window {}", p->window) : "",
                       p->softcap > 0 ? fmt::format(" softcap {}", p->softcap) : "",
                       p->has_mask ? " +mask" : "", p->has_starts ? " +starts" : "",
                       p->has_sinks ? " +sinks" : "",
                       p->zero_undefined_rows ? " 0 for undefined rows"
                       : p->zero_hidden_rows  ? " 0 for hidden rows"
                                              : "",
                       p->carries ? " carries caches" : "", p->appends ? " appends" : "", text(p->rotation));
  if (const auto* p = std::get_if<RecurrentProblem>(&problem)) return name_of(problem) + text(*p);
  if (const auto* p = std::get_if<PackedMatMulProblem>(&problem))
    return fmt::format("MatMulNBits {} x {}{}{}", p->k, p->n, in_blocks(p->bits, p->block, p->rounds),
                       text(p->work));
  if (const auto* p = std::get_if<RowProductProblem>(&problem)) return name_of(problem) + text(p->work);
  if (const auto* p = std::get_if<ExpertsProblem>(&problem))
    return name_of(problem) + (p->bits ? in_blocks(p->bits, p->block, p->rounds) : "");
  const auto& host = std::get<HostProblem>(problem);
  std::string s = host.op;
  for (const auto& [name, value] : host.attributes) s += fmt::format(" {}={}", name, text(value));
  return s;
}

} // namespace tbx::extern_kernels
