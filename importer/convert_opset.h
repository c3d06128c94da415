// ModelProto bytes under another version of the operator set, by ONNX's version converter.
#pragma once

#include <string>

#include "graph/graph.h"

namespace tbx {

/// The model with all its nodes of ai.onnx as `opset` spells them, and all constants. ModelError when there
/// is no such version, UnsupportedError with the reason when there is no way for a node.
std::string convert_opset(const Graph& graph, int opset);

} // namespace tbx
