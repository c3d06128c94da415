#include "extern_kernels/onednn/batches.h"

#include <algorithm>
#include <optional>

namespace tbx::extern_kernels::onednn {
namespace {

/// Whether `t` steps through the dimensions `outer` and `inner` of a result, of more than one element each,
/// as through one.
bool is_one_step(const TensorRef& t, size_t outer, size_t inner) {
  if (t.sizes[outer] == 1 || t.sizes[inner] == 1) return t.sizes[outer] == t.sizes[inner];
  return t.strides[outer] == t.strides[inner] * t.sizes[inner];
}

} // namespace

bool interleaves_batches(const TensorRef& t) {
  const size_t rank = t.sizes.size();
  int64_t inside = 0;
  for (size_t d = rank - 2; d < rank; ++d)
    if (t.sizes[d] > 1) inside = std::max(inside, t.strides[d]);
  for (size_t d = 0; d + 2 < rank; ++d)
    if (t.sizes[d] > 1 && t.strides[d] < inside) return true;
  return false;
}

Batches::Batches(std::span<const TensorRef> inputs, const TensorRef& result)
    : rank_(result.sizes.size()),
      interleaved_(interleaves_batches(inputs[0]) || interleaves_batches(inputs[1])) {
  std::optional<size_t> outer; // the last of the dimension so far that has more than one element
  for (size_t d = 0; d + 2 < rank_; ++d) {
    auto joins = [&](const TensorRef& t) { return t.sizes.size() != rank_ || is_one_step(t, *outer, d); };
    const bool has_outer = result.sizes[d] > 1 && outer;
    if (d > 0 && (!has_outer || (joins(result) && std::all_of(inputs.begin(), inputs.end(), joins))))
      joined_.back().second = d + 1;
    else
      joined_.emplace_back(d, d + 1);
    if (result.sizes[d] > 1) outer = d;
  }
}

dnnl::memory::desc Batches::describe(const TensorRef& t) const {
  if (!interleaved_ || joined_.size() > 2 || t.sizes.size() != rank_)
    return onednn::describe(t.sizes, t.strides, t.dtype);
  std::vector<int64_t> sizes, strides;
  if (joined_.size() == 1) {
    sizes.push_back(1);
    strides.push_back(0);
  }
  for (const auto& [first, end] : joined_) {
    sizes.push_back(1);
    strides.push_back(0);
    for (size_t d = first; d < end; ++d)
      if (t.sizes[d] > 1) {
        sizes.back() *= t.sizes[d];
        strides.back() = t.strides[d];
      }
  }
  sizes.insert(sizes.end(), t.sizes.end() - 2, t.sizes.end());
  strides.insert(strides.end(), t.strides.end() - 2, t.strides.end());
  return onednn::describe(sizes, strides, t.dtype);
}

} // namespace tbx::extern_kernels::onednn
