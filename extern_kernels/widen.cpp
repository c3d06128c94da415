#include "extern_kernels/widen.h"

#include <tbb/parallel_for.h>

#include <algorithm>

#include "base/float_formats.h"
#include "base/memory.h"
#include "base/task_work.h"

namespace tbx::extern_kernels {

void widen(DType from, const void* elements, int64_t count, float* to) {
  constexpr int64_t kChunk = kTaskWork.converted_elements;
  const auto* bits = static_cast<const uint16_t*>(elements);
  tbb::parallel_for(int64_t{0}, (count + kChunk - 1) / kChunk, [&](int64_t c) {
    const int64_t begin = c * kChunk, n = std::min(kChunk, count - begin);
    decode_halves(from, bits + begin, n, to + begin);
  });
}

std::shared_ptr<const Tensor> widened(const std::shared_ptr<const Tensor>& t) {
  if (!is_half(t->dtype)) return t;
  Tensor wide;
  wide.dtype = DType::f32;
  wide.dims = t->dims;
  // Written once, read once and given back: zeros would be a third time.
  std::shared_ptr<void> memory = allocate_pages(wide.bytes(), Pages::huge);
  wide.data = static_cast<const std::byte*>(memory.get());
  wide.owner = std::move(memory);
  widen(t->dtype, t->data, t->numel(), wide.as_mutable<float>().data());
  drop_pages(*t);
  return std::make_shared<const Tensor>(std::move(wide));
}

} // namespace tbx::extern_kernels
