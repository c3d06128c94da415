// Device edges: inputs and outputs of a plan that runs on a device, whose buffers there have twins in memory
// of the host, and how those of one run meet: through page-locked memory, by a copy on the device, or not at
// all, where the caller's memory takes the buffer's place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.h"
#include "runtime/executable.h"

namespace tbx::runtime {

/// An input or output of a plan.
struct PlanEdge {
  int twin =
      -1; ///< its buffer on the device; -1: it has none, or steps of the host work on it between copies
  bool on_host = false; ///< steps of the host read or write it
  bool fixed = false;   ///< the plan overwrites an input's buffer: the caller's memory cannot take its place
  bool state = false;   ///< an input that the session keeps: what the plan writes there is for the next run
};

struct PlanEdges {
  std::vector<PlanEdge> inputs, outputs; ///< by place in the signature
  /// By step: of a copy at one of the ends, place of the input, or -1 - place of the output; else kNoEdge.
  std::vector<int> of_step;
};
inline constexpr int kNoEdge = INT32_MAX;

PlanEdges edges_of(const Executable& executable);

/// How one of them goes in a run.
struct EdgeUse {
  enum class How : uint8_t {
    none,    ///< nothing to do
    staged,  ///< through page-locked memory of the context, as part of its work
    chunked, ///< through page-locked memory in pieces, by several threads
    copied,  ///< on the device, from or to memory of the caller
    direct,  ///< memory of the caller is the buffer
    kept     ///< memory of the session's state is the buffer: a copy of it would lose what is written
  } how = How::none;
  void* memory = nullptr; ///< of the caller
  void* twin = nullptr;   ///< the buffer of the plan
  size_t bytes = 0;
  size_t room = 0;            ///< bytes of the twin, which recorded work stages: sizes may grow in it
  std::byte* stage = nullptr; ///< staged
  /// direct: steps that get its address where it is another one; null: a graph is for one address.
  const std::vector<int>* movers = nullptr;
};

/// Whether memory from outside the plan is the buffer.
bool is_in_place(const EdgeUse& use);
/// For memory of the host: staged or chunked. For that of the device: direct where it is aligned as the
/// plan's own memory is.
EdgeUse::How way_of(const PlanEdge& edge, bool on_device, const void* memory, size_t bytes);
/// Outputs that share memory with an input are copied at the end, when all inputs have been read.
void copy_what_overlaps(const std::vector<EdgeUse>& inputs, std::vector<EdgeUse>& outputs);

/// A tensor of the caller's on a device, copied to the host when somebody asks for its elements.
class HostCopy {
public:
  /// `stream`: on which the tensor is there.
  HostCopy(std::shared_ptr<device::Device> device, const void* data, size_t bytes, void* stream)
      : device_(std::move(device)), data_(data), bytes_(bytes), stream_(stream) {}
  void* get();
  /// The tensor may have other elements from now on, which are there on `stream`.
  void renew(void* stream) {
    stream_ = stream;
    is_there_ = false;
  }

private:
  std::shared_ptr<device::Device> device_;
  const void* data_;
  size_t bytes_;
  void* stream_;
  std::unique_ptr<device::Memory> copy_;
  bool is_there_ = false;
};

} // namespace tbx::runtime
