// TensorPool: the elements of tensors one after the other, as they lie in a file: aligned, equal ones once.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/tensor.h"

namespace tbx {

inline constexpr size_t kTensorAlignment = 64;

/// Set in the offset of what lies somewhere else; the other bits number it.
inline constexpr uint64_t kElsewhere = uint64_t{1} << 63;

/// The bytes of a pool where they lie now.
struct TensorMemory {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner; ///< keeps them
  bool file_mapped = false;          ///< as Tensor::file_mapped
  /// What the pool's `Elsewhere` numbered so, as many bytes. Throws Error (model) where there is no such
  /// thing. Empty: nothing lies elsewhere.
  std::function<TensorMemory(uint64_t number, uint64_t bytes)> elsewhere = {};
};

class TensorPool {
public:
  /// The number of a tensor whose elements need not be here, since who reads the pool has them.
  using Elsewhere = std::function<std::optional<uint64_t>(const Tensor&)>;
  explicit TensorPool(Elsewhere elsewhere = {}) : elsewhere_(std::move(elsewhere)) {}

  /// Where its elements begin. The tensor is kept, not copied, unless it lies elsewhere.
  uint64_t add(const Tensor& tensor);
  uint64_t bytes() const { return bytes_; }
  /// The pool's bytes in order, in pieces.
  void for_each_piece(const std::function<void(std::span<const std::byte>)>& fn) const;
  std::string to_string() const;

private:
  Elsewhere elsewhere_;
  uint64_t bytes_ = 0;
  std::vector<std::pair<uint64_t, Tensor>> tensors_;                ///< by offset
  std::map<std::pair<const void*, int64_t>, uint64_t> by_place_;    ///< memory that is known
  std::multimap<std::pair<uint64_t, int64_t>, size_t> by_contents_; ///< hash, bytes: in tensors_
};

} // namespace tbx
