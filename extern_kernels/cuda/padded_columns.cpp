#include "extern_kernels/cuda/padded_columns.h"

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>

namespace tbx::extern_kernels::cuda {

namespace {
constexpr int64_t kFewest = 1024; ///< columns from which on copying the result is cheap beside the product
}

PaddedColumns::PaddedColumns(device::Device& device, const OperandInfo& b)
    : device_(device), dtype_(b.dtype) {
  if (!b.constant || !is_half(b.dtype) || b.strides.size() != b.sizes.size() || b.sizes.size() < 2) return;
  if (std::any_of(b.sizes.begin(), b.sizes.end() - 2, [](int64_t s) { return s != 1; })) return;
  terms_ = b.sizes.end()[-2], columns_ = b.sizes.back();
  term_stride_ = b.strides.end()[-2], column_stride_ = b.strides.back();
  if (columns_ >= kFewest && columns_ % 8 != 0 && terms_ > 0 && terms_ % 8 == 0) constant_ = b.constant;
}

const void* PaddedColumns::weights() const {
  std::scoped_lock lock(mutex_);
  if (memory_) return memory_->data();
  const auto* from = reinterpret_cast<const uint16_t*>(constant_->data);
  std::vector<uint16_t> all(static_cast<size_t>(padded() * terms_), 0); // 0 is 0 in both types
  auto one_column = [&](int64_t n) {
    for (int64_t k = 0; k < terms_; ++k) all[n * terms_ + k] = from[k * term_stride_ + n * column_stride_];
  };
  // Work of others may wait for the lock.
  tbb::this_task_arena::isolate([&] { tbb::parallel_for(int64_t{0}, columns_, one_column); });
  auto memory = device_.allocate(all.size() * sizeof(uint16_t));
  const auto stream = device_.make_stream();
  stream->upload(memory->data(), all.data(), memory->bytes());
  stream->synchronize();
  rows_ = std::make_unique<LoopKernel>(device_, Loop::rows, dtype_, dtype_, dtype_);
  memory_ = std::move(memory);
  return memory_->data();
}

int64_t PaddedColumns::bytes() const {
  std::scoped_lock lock(mutex_);
  return memory_ ? static_cast<int64_t>(memory_->bytes()) : 0;
}

void PaddedColumns::copy(device::Stream& stream, const void* from, void* to, int64_t rows,
                         int64_t to_step) const {
  constexpr int64_t kThreads = 256, kEach = 4;
  RowsArguments a;
  a.from = from, a.to = to;
  a.columns = columns_, a.from_step = padded(), a.to_step = to_step;
  a.blocks = static_cast<int>((columns_ + kThreads * kEach - 1) / (kThreads * kEach));
  device::LaunchShape shape;
  shape.threads = kThreads;
  shape.blocks = static_cast<uint32_t>(rows * a.blocks);
  void* pointers[] = {&a};
  rows_->launch(stream, shape, pointers);
}

} // namespace tbx::extern_kernels::cuda
