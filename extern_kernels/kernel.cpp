#include "extern_kernels/kernel.h"

#include <fmt/format.h>
#include <tbb/task_arena.h>

#include <algorithm>

#include "base/error.h"
#include "extern_kernels/catalogue.h"

namespace tbx::extern_kernels {

int64_t TensorRef::numel() const { return checked_numel(sizes); }

int64_t ExternKernel::workspace_bytes(std::span<const TensorRef>, std::span<const TensorRef>) const {
  return 0;
}

#define TBX_CANDIDATE(problem, name)                                                                         \
  std::string supports_##name(const Problem&, std::span<const OperandInfo>, std::span<const OperandInfo>,    \
                              const Target&);                                                                \
  std::unique_ptr<ExternKernel> make_##name(const Problem&, std::span<const OperandInfo>,                    \
                                            std::span<const OperandInfo>);
#define TBX_PLAIN TBX_CANDIDATE
#include "extern_kernels/kernels.inc"
#undef TBX_CANDIDATE
#undef TBX_PLAIN

namespace {

struct Entry {
  ProblemKind kind;
  Candidate candidate;
  bool plain;
};

const std::vector<Entry>& all_entries() {
  static const std::vector<Entry> entries = {
#define TBX_CANDIDATE(problem, name) {ProblemKind::problem, {#name, supports_##name, make_##name}, false},
#define TBX_PLAIN(problem, name) {ProblemKind::problem, {#name, supports_##name, make_##name}, true},
#include "extern_kernels/kernels.inc"
#undef TBX_CANDIDATE
#undef TBX_PLAIN
  };
  return entries;
}

} // namespace

std::span<const Candidate> candidates(const Problem& problem, Kernels kernels) {
  using Lists = std::vector<std::vector<Candidate>>;
  static const Lists fastest = [] {
    Lists lists(kProblemKinds);
    for (const Entry& e : all_entries()) lists[static_cast<size_t>(e.kind)].push_back(e.candidate);
    return lists;
  }();
  static const Lists plain = [] {
    Lists lists(kProblemKinds);
    for (const Entry& e : all_entries())
      if (auto& list = lists[static_cast<size_t>(e.kind)]; e.plain) list.insert(list.begin(), e.candidate);
    return lists;
  }();
  return (kernels == Kernels::plain ? plain : fastest)[problem.index()];
}

bool is_plain_loops(std::string_view candidate) {
  return std::any_of(all_entries().begin(), all_entries().end(),
                     [&](const Entry& e) { return e.plain && e.candidate.name == candidate; });
}

Selection select(const Problem& problem, std::span<const OperandInfo> inputs,
                 std::span<const OperandInfo> outputs, Kernels kernels) {
  Selection s;
  Target target = host_target();
  target.threads = tbb::this_task_arena::max_concurrency();
  for (const Candidate& c : candidates(problem, kernels)) {
    std::string refusal = c.supports(problem, inputs, outputs, target);
    if (refusal.empty()) {
      s.kernel = c.make(problem, inputs, outputs);
      s.chosen = c.name;
      return s;
    }
    s.refusals.push_back(fmt::format("{}: {}", c.name, refusal));
  }
  throw_unsupported("no kernel computes {} ({})", to_string(problem), fmt::join(s.refusals, "; "));
}

} // namespace tbx::extern_kernels
