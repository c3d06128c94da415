#include "extern_kernels/cuda/select.h"

#include <fmt/format.h>

#include "base/error.h"
#include "device/fake/fake_device.h"
#include "extern_kernels/cuda/fake_kernel.h"

namespace tbx::extern_kernels {

#define TBX_DEVICE(problem, name)                                                                            \
  std::string supports_##name(const Problem&, std::span<const OperandInfo>, std::span<const OperandInfo>,    \
                              const device::Properties&);                                                    \
  std::unique_ptr<ExternKernel> make_##name(device::Device&, const Problem&, std::span<const OperandInfo>,   \
                                            std::span<const OperandInfo>);
#define TBX_DEVICE_EXACT TBX_DEVICE
#define TBX_DEVICE_PLAIN TBX_DEVICE
#include "extern_kernels/cuda/kernels.inc"
#undef TBX_DEVICE
#undef TBX_DEVICE_EXACT
#undef TBX_DEVICE_PLAIN

namespace {

/// What is decided without a GPU is decided for large ones, as in base/target.h.
const device::Properties& large_gpu() {
  static const device::Properties properties = [] {
    device::Properties p;
    p.architecture = "sm_90";
    p.shared_bytes_block = 227 << 10;
    return p;
  }();
  return properties;
}

bool is_any(const Problem& problem) {
  if (const auto* p = std::get_if<ConvProblem>(&problem)) return p->precision == Precision::any;
  if (const auto* p = std::get_if<MatMulProblem>(&problem)) return p->precision == Precision::any;
  return false;
}

} // namespace

bool multiplies_tf32(const DeviceCandidate& candidate, const Problem& problem,
                     std::span<const OperandInfo> inputs) {
  return !candidate.exact && is_any(problem) && inputs[0].dtype == DType::f32;
}

std::span<const DeviceCandidate> device_candidates(const Problem& problem) {
  using Lists = std::vector<std::vector<DeviceCandidate>>;
  static const Lists lists = [] {
    Lists all(kProblemKinds);
    auto add = [&](ProblemKind kind, const DeviceCandidate& candidate) {
      all[static_cast<size_t>(kind)].push_back(candidate);
    };
#define TBX_CANDIDATE(problem, name, exact, plain)                                                           \
  add(ProblemKind::problem, {#name, supports_##name, make_##name, exact, plain});
#define TBX_DEVICE(problem, name) TBX_CANDIDATE(problem, name, false, false)
#define TBX_DEVICE_EXACT(problem, name) TBX_CANDIDATE(problem, name, true, false)
#define TBX_DEVICE_PLAIN(problem, name) TBX_CANDIDATE(problem, name, true, true)
#include "extern_kernels/cuda/kernels.inc"
#undef TBX_CANDIDATE
#undef TBX_DEVICE
#undef TBX_DEVICE_EXACT
#undef TBX_DEVICE_PLAIN
    return all;
  }();
  return lists[problem.index()];
}

Choice choose_on_gpu(const Problem& problem, std::span<const OperandInfo> inputs,
                     std::span<const OperandInfo> outputs, const device::Properties& properties,
                     Lengths lengths) {
  Choice choice;
  const bool own = std::holds_alternative<AttentionProblem>(problem) && lengths == Lengths::grow &&
                   supports_cuda_attention(problem, inputs, outputs, properties).empty();
  for (const DeviceCandidate& c : device_candidates(problem)) {
    const std::string refusal = own && !c.plain
                                    ? "the number of keys grows from run to run, each would be another plan"
                                    : c.supports(problem, inputs, outputs, properties);
    if (refusal.empty()) {
      choice.candidate = &c;
      return choice;
    }
    choice.refusals.push_back(fmt::format("{}: {}", c.name, refusal));
  }
  throw_unsupported("no kernel of GPUs computes {}{}", to_string(problem),
                    choice.refusals.empty() ? "" : fmt::format(" ({})", fmt::join(choice.refusals, "; ")));
}

Selection select_on(device::Device& device, const Problem& problem, std::span<const OperandInfo> inputs,
                    std::span<const OperandInfo> outputs, Lengths lengths) {
  Choice choice = choose_on_gpu(problem, inputs, outputs, device.properties(), lengths);
  const DeviceCandidate& c = *choice.candidate;
  const bool plain_attention = std::holds_alternative<AttentionProblem>(problem) && c.plain;
  Selection s;
  s.kernel = device::is_fake(device)
                 ? make_fake_kernel({c.name, plain_attention, multiplies_tf32(c, problem, inputs)}, problem,
                                    inputs, outputs)
                 : c.make(device, problem, inputs, outputs);
  s.chosen = c.name;
  s.refusals = std::move(choice.refusals);
  return s;
}

std::string accepts_on_gpu(const Problem& problem, std::span<const OperandInfo> inputs,
                           std::span<const OperandInfo> outputs) {
  std::string reasons;
  for (const DeviceCandidate& c : device_candidates(problem)) {
    const std::string refusal = c.plain ? "plain loops" : c.supports(problem, inputs, outputs, large_gpu());
    if (refusal.empty()) return {};
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", c.name, refusal);
  }
  return reasons.empty() ? "no kernel of GPUs" : reasons;
}

} // namespace tbx::extern_kernels
