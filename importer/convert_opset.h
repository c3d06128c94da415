// ModelProto bytes under another version of the operator set, by ONNX's version converter.
#pragma once

#include <string>

namespace tbx {

/// The model with all its nodes of ai.onnx as `opset` spells them. `bytes` holds all constants. ModelError
/// when there is no such version, UnsupportedError with the converter's reason when it knows no way for a
/// node.
std::string convert_opset(const std::string& bytes, int opset);

} // namespace tbx
