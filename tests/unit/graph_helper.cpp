// Graphs written by hand for tests.
#include "graph_helper.h"

#include "base/error.h"
#include "lowering/extern_run.h"
#include "lowering/reference_run.h"

namespace tbx::test {

ValueId GraphHelper::input(const std::string& name, DType dtype, ir::SymInts shape) {
  Value v;
  v.name = name;
  v.type.kind = ValueType::tensor;
  v.type.dtype = dtype;
  v.type.shape = std::move(shape);
  graph.values.push_back(std::move(v));
  auto id = static_cast<ValueId>(graph.values.size()) - 1;
  graph.inputs.push_back(id);
  return id;
}

ValueId GraphHelper::constant(Tensor t) {
  Value v;
  v.name = "c" + std::to_string(graph.values.size());
  v.constant = std::make_shared<const Tensor>(std::move(t));
  graph.values.push_back(std::move(v));
  return static_cast<ValueId>(graph.values.size()) - 1;
}

ValueId GraphHelper::node(const std::string& op, std::vector<ValueId> inputs,
                          std::map<std::string, Attribute> attributes, int opset, int outputs) {
  Node n;
  n.name = op + std::to_string(graph.nodes.size());
  n.op_type = op;
  n.opset = opset;
  n.inputs = std::move(inputs);
  n.attributes = std::move(attributes);
  n.origin = static_cast<int>(graph.nodes.size());
  for (int i = 0; i < outputs; ++i) {
    Value v;
    v.name = n.name + "_" + std::to_string(i);
    v.producer = static_cast<int>(graph.nodes.size());
    graph.values.push_back(std::move(v));
    n.outputs.push_back(static_cast<ValueId>(graph.values.size()) - 1);
  }
  graph.nodes.push_back(n);
  graph.origins.push_back(n.name);
  return n.outputs[0];
}

Tensor tensor(std::vector<int64_t> dims, std::vector<float> values) {
  Tensor t = Tensor::make(DType::f32, std::move(dims));
  std::copy(values.begin(), values.end(), t.as_mutable<float>().begin());
  return t;
}

Tensor ints(std::vector<int64_t> dims, std::vector<int64_t> values) {
  Tensor t = Tensor::of_ints(values);
  t.dims = std::move(dims);
  return t;
}

Tensor booleans(std::vector<int64_t> dims, std::vector<int> values) {
  Tensor t = Tensor::make(DType::boolean, std::move(dims));
  for (size_t i = 0; i < values.size(); ++i) t.as_mutable<uint8_t>()[i] = values[i] != 0;
  return t;
}

std::vector<double> values_of(const Tensor& t) {
  std::vector<double> out;
  for (int64_t i = 0; i < t.numel(); ++i) out.push_back(element_as_double(t, i));
  return out;
}

Tensor run_node(const std::string& op, const std::vector<Tensor>& inputs,
                std::map<std::string, Attribute> attributes, int opset) {
  GraphHelper h;
  std::vector<ValueId> ids;
  for (size_t i = 0; i < inputs.size(); ++i)
    ids.push_back(
        h.input("x" + std::to_string(i), inputs[i].dtype, {inputs[i].dims.begin(), inputs[i].dims.end()}));
  h.output(h.node(op, ids, std::move(attributes), opset));
  return lowering::run_program(lowering::lower_or_throw(h.graph), inputs, lowering::run_host).at(0);
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

} // namespace tbx::test
