// Kernels of devices: which of them compute a problem, and a kernel for one device.
#pragma once

#include "device/device.h"
#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels {

/// A way to compute a problem on a GPU, asked in order of preference (extern_kernels/cuda/kernels.inc).
struct DeviceCandidate {
  const char* name;
  /// Empty string: supported. Otherwise the reason of the refusal, by what the problem is and what the GPU
  /// has: nothing is compiled for the answer.
  std::string (*supports)(const Problem&, std::span<const OperandInfo> inputs,
                          std::span<const OperandInfo> outputs, const device::Properties& properties);
  /// Takes what supports() accepts for the device. Throws BackendError when a library is missing or too old,
  /// with the way to get it.
  std::unique_ptr<ExternKernel> (*make)(device::Device&, const Problem&, std::span<const OperandInfo> inputs,
                                        std::span<const OperandInfo> outputs);
  bool exact; ///< never multiplies in TF32
  bool plain; ///< loops over the elements: taken where nothing else computes the problem
};

/// All candidates for the kind of problem, preferred first. None for host kernels.
std::span<const DeviceCandidate> device_candidates(const Problem& problem);

/// The candidate rounds operands of float32 to TF32 (11 significant bits), on GPUs that have it: that is what
/// Precision::any means on a device. Loops over the elements multiply float32 as it is.
bool multiplies_tf32(const DeviceCandidate& candidate, const Problem& problem,
                     std::span<const OperandInfo> inputs);

/// How the keys of attention change from run to run of a session: that of a state grows with each.
enum class Lengths : uint8_t { any, grow };

/// The first candidate that accepts, and why those before it do not. UnsupportedError with all refusals when
/// none does, as for host kernels: those work on the host.
struct Choice {
  const DeviceCandidate* candidate = nullptr;
  std::vector<std::string> refusals;
};
Choice choose_on_gpu(const Problem& problem, std::span<const OperandInfo> inputs,
                     std::span<const OperandInfo> outputs, const device::Properties& properties,
                     Lengths lengths = Lengths::any);

/// A kernel of the candidate that choose_on_gpu() gives. run() of the kernel queues its work in
/// RunArgs::stream; all addresses are of the device's memory. On the fake device the plain kernels of the CPU
/// stand in for the candidate that is chosen.
Selection select_on(device::Device& device, const Problem& problem, std::span<const OperandInfo> inputs,
                    std::span<const OperandInfo> outputs, Lengths lengths = Lengths::any);

/// Empty when a library does all of the problem with its post-operations on GPUs, else the reasons why not:
/// then post-operations belong into a generated kernel. Asks no device, since a model has the same kernels
/// wherever it is compiled.
std::string accepts_on_gpu(const Problem& problem, std::span<const OperandInfo> inputs,
                           std::span<const OperandInfo> outputs);

/// There is a kernel of attention of one query that appends the new key and value.
bool appends_on_gpu(std::span<const OperandInfo> inputs, std::span<const OperandInfo> outputs);

} // namespace tbx::extern_kernels
