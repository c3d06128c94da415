// ONNX's own type and shape inference, applied to one node of a graph under construction.
#pragma once

#include <onnx/defs/schema.h>
#include <onnx/onnx_pb.h>

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace tbx::importer {

/// What inference knows of a value; lies beside Graph::values while the graph is built.
struct ValueFacts {
  onnx::TypeProto type; ///< VALUE_NOT_SET: unknown
  /// The value itself, where it is a list of integers that shape computations produced.
  std::optional<onnx::TensorShapeProto> data;
  std::shared_ptr<const Tensor> constant;
  std::unique_ptr<onnx::TensorProto> constant_proto; ///< `constant` for ONNX, made when asked for
};

/// One node as ONNX's inference functions see it: attributes resolved, inputs by value and not by name.
struct NodeView {
  const onnx::NodeProto& proto;
  const onnx::OpSchema* schema; ///< nullptr: no inference, only subgraphs
  std::unordered_map<std::string, onnx::AttributeProto*> attributes;
  std::vector<ValueFacts*> inputs; ///< nullptr: left out
  onnx::GraphInferencer* (*subgraph)(void* owner, const std::string& attribute) = nullptr;
  void* owner = nullptr;
};

struct InferredOutputs {
  std::vector<onnx::TypeProto> types;
  std::vector<std::optional<onnx::TensorShapeProto>> data;
};

/// With `check_types` types are those the schema lists.
/// ModelError when types contradict the operator, or when `strict` and fully known input shapes do. Other
/// failures of inference leave the outputs' shapes unknown: the lowering computes and checks all shapes
/// again.
InferredOutputs infer_outputs(NodeView& node, bool strict, bool check_types = true);

} // namespace tbx::importer
