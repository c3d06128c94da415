// TensorPlaces: where in the files of a model the elements of tensors lie, for who can read them there again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>

#include "base/tensor.h"

namespace tbx::importer {

/// A range of the model ("") or of the file at a location of external data.
struct TensorPlace {
  std::string file;
  uint64_t at = 0, bytes = 0;
  bool operator==(const TensorPlace&) const = default;
  bool operator<(const TensorPlace& other) const {
    return std::tie(file, at, bytes) < std::tie(other.file, other.at, other.bytes);
  }
};

/// Memory is known by its owner: as long as this lives, none that comes later is taken for it. Of one thread.
class TensorPlaces {
public:
  /// `memory`, which `owner` keeps and nobody changes, is what the place has.
  void note(const std::shared_ptr<const void>& owner, std::span<const std::byte> memory, std::string file,
            uint64_t at);
  /// Nothing: the elements lie in no file, or not so.
  std::optional<TensorPlace> place_of(const Tensor& tensor) const;

private:
  struct Known {
    std::span<const std::byte> memory;
    std::string file;
    uint64_t at;
  };
  std::map<std::weak_ptr<const void>, Known, std::owner_less<std::weak_ptr<const void>>> known_;
};

} // namespace tbx::importer
