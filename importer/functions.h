// The functions a model defines: found by call, checked for cycles and for the size of their expansion.
#pragma once

#include <onnx/onnx_pb.h>

#include <string>
#include <unordered_map>

#include "importer/import.h"

namespace tbx::importer {

/// Domain -> version, with ai.onnx spelt "".
using OpsetImports = std::unordered_map<std::string, int>;

/// ModelError on duplicates and on versions that cannot be.
OpsetImports read_opset_imports(const google::protobuf::RepeatedPtrField<onnx::OperatorSetIdProto>& imports,
                                const std::string& what);

class Functions {
public:
  struct Function {
    onnx::FunctionProto* proto;
    OpsetImports opsets;
    std::string label;       ///< domain:name, for messages
    int64_t total_nodes = 0; ///< after expanding all calls; saturates
    int depth = 0;           ///< longest chain of calls below it, plus one
  };

  /// Checks all functions of the model before any is expanded: unique ids, no recursion (also through the
  /// subgraphs of their nodes), and budgets for depth and for the nodes that the main graph expands to. No
  /// native recursion.
  Functions(onnx::ModelProto& model, const ImportOptions& options);

  /// The function that a node calls, or nullptr.
  const Function* find(const onnx::NodeProto& node) const;

private:
  std::unordered_map<std::string, Function> by_id_;
};

} // namespace tbx::importer
