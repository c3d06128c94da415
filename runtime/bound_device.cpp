#include "runtime/bound_device.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "runtime/chunked_copies.h"
#include "runtime/device_align.h"

namespace tbx::runtime {
namespace {

constexpr size_t kChunked = 1 << 20; ///< bytes

/// One block for all constants that steps of the device read.
void place_constants(const Executable& executable, BoundDevice& bound) {
  bound.constants.assign(executable.constants.size(), nullptr);
  std::vector<size_t> offsets(executable.constants.size(), SIZE_MAX);
  size_t bytes = 0;
  for (const BufferPlan& b : executable.buffers) {
    if (b.storage != StorageKind::constant || b.device == DeviceKind::cpu || offsets[b.index] != SIZE_MAX)
      continue;
    offsets[b.index] = bytes;
    bytes += device_aligned(static_cast<size_t>(executable.constants[b.index]->bytes()));
  }
  if (bytes == 0 && std::all_of(offsets.begin(), offsets.end(), [](size_t o) { return o == SIZE_MAX; }))
    return;
  bound.memory = bound.device->allocate(bytes);
  ChunkedCopies chunks(*bound.device);
  const std::unique_ptr<device::Stream> stream = bound.device->make_stream();
  for (size_t c = 0; c < offsets.size(); ++c) {
    if (offsets[c] == SIZE_MAX) continue;
    bound.constants[c] = static_cast<std::byte*>(bound.memory->data()) + offsets[c];
    const std::byte* data = executable.constants[c]->data;
    const auto size = static_cast<size_t>(executable.constants[c]->bytes());
    // Large ones by several threads through page-locked memory, which also read what the file has of them.
    if (size > kChunked)
      chunks.upload(*stream, bound.constants[c], data, size);
    else
      stream->upload(bound.constants[c], data, size);
  }
  stream->synchronize();
}

/// The steps between the copies at both ends, where the host does nothing.
void find_recorded(const Executable& executable, BoundDevice& bound) {
  const std::vector<Step>& steps = executable.steps;
  auto is_edge = [&](size_t s) { return bound.edges.of_step[s] != kNoEdge; };
  size_t first = 0, last = steps.size();
  while (first < last && is_edge(first)) ++first;
  while (last > first && is_edge(last - 1)) --last;
  for (size_t s = first; s < last; ++s)
    if (std::holds_alternative<CopyStep>(steps[s].what) || steps[s].device == DeviceKind::cpu) return;
  for (const auto* edges : {&bound.edges.inputs, &bound.edges.outputs})
    for (const PlanEdge& e : *edges)
      if (e.on_host && edges == &bound.edges.outputs) return;
  bound.first_recorded = static_cast<int>(first);
  bound.last_recorded = static_cast<int>(last);
}

} // namespace

std::string RecordedAgain::text(size_t step) const {
  std::scoped_lock lock(mutex_);
  const auto count = counts_.find(step);
  if (count == counts_.end()) return {};
  return fmt::format("graph recorded again {} time{}: {}", count->second.times,
                     count->second.times == 1 ? "" : "s", count->second.why);
}

std::shared_ptr<const BoundDevice> bind_device(const Executable& executable, const DeviceModule& on) {
  if (std::all_of(executable.steps.begin(), executable.steps.end(),
                  [](const Step& s) { return s.device == DeviceKind::cpu; }))
    return nullptr;
  if (!on.device) throw_backend_error("the executable has steps of a device, and there is none");
  auto bound = std::make_shared<BoundDevice>();
  bound->device = on.device;
  bound->module = on.kernels;
  bound->starts_early = on.device->properties().starts_early;
  for (const Step& step : executable.steps) {
    bound->kernels.emplace_back();
    bound->check_slots.push_back(-1);
    const auto* kernel = std::get_if<KernelStep>(&step.what);
    if (!kernel || step.device == DeviceKind::cpu) continue;
    if (!on.kernels) throw_backend_error("no module of the device has the kernel {}", kernel->name);
    bound->kernels.back() = on.kernels->kernel(kernel->name);
    if (!kernel->check_origins.empty()) bound->check_slots.back() = bound->num_check_slots++;
  }
  place_constants(executable, *bound);
  bound->edges = edges_of(executable);
  find_recorded(executable, *bound);
  return bound;
}

} // namespace tbx::runtime
