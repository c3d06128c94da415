// A look over the protobuf bytes of a model before protobuf builds anything from them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "importer/import.h"
#include "importer/model_bytes.h"

namespace tbx::importer {

/// ModelError when the bytes are not a sequence of well-formed fields, when graphs are nested too deeply, or
/// when there are so many nodes or parts that parsing would take memory out of proportion: an empty message
/// is two bytes in the file and hundreds in memory. Raw tensor data is stepped over, so the cost is that of
/// the graph alone.
void check_wire(ModelBytes& bytes, const ImportOptions& options);

/// Of so many bytes on, raw data of a tensor is worth memory of its own.
inline constexpr size_t kLargeRawData = 4096;

/// A model without the raw data of its large tensors, which protobuf would copy: it is left where it lies,
/// and the tensor says in its doc_string which it is. Those of other tensors are left out.
struct Skeleton {
  struct Place {
    size_t at, bytes;
  };
  std::string text;          ///< for protobuf
  std::vector<Place> places; ///< of the raw data in the model
  std::string mark;          ///< what the doc_string begins with; the number of the place follows
};

/// As check_wire. Nothing where a message has two tensors that protobuf joins to one: it is to have all of
/// the model then.
std::optional<Skeleton> skeleton_of(ModelBytes& bytes, const ImportOptions& options);

} // namespace tbx::importer
