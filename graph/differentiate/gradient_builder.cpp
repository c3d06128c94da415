#include "graph/differentiate/gradient_rules.h"

#include <set>

#include "base/error.h"
#include "graph/names.h"
#include "graph/node_attributes.h"

namespace tbx::graph {

namespace {

/// The type of the result of a node; a shape only where the rules rely on it.
ValueType result_type(const std::string& op, const ValueType& input, const ValueType& like) {
  static const std::set<std::string> compares = {"Equal", "Greater", "Less"},
                                     reshapes = {"Gather", "ReduceSum", "Transpose", "Unsqueeze"};
  ValueType t = like;
  if (op == "Shape" || op == "Size") {
    t.dtype = DType::i64;
    t.shape.reset();
    if (op == "Size") t.shape = ir::SymInts{};
    if (op == "Shape" && input.shape) t.shape = ir::SymInts{static_cast<int64_t>(input.shape->size())};
  }
  if (compares.count(op)) t.dtype = DType::boolean;
  if (op == "CastLike") t.shape = input.shape;
  if (reshapes.count(op)) t.shape.reset();
  return t;
}

} // namespace

ValueId GradientBuilder::emit(const std::string& op, std::vector<ValueId> inputs, ValueId like,
                              std::map<std::string, Attribute> attributes) {
  Value v;
  v.type = result_type(op, type(inputs.at(0)), type(like));
  v.name = fmt::format("{}'{}", graph.at(like).name, graph.values.size());
  auto id = static_cast<ValueId>(graph.values.size());
  graph.values.push_back(std::move(v));
  Node n;
  n.op_type = op;
  n.opset = 18;
  n.origin = origin_;
  n.inputs = std::move(inputs);
  n.outputs = {id};
  n.attributes = std::move(attributes);
  nodes_.push_back(std::move(n));
  return id;
}

ValueId GradientBuilder::ints(const std::vector<int64_t>& values) {
  Value v;
  v.name = fmt::format("ints'{}", graph.values.size());
  v.type = {ValueType::tensor, DType::i64, ir::SymInts{static_cast<int64_t>(values.size())}, nullptr};
  v.constant = std::make_shared<const Tensor>(Tensor::of_ints(values));
  graph.values.push_back(std::move(v));
  return static_cast<ValueId>(graph.values.size()) - 1;
}

namespace {

/// Types that constants are made of; the others are converted to.
bool is_plain(DType type) { return type == DType::f32 || type == DType::f64; }

std::shared_ptr<const Tensor> one_number(DType type, std::vector<int64_t> dims, double value) {
  Tensor t = Tensor::make(is_plain(type) ? type : DType::f32, std::move(dims));
  if (t.dtype == DType::f64)
    t.as_mutable<double>()[0] = value;
  else
    t.as_mutable<float>()[0] = static_cast<float>(value);
  return std::make_shared<const Tensor>(std::move(t));
}

} // namespace

ValueId GradientBuilder::number(ValueId like, double value) {
  Value v;
  v.name = fmt::format("number'{}", graph.values.size());
  v.constant = one_number(type(like).dtype, {}, value);
  v.type = {ValueType::tensor, v.constant->dtype, ir::SymInts{}, nullptr};
  graph.values.push_back(std::move(v));
  auto id = static_cast<ValueId>(graph.values.size()) - 1;
  return is_plain(type(like).dtype) ? id : emit("CastLike", {id, like}, like);
}

ValueId GradientBuilder::filled(ValueId like, double value) {
  return as_like(emit("ConstantOfShape", {emit("Shape", {like}, like)}, like,
                      {{"value", one_number(type(like).dtype, {1}, value)}}),
                 like);
}

ValueId GradientBuilder::as_like(ValueId v, ValueId like) {
  if (is_plain(type(like).dtype)) return v;
  graph.at(v).type.dtype = DType::f32;
  return emit("CastLike", {v, like}, like);
}

const ir::SymInts& GradientBuilder::sizes(ValueId v) const {
  if (!type(v).shape) throw_unsupported("the gradient of {}, whose rank is unknown", shown(graph.at(v).name));
  return *type(v).shape;
}

ValueId GradientBuilder::reshape_like(ValueId g, ValueId x, DType type) {
  ValueId out = emit("Reshape", {g, emit("Shape", {x}, x)}, x);
  if (type != DType::undefined) graph.at(out).type.dtype = type;
  return out;
}

ValueId GradientBuilder::full(ValueId sizes, ValueId like, double value) {
  return as_like(
      emit_any("ConstantOfShape", {sizes}, like, {{"value", one_number(type(like).dtype, {1}, value)}}),
      like);
}

ValueId GradientBuilder::emit_any(const std::string& op, std::vector<ValueId> inputs, ValueId like,
                                  std::map<std::string, Attribute> attributes) {
  ValueId out = emit(op, std::move(inputs), like, std::move(attributes));
  graph.at(out).type.shape.reset();
  return out;
}

void GradientBuilder::append(Node& node, DType type) {
  for (ValueId& id : node.outputs) {
    if (id < 0) continue;
    Value v = graph.at(id);
    v.name = fmt::format("{}'{}", v.name, graph.values.size());
    v.type.dtype = type;
    v.constant = nullptr;
    id = static_cast<ValueId>(graph.values.size());
    graph.values.push_back(std::move(v));
  }
  node.origin = origin_;
  nodes_.push_back(node);
}

void GradientBuilder::push(Node node) {
  node.origin = origin_;
  nodes_.push_back(std::move(node));
}

ValueId GradientBuilder::sum_to(ValueId g, ValueId result, ValueId x) {
  const ir::SymInts from = sizes(result), to = sizes(x);
  size_t extra = from.size() - to.size();
  std::vector<int64_t> axes;
  for (size_t d = 0; d < from.size(); ++d) {
    if (d >= extra && to[d - extra] == from[d]) continue;
    if (d >= extra && !to[d - extra].is(1))
      throw_unsupported("the gradient of {}: whether dimension {} is broadcast is not known while compiling",
                        shown(graph.at(x).name), d - extra);
    axes.push_back(static_cast<int64_t>(d));
  }
  if (axes.empty()) return g;
  ValueId sum = emit("ReduceSum", {g, ints(axes)}, g, {{"keepdims", int64_t{1}}});
  return reshape_like(sum, x);
}

int64_t RuleCall::integer(const char* name, int64_t otherwise) const {
  return attribute_or<int64_t>(node, name, otherwise);
}

double RuleCall::real(const char* name, double otherwise) const {
  const auto* v = find_attribute<float>(node, name);
  return v ? *v : otherwise;
}

std::string RuleCall::text(const char* name, const char* otherwise) const {
  return attribute_or<std::string>(node, name, otherwise);
}

std::vector<int64_t> RuleCall::integers(const char* name) const {
  return attribute_or<std::vector<int64_t>>(node, name, {});
}

} // namespace tbx::graph
