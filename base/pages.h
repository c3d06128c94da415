// Parts of mapped tensors that are not needed soon.
#pragma once

#include "base/tensor.h"

namespace tbx {

/// drop_pages for `bytes` of the tensor from `begin` on.
void drop_pages(const Tensor& t, const void* begin, int64_t bytes);

} // namespace tbx
