#include "importer/tensor_places.h"

#include <utility>

namespace tbx::importer {

void TensorPlaces::note(const std::shared_ptr<const void>& owner, std::span<const std::byte> memory,
                        std::string file, uint64_t at) {
  known_.insert_or_assign(owner, Known{memory, std::move(file), at});
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
  return TensorPlace{known.file, known.at + (first - begin), bytes};
}

} // namespace tbx::importer
