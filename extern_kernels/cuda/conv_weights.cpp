#include "extern_kernels/cuda/conv_weights.h"

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <cstring>

#include "base/strides.h"

namespace tbx::extern_kernels::cuda {

bool is_rows(std::span<const int64_t> sizes, std::span<const int64_t> strides) {
  int64_t step = sizes[1];
  if (sizes[1] > 1 && strides[1] != 1) return false;
  for (size_t d = sizes.size(); d-- > 0;) {
    if (d == 1) continue;
    if (sizes[d] > 1 && strides[d] != step) return false;
    step *= sizes[d];
  }
  return true;
}

std::vector<char> with_channels_last(const OperandInfo& weights) {
  const std::vector<int64_t>&sizes = weights.sizes, to = channels_last_strides(sizes);
  const int64_t element = size_of(weights.dtype);
  std::vector<char> ordered(static_cast<size_t>(checked_numel(sizes) * element));
  const auto* from = reinterpret_cast<const char*>(weights.constant->data);
  int64_t taps = 1;
  for (size_t d = 2; d < sizes.size(); ++d) taps *= sizes[d];
  auto one_output = [&](int64_t output) {
    std::vector<int64_t> index(sizes.size(), 0);
    for (int64_t tap = 0; tap < taps; ++tap) {
      int64_t read = output * weights.strides[0], write = output * to[0];
      for (size_t d = 2; d < sizes.size(); ++d)
        read += index[d] * weights.strides[d], write += index[d] * to[d];
      for (int64_t c = 0; c < sizes[1]; ++c)
        std::memcpy(ordered.data() + (write + c) * element, from + (read + c * weights.strides[1]) * element,
                    static_cast<size_t>(element));
      for (size_t d = sizes.size(); d-- > 2;) {
        if (++index[d] < sizes[d]) break;
        index[d] = 0;
      }
    }
  };
  // The caller holds a lock, for which work of others may wait.
  tbb::this_task_arena::isolate([&] { tbb::parallel_for(int64_t{0}, sizes[0], one_output); });
  return ordered;
}

ConvWeights::ConvWeights(device::Device& device, const OperandInfo& weights)
    : device_(device), weights_(weights) {
  if (weights_.strides.empty() || weights_.strides == channels_last_strides(weights_.sizes))
    weights_.constant = nullptr;
}

const void* ConvWeights::channels_last(std::vector<int64_t>& strides) const {
  if (!weights_.constant) return nullptr;
  strides = channels_last_strides(weights_.sizes);
  std::scoped_lock lock(mutex_);
  if (memory_) return memory_->data();
  const std::vector<char> ordered = with_channels_last(weights_);
  auto memory = device_.allocate(ordered.size());
  const auto stream = device_.make_stream();
  stream->upload(memory->data(), ordered.data(), ordered.size());
  stream->synchronize();
  memory_ = std::move(memory);
  return memory_->data();
}

int64_t ConvWeights::bytes() const {
  std::scoped_lock lock(mutex_);
  return memory_ ? static_cast<int64_t>(memory_->bytes()) : 0;
}

} // namespace tbx::extern_kernels::cuda
