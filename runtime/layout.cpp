#include "runtime/layout.h"

#include <algorithm>

#include "base/watch.h"

namespace tbx::runtime {

std::vector<bool> places_of_states(const Executable& plan) {
  std::vector<bool> state(plan.buffers.size(), false), places = state;
  for (const SignatureEntry& in : plan.inputs) state[in.buffer] = in.state_axis >= 0;
  for (const Step& step : plan.steps)
    if (const auto* copy = std::get_if<CopyStep>(&step.what); copy && state[copy->from])
      places[copy->to] = true;
  return places;
}

Lives::Lives(const Executable& plan, const std::vector<bool>& made)
    : blocks_(plan.steps.size() / 64 + 1), needs_place_(plan.buffers.size(), false) {
  const std::vector<bool> kept = places_of_states(plan);
  for (size_t b = 0; b < plan.buffers.size(); ++b) {
    const BufferPlan& p = plan.buffers[b];
    needs_place_[b] = (p.storage == StorageKind::arena || p.storage == StorageKind::dynamic) &&
                      p.first_step >= 0 && !made[b] && !kept[b];
    if (!needs_place_[b]) continue;
    for (size_t block = block_of(p.first_step); block <= block_of(p.last_step); ++block)
      blocks_[block].push_back(static_cast<int>(b));
  }
}

int64_t place_of(int64_t bytes, DeviceKind device) {
  const int64_t align = device == DeviceKind::cpu ? 64 : 256;
  // A sanitizer finds what runs over its end by a gap behind it.
  const int64_t gap = device == DeviceKind::cpu && is_watched() ? align : 0;
  return (bytes + align - 1) / align * align + gap;
}

int64_t lay_out(const Executable& plan, const Lives& lives, std::vector<int> buffers,
                std::vector<BufferShape>& shapes, std::span<const int64_t> borders) {
  std::stable_sort(buffers.begin(), buffers.end(),
                   [&](int a, int b) { return shapes[a].bytes > shapes[b].bytes; });
  for (int b : buffers) shapes[b].offset = -1;
  int64_t total = 0;
  std::vector<std::pair<int64_t, int64_t>> busy;
  for (int b : buffers) {
    const DeviceKind device = plan.buffers[b].device;
    busy.clear();
    for (int64_t border : borders) busy.emplace_back(border, border);
    lives.for_each_met(plan, b, [&](int p) {
      if (shapes[p].known && shapes[p].offset >= 0 && plan.buffers[p].device == device)
        busy.emplace_back(shapes[p].offset, shapes[p].offset + place_of(shapes[p].room, device));
    });
    std::sort(busy.begin(), busy.end());
    int64_t need = place_of(shapes[b].bytes, device), at = 0, best = -1, best_gap = INT64_MAX;
    for (auto [begin, end] : busy) {
      if (begin - at >= need && begin - at < best_gap) {
        best = at;
        best_gap = begin - at;
      }
      at = std::max(at, end);
    }
    shapes[b].offset = best >= 0 ? best : at;
    total = std::max(total, shapes[b].offset + need);
  }
  return total;
}

} // namespace tbx::runtime
