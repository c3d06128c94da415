// A dense tensor in host memory: the form of constants, API values and evaluator results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace tbx {

/// The product of dimensions, checked: ModelError when a dimension is negative or the product overflows
/// int64.
int64_t checked_numel(std::span<const int64_t> dims);

/// Row-major dense tensor. The bytes are shared and immutable once published (`mutable_data` is for the
/// maker): owned memory, or a view of a mapped file kept alive by `owner`. Sub-byte types hold one element
/// per byte. String tensors keep their elements in `strings` and have no bytes.
struct Tensor {
  DType dtype = DType::undefined;
  std::vector<int64_t> dims;
  const std::byte* data = nullptr;
  std::shared_ptr<const void> owner;
  bool file_mapped = false; ///< `data` lies in a read-only mapping of a file
  std::shared_ptr<std::vector<std::string>> strings;

  /// Allocates zeroed storage, 64-byte aligned. Needs dims >= 0.
  static Tensor make(DType dtype, std::vector<int64_t> dims);
  static Tensor of_strings(std::vector<int64_t> dims, std::vector<std::string> values);
  /// 1-D int64 tensor.
  static Tensor of_ints(std::span<const int64_t> values);

  int64_t numel() const;
  int64_t bytes() const { return numel() * size_of(dtype); }
  std::byte* mutable_data() { return const_cast<std::byte*>(data); }
  template <class T> std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data), static_cast<size_t>(numel())};
  }
  template <class T> std::span<T> as_mutable() {
    return {reinterpret_cast<T*>(mutable_data()), static_cast<size_t>(numel())};
  }
};

/// Gives back the memory of a file-mapped tensor that is not needed soon (weights packed into another
/// layout): its pages stay in the page cache and come back when they are read. Nothing happens to other
/// tensors.
void drop_pages(const Tensor& t);

/// Element `i` of any real numeric tensor (bool as 0/1) as double, or as int64 (floats truncate and saturate,
/// NaN is 0).
double element_as_double(const Tensor& t, int64_t i);
int64_t element_as_int(const Tensor& t, int64_t i);
/// All elements of an integer or bool tensor as int64.
std::vector<int64_t> to_ints(const Tensor& t);

} // namespace tbx
