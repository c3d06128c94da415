#include "runtime/growing.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "extern_kernels/launched_kernel.h"

namespace tbx::runtime {
namespace {

constexpr int64_t kLeastRoom = 256;

bool keeps_state(const Executable& plan) {
  return std::any_of(plan.inputs.begin(), plan.inputs.end(),
                     [](const SignatureEntry& e) { return e.state_axis >= 0; });
}

/// Another start of the step's kernels can take its place in a graph.
bool can_move(const BoundExecutable& bound, size_t step) {
  if (std::holds_alternative<KernelStep>(bound.executable->steps[step].what)) return true;
  const auto& library = bound.steps[step].library;
  return library && extern_kernels::is_launched(*library);
}

std::optional<std::vector<int>> movers_of(const BoundExecutable& bound, const PlanEdge& edge) {
  std::vector<int> movers;
  if (edge.twin < 0) return std::nullopt;
  for (int s = bound.on_device->first_recorded; s < bound.on_device->last_recorded; ++s) {
    bool works = false;
    for_each_buffer(bound.executable->steps[s], [&](int b, bool) { works = works || b == edge.twin; });
    if (!works) continue;
    if (!can_move(bound, static_cast<size_t>(s))) return std::nullopt;
    movers.push_back(s);
  }
  return movers;
}

} // namespace

std::vector<int64_t> Growing::room_of(std::span<const int64_t> sizes) const {
  std::vector<int64_t> room(sizes.begin(), sizes.end());
  for (int s : symbols)
    room[s] = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(sizes[s], kLeastRoom))));
  return room;
}

Growing growing_sizes(const BoundExecutable& bound, const SymbolUses& uses) {
  const Executable& plan = *bound.executable;
  Growing growing;
  if (!bound.on_device || !bound.on_device->is_recorded() || bound.data_dependent || !keeps_state(plan))
    return growing;
  std::vector<bool> grows(plan.symbol_names.size(), false);
  for (const auto* all : {&uses.buffers, &uses.steps})
    for (const std::vector<int>& used : *all)
      for (int symbol : used) grows[symbol] = true;
  // Memory of a state moves when it grows, which is seldom, and a graph is for one place.
  for (const SymbolBinding& b : plan.bindings)
    if (b.of == SymbolBinding::Of::room) grows[b.symbol] = false;
  const int first = bound.on_device->first_recorded, last = bound.on_device->last_recorded;
  for (int s = first; s < last; ++s)
    if (const auto& library = bound.steps[s].library; library && !extern_kernels::is_launched(*library))
      for (int symbol : uses.steps[s]) grows[symbol] = false;
  for (size_t s = 0; s < grows.size(); ++s)
    if (grows[s]) growing.symbols.push_back(static_cast<int>(s));
  auto concerned = [&](const std::vector<int>& used) {
    return std::any_of(used.begin(), used.end(), [&](int s) { return grows[s]; });
  };
  for (size_t s = 0; s < uses.steps.size(); ++s)
    if (concerned(uses.steps[s])) growing.steps.push_back(static_cast<int>(s));
  for (size_t b = 0; b < uses.buffers.size(); ++b)
    if (concerned(uses.buffers[b])) growing.buffers.push_back(static_cast<int>(b));
  for (const PlanEdge& edge : bound.on_device->edges.inputs) growing.inputs.push_back(movers_of(bound, edge));
  for (const PlanEdge& edge : bound.on_device->edges.outputs)
    growing.outputs.push_back(movers_of(bound, edge));
  return growing;
}

} // namespace tbx::runtime
