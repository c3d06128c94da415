// The order in which the nodes of a graph can be read.
#pragma once

#include <onnx/onnx_pb.h>

#include <vector>

namespace tbx::importer {

/// Indices of `nodes` such that each comes after those that make its inputs; the file's own order wherever
/// that is one. ONNX demands sorted nodes, but converters that insert casts leave them at the end, and other
/// runtimes read such models. ModelError when nodes need each other in a circle.
std::vector<int> topological_order(const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes);

} // namespace tbx::importer
