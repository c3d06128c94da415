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
  /// A float of 16 bits: the float32 elements there are made that (base/encoded.h). undefined: they are as
  /// they lie there.
  DType encoded = DType::undefined;
  /// Of the elements, once they are read.
  uint64_t bytes_read() const { return encoded == DType::undefined ? bytes : bytes / 2; }
  bool operator==(const TensorPlace&) const = default;
  bool operator<(const TensorPlace& other) const {
    return std::tie(file, at, bytes, encoded) < std::tie(other.file, other.at, other.bytes, other.encoded);
  }
};

/// Memory is known by its owner: as long as this lives, none that comes later is taken for it. Of one thread.
class TensorPlaces {
public:
  /// `memory`, which `owner` keeps and nobody changes, is what the place has.
  void note(const std::shared_ptr<const void>& owner, std::span<const std::byte> memory, std::string file,
            uint64_t at);
  /// `to` is what encoded() made of `from`.
  void note_encoded(const Tensor& from, const Tensor& to);
  /// Nothing: the elements lie in no file, or not so.
  std::optional<TensorPlace> place_of(const Tensor& tensor) const;

private:
  struct Known {
    std::span<const std::byte> memory;
    std::string file;
    uint64_t at;
    DType encoded = DType::undefined; ///< of twice as many bytes
  };
  std::map<std::weak_ptr<const void>, Known, std::owner_less<std::weak_ptr<const void>>> known_;
};

} // namespace tbx::importer
