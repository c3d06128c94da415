// The bytes of a model file -> ModelProto.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstddef>
#include <span>

#include "importer/import.h"

namespace tbx::importer {

/// ModelError when the bytes are no protobuf message, are too deeply nested or too many.
onnx::ModelProto parse_model(std::span<const std::byte> bytes, const ImportOptions& options);

} // namespace tbx::importer
