// Graphs written by hand, lowered and run on the evaluator.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "lowering/lower.h"

namespace tbx::test {

/// Builds a graph node by node.
class GraphHelper {
public:
  GraphHelper() { graph.context = std::make_shared<ir::Context>(); }
  ValueId input(const std::string& name, DType dtype, ir::SymInts shape);
  ValueId constant(Tensor t);
  /// One node of ai.onnx; gives its first output.
  ValueId node(const std::string& op, std::vector<ValueId> inputs,
               std::map<std::string, Attribute> attributes = {}, int opset = 20, int outputs = 1);
  void output(ValueId v) { graph.outputs.push_back(v); }
  ir::SymInt symbol(const std::string& name) { return graph.context->symbol(name); }

  Graph graph;
};

Tensor tensor(std::vector<int64_t> dims, std::vector<float> values);
Tensor ints(std::vector<int64_t> dims, std::vector<int64_t> values);
Tensor booleans(std::vector<int64_t> dims, std::vector<int> values);
std::vector<double> values_of(const Tensor& t);

/// The text of the Error that `f` throws, "no error" where it throws none.
std::string error_of(const std::function<void()>& f);

/// Result 0 of one node on constant-free inputs.
Tensor run_node(const std::string& op, const std::vector<Tensor>& inputs,
                std::map<std::string, Attribute> attributes = {}, int opset = 20);

} // namespace tbx::test
