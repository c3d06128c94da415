// Small ONNX models for tests, written in ONNX's text form.
#pragma once

#include <gtest/gtest.h>
#include <onnx/defs/parser.h>
#include <onnx/onnx_pb.h>

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>

#include "importer/import.h"

namespace tbx::test {

/// Parses a whole model in ONNX's text form ("<ir_version: 8, opset_import: [...]> name (...) => (...)
/// {...}").
inline onnx::ModelProto parse_text(const std::string& text) {
  onnx::ModelProto model;
  auto status = onnx::OnnxParser::Parse(model, text);
  if (!status.IsOK()) throw std::runtime_error(status.ErrorMessage() + "\nin\n" + text);
  return model;
}

/// The same with the usual header: IR version 10, operator set 21.
inline onnx::ModelProto parse_graph(const std::string& text) {
  return parse_text("<ir_version: 10, opset_import: [\"\": 21, \"local\": 1]>\n" + text);
}

inline std::string to_bytes(const onnx::ModelProto& model) { return model.SerializeAsString(); }

inline Graph import_bytes(const std::string& bytes, const ImportOptions& options = {}) {
  return import_model(std::as_bytes(std::span(bytes)), options);
}

inline Graph import_proto(const onnx::ModelProto& model, const ImportOptions& options = {}) {
  return import_bytes(to_bytes(model), options);
}

inline Graph import_text(const std::string& text, const ImportOptions& options = {}) {
  return import_proto(parse_graph(text), options);
}

/// The value called `name`, or -1.
inline ValueId find_value(const Graph& graph, const std::string& name) {
  for (size_t i = 0; i < graph.values.size(); ++i)
    if (graph.values[i].name == name) return static_cast<ValueId>(i);
  return -1;
}

} // namespace tbx::test
