#include "base/tensor_pool.h"

#include <xxhash.h>

#include <cstring>

#include "base/rounding.h"

namespace tbx {
namespace {

std::span<const std::byte> bytes_of(const Tensor& t) { return {t.data, static_cast<size_t>(t.bytes())}; }

} // namespace

uint64_t TensorPool::add(const Tensor& tensor) {
  const std::span<const std::byte> bytes = bytes_of(tensor);
  if (bytes.empty()) return 0;
  if (const std::optional<uint64_t> number = elsewhere_ ? elsewhere_(tensor) : std::nullopt)
    return kElsewhere | *number;
  const auto place = std::pair(static_cast<const void*>(tensor.data), tensor.bytes());
  if (auto it = by_place_.find(place); it != by_place_.end()) return it->second;
  const auto contents = std::pair(XXH3_64bits(bytes.data(), bytes.size()), tensor.bytes());
  auto [first, last] = by_contents_.equal_range(contents);
  for (; first != last; ++first) {
    const auto& [offset, other] = tensors_[first->second];
    if (std::memcmp(other.data, bytes.data(), bytes.size()) == 0) return offset;
  }
  const uint64_t offset = round_up(bytes_, kTensorAlignment);
  bytes_ = offset + bytes.size();
  by_place_.emplace(place, offset);
  by_contents_.emplace(contents, tensors_.size());
  tensors_.emplace_back(offset, tensor); // keeps the memory, so that no other tensor comes to lie there
  return offset;
}

void TensorPool::for_each_piece(const std::function<void(std::span<const std::byte>)>& fn) const {
  static constexpr std::byte kZeros[kTensorAlignment] = {};
  uint64_t at = 0;
  for (const auto& [offset, tensor] : tensors_) {
    if (offset > at) fn({kZeros, static_cast<size_t>(offset - at)});
    fn(bytes_of(tensor));
    at = offset + static_cast<uint64_t>(tensor.bytes());
  }
}

std::string TensorPool::to_string() const {
  std::string all;
  all.reserve(bytes_);
  for_each_piece([&](std::span<const std::byte> piece) {
    all.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  });
  return all;
}

} // namespace tbx
