// The bytes of a model file -> ModelProto.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "importer/import.h"
#include "importer/model_bytes.h"
#include "importer/wire.h"

namespace tbx::importer {

/// The raw data of large tensors, which was left where the model has it.
class RawData {
public:
  using Place = Skeleton::Place;

  RawData() = default;
  RawData(ModelBytes bytes, std::vector<Place> places, std::string mark)
      : bytes_(std::move(bytes)), places_(std::move(places)), mark_(std::move(mark)) {}

  /// Nothing where the tensor has what it has.
  std::optional<Place> place_of(const onnx::TensorProto& tensor) const;
  /// As ModelBytes::copy.
  std::shared_ptr<const std::byte> copy(const Place& place);

private:
  std::optional<ModelBytes> bytes_;
  std::vector<Place> places_;
  std::string mark_;
};

/// ModelError when the bytes are no protobuf message, are too deeply nested or too many. Tensors are whole.
onnx::ModelProto parse_model(std::span<const std::byte> bytes, const ImportOptions& options);

struct ParsedModel {
  onnx::ModelProto model;
  RawData raw; ///< of its large tensors
};
/// The same for who reads its tensors with `raw`.
ParsedModel read_model(ModelBytes bytes, const ImportOptions& options);

} // namespace tbx::importer
