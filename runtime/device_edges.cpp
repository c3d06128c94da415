#include "runtime/device_edges.h"

#include <algorithm>

#include "runtime/device_align.h"
#include "runtime/memory.h"

namespace tbx::runtime {
namespace {

constexpr size_t kChunked = 1 << 20; ///< more bytes than these are copied by several threads

std::span<const std::byte> memory_of(const EdgeUse& use) {
  return {static_cast<const std::byte*>(use.memory), use.bytes};
}

bool is_of_device(const EdgeUse& use) { return use.how == EdgeUse::How::copied || is_in_place(use); }

} // namespace

PlanEdges edges_of(const Executable& executable) {
  PlanEdges edges;
  edges.inputs.resize(executable.inputs.size());
  edges.outputs.resize(executable.outputs.size());
  edges.of_step.assign(executable.steps.size(), kNoEdge);
  std::vector<int> input(executable.buffers.size(), -1), output(executable.buffers.size(), -1);
  for (size_t i = 0; i < executable.inputs.size(); ++i) {
    input[executable.inputs[i].buffer] = static_cast<int>(i);
    edges.inputs[i].state = executable.inputs[i].state_axis >= 0;
  }
  for (size_t i = 0; i < executable.outputs.size(); ++i)
    output[executable.outputs[i].buffer] = static_cast<int>(i);
  for (const SymbolBinding& b : executable.bindings)
    if (b.of == SymbolBinding::Of::element) edges.inputs[b.input].on_host = true;
  for (size_t s = 0; s < executable.steps.size(); ++s) {
    const Step& step = executable.steps[s];
    if (const auto* copy = std::get_if<CopyStep>(&step.what)) {
      if (const int i = input[copy->from]; i >= 0) edges.inputs[i].twin = copy->to, edges.of_step[s] = i;
      if (const int o = output[copy->to]; o >= 0)
        edges.outputs[o].twin = copy->from, edges.of_step[s] = -1 - o;
      if (const int o = output[copy->from]; o >= 0) edges.outputs[o].on_host = true;
      continue;
    }
    for_each_buffer(step, [&](int b, bool writes) {
      for (size_t i = 0; i < edges.inputs.size(); ++i)
        edges.inputs[i].fixed |= writes && edges.inputs[i].twin == b;
      if (step.device != DeviceKind::cpu) return;
      if (input[b] >= 0) edges.inputs[input[b]].on_host = true;
      if (output[b] >= 0) edges.outputs[output[b]].on_host = true;
    });
  }
  // What the host works on as well is an output of the host.
  for (size_t s = 0; s < edges.of_step.size(); ++s)
    if (const int at = edges.of_step[s]; at < 0 && edges.outputs[-1 - at].on_host) edges.of_step[s] = kNoEdge;
  for (PlanEdge& e : edges.outputs)
    if (e.on_host) e.twin = -1;
  return edges;
}

bool is_in_place(const EdgeUse& use) {
  return use.how == EdgeUse::How::direct || use.how == EdgeUse::How::kept;
}

EdgeUse::How way_of(const PlanEdge& edge, bool on_device, const void* memory, size_t bytes) {
  if (edge.twin < 0 || bytes == 0) return EdgeUse::How::none;
  if (!on_device) return bytes > kChunked ? EdgeUse::How::chunked : EdgeUse::How::staged;
  if (edge.state) return EdgeUse::How::kept;
  const bool aligned = reinterpret_cast<uintptr_t>(memory) % kDeviceAlign == 0;
  return aligned && !edge.fixed ? EdgeUse::How::direct : EdgeUse::How::copied;
}

void copy_what_overlaps(const std::vector<EdgeUse>& inputs, std::vector<EdgeUse>& outputs) {
  for (EdgeUse& out : outputs)
    if (out.how == EdgeUse::How::direct && std::any_of(inputs.begin(), inputs.end(), [&](const EdgeUse& in) {
          return is_of_device(in) && overlap(memory_of(in), memory_of(out));
        }))
      out.how = EdgeUse::How::copied;
}

void* HostCopy::get() {
  if (!is_there_) {
    if (!copy_) copy_ = device_->allocate_staging(bytes_);
    const std::unique_ptr<device::Stream> stream = device_->adopt_stream(stream_);
    stream->download(copy_->data(), data_, bytes_);
    stream->synchronize();
    is_there_ = true;
  }
  return copy_->data();
}

} // namespace tbx::runtime
