// narrow_row_weights: where products of a narrower float are no faster than those of float32, `precision`
// still halves what a product of one row waits for, which is reading its weights from memory. They become
// constants of that type behind a Cast, which the kernel sees through; everything is computed in float32. So
// do weights of products whose rows are counted later only, as those of decoders often are: kernels of many
// rows widen them when they are packed.
#include <map>
#include <span>
#include <utility>

#include "graph/node_attributes.h"
#include "graph/passes/match.h"
#include "graph/passes/narrow.h"
#include "graph/passes/passes.h"

namespace tbx::graph {
namespace {

class RowNarrower {
public:
  RowNarrower(Graph& graph, const PassContext& context)
      : e_(graph), g_(graph), context_(context), type_(context.row_weights) {}

  int run() {
    int count = 0;
    before_ = std::exchange(g_.nodes, {});
    for (const Node& old : before_) {
      Node node = old;
      if (may_have_one_row(node))
        if (const ValueId weights = narrowed(node.inputs[1]); weights >= 0) {
          node.inputs[1] = weights;
          ++count;
        }
      g_.nodes.push_back(std::move(node));
    }
    set_producers(g_);
    return count;
  }

private:
  bool may_have_one_row(const Node& node) const {
    if (!node.domain.empty() || (node.op_type != "MatMul" && node.op_type != "Gemm")) return false;
    if (node.op_type == "Gemm" && attribute_or<int64_t>(node, "transA", 0) != 0) return false;
    const Value& x = g_.at(node.inputs[0]);
    if (x.constant || x.type.dtype != DType::f32) return false;
    if (!x.type.shape || x.type.shape->empty()) return !x.type.shape;
    const auto rows = ir::product(std::span(*x.type.shape).first(x.type.shape->size() - 1)).as_constant();
    return !rows || *rows == 1;
  }

  /// The same weights as float32 behind a Cast of the narrow constant; -1: they are no constant matrix, or
  /// beyond the range of the type.
  ValueId narrowed(ValueId weights) {
    const Node* turn = transpose_of_matrix(g_, before_, weights);
    const ValueId from = turn ? turn->inputs[0] : weights;
    const Tensor* matrix = f32_constant(g_, from);
    if (!matrix || matrix->dims.size() != 2) return -1;
    auto [it, fresh] = narrowed_.try_emplace(weights, -1);
    if (!fresh) return it->second;
    auto tensor = narrow_constant(type_, *matrix, context_);
    if (!tensor) return -1;
    ValueId narrow = e_.add_constant(std::move(*tensor), g_.at(from).name);
    if (turn) {
      Node n = *turn;
      n.inputs = {narrow};
      n.outputs = {narrow = e_.add_value(g_.at(weights).name, g_.at(weights).type)};
      g_.at(narrow).type.dtype = type_;
      g_.nodes.push_back(std::move(n));
    }
    it->second = e_.add_value(g_.at(weights).name, g_.at(weights).type);
    Node cast;
    cast.name = g_.at(weights).name + "/as_float32";
    cast.op_type = "Cast";
    cast.opset = 13;
    cast.inputs = {narrow};
    cast.outputs = {it->second};
    cast.attributes["to"] = static_cast<int64_t>(DType::f32);
    g_.nodes.push_back(std::move(cast));
    return it->second;
  }

  Editor e_;
  Graph& g_;
  const PassContext& context_;
  DType type_;
  std::vector<Node> before_;            ///< the nodes as they were
  std::map<ValueId, ValueId> narrowed_; ///< weights -> what stands for them
};

} // namespace

int narrow_row_weights(Graph& graph, const PassContext& context) {
  return context.row_weights == DType::undefined ? 0 : RowNarrower(graph, context).run();
}

} // namespace tbx::graph
