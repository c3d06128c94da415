#include "extern_kernels/cuda/conv_weights.h"

#include <cstring>

namespace tbx::extern_kernels::cuda {

namespace {

std::vector<int64_t> channels_last_strides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t step = 1;
  auto place = [&](size_t d) {
    strides[d] = step;
    step *= sizes[d];
  };
  place(1);
  for (size_t d = sizes.size() - 1; d > 1; --d) place(d);
  place(0);
  return strides;
}

} // namespace

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
  const std::vector<int64_t>& sizes = weights_.sizes;
  const int64_t element = size_of(weights_.dtype);
  int64_t count = 1;
  for (int64_t s : sizes) count *= s;
  std::vector<char> ordered(static_cast<size_t>(count * element));
  const auto* from = reinterpret_cast<const char*>(weights_.constant->data);
  std::vector<int64_t> index(sizes.size(), 0);
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = 0, to = 0;
    for (size_t d = 0; d < sizes.size(); ++d)
      at += index[d] * weights_.strides[d], to += index[d] * strides[d];
    std::memcpy(ordered.data() + to * element, from + at * element, static_cast<size_t>(element));
    for (size_t d = sizes.size(); d-- > 0;) {
      if (++index[d] < sizes[d]) break;
      index[d] = 0;
    }
  }
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
