// The fastest of several ways to do the same work on a GPU.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "device/cuda/stream.h"
#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels::cuda {

/// Device memory of the current context for the time of a measurement.
class Scratch {
public:
  explicit Scratch(size_t bytes);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* data() const { return reinterpret_cast<void*>(pointer_); }

private:
  device::cuda::Pointer pointer_ = 0;
};

/// A piece of device memory.
struct Bytes {
  const void* data = nullptr;
  size_t size = 0;
};

/// All memory from the first element of the operand to its last.
Bytes bytes_of(const TensorRef& t);

/// False with TBX_CUDA_MEASURE=0: libraries' first choices are taken, the same ones in every process.
bool measuring();

/// Queues each of `count` ways several times, as a graph where the stream can be recorded, each time behind a
/// write that fills the cache and a read of the `hot` bytes, as in a network whose weights do not stay in the
/// cache while its activations do. The fastest way, without the slowest rounds; nullopt when none works.
/// `work` gives false where a way does not work. `zeros`: by way, memory whose fills with zeros are not
/// timed, as sessions have them ahead of their graphs; empty: none. `lead` queues a kernel that stands ahead
/// of each way and is timed with it; empty: none. Waits for the stream.
std::optional<size_t> fastest(device::cuda::StreamHandle stream, size_t count, std::span<const Bytes> hot,
                              const std::function<bool(size_t)>& work, std::span<const Bytes> zeros = {},
                              const std::function<void()>& lead = {});

/// What an earlier process found to be the best way, out of the kernel cache; empty: nothing. `problem`: all
/// that decides but for the GPU, the library's version among it.
std::string kept_answer(const device::cuda::ContextOwner& context, const std::string& problem);
void keep_answer(const device::cuda::ContextOwner& context, const std::string& problem,
                 const std::string& answer);

} // namespace tbx::extern_kernels::cuda
