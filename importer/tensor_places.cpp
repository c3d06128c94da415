#include "importer/tensor_places.h"

#include <utility>

namespace tbx::importer {

void TensorPlaces::note(const std::shared_ptr<const void>& owner, std::span<const std::byte> memory,
                        std::string file, uint64_t at) {
  known_.insert_or_assign(owner, Known{memory, std::move(file), at});
}

void TensorPlaces::note_encoded(const Tensor& from, const Tensor& to) {
  const std::optional<TensorPlace> place = place_of(from);
  if (!place || place->encoded != DType::undefined || !to.owner) return;
  const std::span memory(static_cast<const std::byte*>(to.data), static_cast<size_t>(to.bytes()));
  known_.insert_or_assign(to.owner, Known{memory, place->file, place->at, to.dtype});
}

std::optional<TensorPlace> TensorPlaces::place_of(const Tensor& tensor) const {
  if (!tensor.owner || tensor.dtype == DType::string) return std::nullopt;
  const auto it = known_.find(tensor.owner);
  if (it == known_.end()) return std::nullopt;
  const Known& known = it->second;
  const auto bytes = static_cast<uint64_t>(tensor.bytes());
  const auto begin = reinterpret_cast<uintptr_t>(known.memory.data());
  const auto first = reinterpret_cast<uintptr_t>(tensor.data);
  if (first < begin || first - begin > known.memory.size() || bytes > known.memory.size() - (first - begin))
    return std::nullopt;
  const uint64_t wide = known.encoded == DType::undefined ? 1 : 2;
  return TensorPlace{known.file, known.at + wide * (first - begin), wide * bytes, known.encoded};
}

} // namespace tbx::importer
