// multiply_integers: a product of dequantised operands is an exact product of their integers, times the
// product of their scales.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <span>

#include "graph/node_attributes.h"
#include "graph/passes/match.h"
#include "graph/passes/passes.h"

namespace tbx::graph {
namespace {

/// What a DequantizeLinear makes floats of.
struct Quantised {
  ValueId values = -1, zero = -1;
  const Tensor* scale = nullptr;
  int64_t axis = 1; ///< of several scales
};

class IntegerProducts {
public:
  IntegerProducts(Graph& graph, int64_t least_group) : e_(graph), g_(graph), least_group_(least_group) {}

  int run() {
    int count = 0;
    std::vector<Node> nodes;
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      std::vector<Node> made = rewritten(g_.nodes[i]);
      count += !made.empty();
      if (made.empty()) made.push_back(g_.nodes[i]);
      std::move(made.begin(), made.end(), std::back_inserter(nodes));
    }
    if (count == 0) return 0;
    g_.nodes = std::move(nodes);
    set_producers(g_);
    return count;
  }

private:
  DType type_of(ValueId id) const { return id < 0 ? DType::undefined : g_.at(id).type.dtype; }

  std::optional<Quantised> quantised(ValueId id) {
    Node* node = e_.producer(id, "DequantizeLinear");
    if (!node || node->inputs.size() < 2 || attribute_or<int64_t>(*node, "block_size", 0) != 0 ||
        type_of(id) != DType::f32)
      return std::nullopt;
    Quantised q{node->inputs[0], node->input(2), f32_constant(g_, node->inputs[1]),
                attribute_or<int64_t>(*node, "axis", 1)};
    if (!q.scale || q.scale->dims.size() > 1 || q.scale->numel() == 0) return std::nullopt;
    return q;
  }

  /// All zero points are the same number, which it returns.
  std::optional<int64_t> one_zero(const Quantised& q) const {
    if (q.zero < 0) return 0;
    const auto& t = g_.at(q.zero).constant;
    if (!t || t->numel() == 0) return std::nullopt;
    std::vector<int64_t> v = to_ints(*t);
    if (std::any_of(v.begin(), v.end(), [&](int64_t x) { return x != v[0]; })) return std::nullopt;
    return v[0];
  }

  std::vector<Node> rewritten(const Node& node) {
    if (!node.domain.empty() || node.inputs.size() < 2 || type_of(node.outputs[0]) != DType::f32) return {};
    if (node.op_type != "Conv" && node.op_type != "MatMul" && node.op_type != "Gemm") return {};
    auto a = quantised(node.inputs[0]), b = quantised(node.inputs[1]);
    if (!a || !b || !is_byte(type_of(a->values)) || !is_byte(type_of(b->values)) || a->scale->numel() != 1)
      return {};
    auto a_zero = one_zero(*a), b_zero = one_zero(*b);
    const auto &a_shape = g_.at(a->values).type.shape, &b_shape = g_.at(b->values).type.shape;
    if (!a_zero || !b_zero || !a_shape || !b_shape || !has_normal_products(*a->scale, *b->scale)) return {};
    if (!sums_fit(node, Factor{a->values, *a_zero}, Factor{b->values, *b_zero})) return {};
    if (node.op_type == "Conv") return convolution(node, *a, *b, b_shape->size(), *b_zero);
    std::vector<Node> made = product(node, *a, *b, a_shape->size(), b_shape->size());
    if (!terms_of(node, b->values))
      for (Node& n : made)
        if (n.op_type == "MatMulInteger")
          n.attributes["most_terms"] = most_terms(Factor{a->values, *a_zero}, Factor{b->values, *b_zero});
    return made;
  }

  /// Integers, and the zero point that is subtracted from each.
  struct Factor {
    ValueId values;
    int64_t zero;
  };

  /// The largest size of one of the integers less its zero point, by its type.
  int64_t most(const Factor& f) const {
    const bool is_signed_type = is_signed(type_of(f.values));
    const int64_t low = is_signed_type ? -128 : 0, high = is_signed_type ? 127 : 255;
    return std::max(f.zero - low, high - f.zero);
  }

  /// Of how many products 32 bits hold the sum, whatever the integers are.
  int64_t most_terms(const Factor& x, const Factor& w) const {
    return std::numeric_limits<int32_t>::max() / (most(x) * most(w));
  }

  /// Of how many products an element of the result is the sum, and how the elements of the weights lie:
  /// element `i` belongs to the sum i / each % results.
  struct Terms {
    int64_t count, each, results;
  };

  /// nullopt where only a run knows.
  std::optional<Terms> terms_of(const Node& node, ValueId weights) const {
    const ir::SymInts& w = *g_.at(weights).type.shape;
    if (w.empty()) return std::nullopt;
    const bool rows = node.op_type == "Conv" || attribute_or<int64_t>(node, "transB", 0) != 0;
    if (rows) {
      const auto count = ir::product(std::span(w).subspan(1)).as_constant(), results = w[0].as_constant();
      return count && results ? std::optional(Terms{*count, std::max<int64_t>(*count, 1), *results})
                              : std::nullopt;
    }
    const auto count = w[w.size() < 2 ? 0 : w.size() - 2].as_constant();
    if (!count) return std::nullopt;
    return Terms{*count, 1, w.size() < 2 ? 1 : w.back().as_constant().value_or(0)};
  }

  /// Whether 32 bits hold every sum: where the types alone do not say so, the weights may. A sum whose terms
  /// only a run counts is checked there (MatMulInteger's `most_terms`).
  bool sums_fit(const Node& node, const Factor& x, const Factor& w) const {
    const std::optional<Terms> terms = terms_of(node, w.values);
    if (!terms || terms->count <= most_terms(x, w)) return true;
    const auto& weights = g_.at(w.values).constant;
    if (!weights || terms->results == 0 || weights->numel() != terms->count * terms->results) return false;
    std::vector<int64_t> sums(terms->results);
    for (int64_t i = 0; i < weights->numel(); ++i)
      sums[i / terms->each % terms->results] += std::abs(element_as_int(*weights, i) - w.zero);
    return std::all_of(
        sums.begin(), sums.end(),
        [most = std::numeric_limits<int32_t>::max() / most(x)](int64_t sum) { return sum <= most; });
  }

  /// What the scales are multiplied to is neither infinite nor rounded below the normal numbers: what each
  /// makes of its integers may be a number all the same.
  static bool has_normal_products(const Tensor& of_a, const Tensor& of_b) {
    const float a = of_a.as<float>()[0];
    const std::span<const float> b = of_b.as<float>();
    return std::all_of(b.begin(), b.end(), [&](float s) { return a == 0 || s == 0 || std::isnormal(a * s); });
  }

  /// The scales multiplied; along `axis` of `rank` dimensions where there are several.
  ValueId scale_of(const Node& node, const Quantised& a, const Quantised& b, size_t rank, size_t axis) {
    std::vector<int64_t> dims;
    if (b.scale->numel() > 1) {
      dims.assign(rank - axis, 1);
      dims[0] = b.scale->numel();
    }
    Tensor t = Tensor::make(DType::f32, dims);
    const std::span<float> to = t.as_mutable<float>();
    const std::span<const float> of_a = a.scale->as<float>(), of_b = b.scale->as<float>();
    for (size_t i = 0; i < to.size(); ++i) to[i] = of_a[0] * of_b[i];
    return e_.add_constant(std::move(t), node.name + ".scale");
  }

  /// A constant bias, plain or dequantised; nullptr where it is neither.
  std::shared_ptr<Tensor> bias_of(ValueId id) {
    if (const Tensor* plain = f32_constant(g_, id)) {
      auto t = std::make_shared<Tensor>(Tensor::make(DType::f32, plain->dims));
      std::copy(plain->as<float>().begin(), plain->as<float>().end(), t->as_mutable<float>().begin());
      return t;
    }
    auto q = quantised(id);
    if (!q || !g_.at(q->values).constant || one_zero(*q) != 0) return nullptr;
    const Tensor& values = *g_.at(q->values).constant;
    const int64_t n = values.numel(), scales = q->scale->numel();
    if (values.dims.size() != 1 || (scales != 1 && scales != n)) return nullptr;
    auto t = std::make_shared<Tensor>(Tensor::make(DType::f32, {n}));
    const std::span<float> to = t->as_mutable<float>();
    const std::span<const float> scale = q->scale->as<float>();
    for (int64_t i = 0; i < n; ++i)
      to[i] = static_cast<float>(element_as_int(values, i)) * scale[scales == 1 ? 0 : i];
    return t;
  }

  /// Fewer results or terms in a group than there are side by side in what multiplies bytes.
  bool is_small(const Node& node, const Tensor& weights) const {
    const int64_t group = attribute_or<int64_t>(node, "group", 1), results = weights.dims[0];
    return results / std::max<int64_t>(1, group) < least_group_ ||
           weights.numel() / std::max<int64_t>(1, results) < least_group_;
  }

  std::vector<Node> convolution(const Node& node, const Quantised& x, const Quantised& w, size_t rank,
                                int64_t w_zero) {
    const bool several = w.scale->numel() > 1;
    const auto& weights = g_.at(w.values).constant;
    // Other weights than these have no library kernel.
    if (!weights || rank < 3 || is_small(node, *weights) ||
        (several && (w.axis != 0 || w.scale->numel() != weights->dims[0])))
      return {};
    if (w_zero != (type_of(w.values) == DType::u8 ? 128 : 0)) return {};
    ValueId bias = -1;
    if (node.input(2) >= 0) {
      auto t = bias_of(node.inputs[2]);
      if (!t || t->numel() != weights->dims[0]) return {};
      t->dims.assign(rank - 1, 1);
      t->dims[0] = weights->dims[0];
      bias = e_.add_constant(std::move(*t), node.name + ".bias");
    }
    Node integer = node;
    integer.op_type = "ConvInteger";
    integer.opset = 10;
    integer.inputs = {x.values, w.values, x.zero, single_zero(w)};
    return scaled(node, std::move(integer), scale_of(node, x, w, rank, 1), bias);
  }

  std::vector<Node> product(const Node& node, const Quantised& a, const Quantised& b, size_t a_rank,
                            size_t b_rank) {
    const bool gemm = node.op_type == "Gemm",
               transposed = gemm && attribute_or<int64_t>(node, "transB", 0) != 0;
    const int64_t axis = b.axis < 0 ? b.axis + static_cast<int64_t>(b_rank) : b.axis;
    // Scales of several columns.
    if (b.scale->numel() > 1 && (b_rank != 2 || axis != (transposed ? 0 : 1) ||
                                 !(*g_.at(b.values).type.shape)[axis].is(b.scale->numel())))
      return {};
    if (a_rank < 1 || b_rank < 1 || (b.scale->numel() > 1 && a_rank < 2)) return {};
    ValueId bias = -1;
    if (gemm) {
      auto is_one = [&](const char* name) { return attribute_or<float>(node, name, 1) == 1; };
      if (attribute_or<int64_t>(node, "transA", 0) != 0 || !is_one("alpha") || !is_one("beta")) return {};
      if (node.input(2) >= 0) {
        auto t = bias_of(node.inputs[2]);
        if (!t) return {};
        bias = e_.add_constant(std::move(*t), node.name + ".bias");
      }
    }
    std::vector<Node> made;
    Node integer = node;
    integer.op_type = "MatMulInteger";
    integer.opset = 10;
    integer.attributes.clear();
    integer.inputs = {a.values, b.values, a.zero, single_zero(b)};
    if (transposed) {
      ValueType type = g_.at(b.values).type;
      std::swap((*type.shape)[0], (*type.shape)[1]);
      ValueId columns = e_.add_value(node.name + ".transposed", type);
      Node t = node;
      t.op_type = "Transpose";
      t.opset = 13;
      t.attributes = {{"perm", std::vector<int64_t>{1, 0}}};
      t.inputs = {b.values};
      t.outputs = {columns};
      integer.inputs[1] = columns;
      made.push_back(std::move(t));
    }
    std::vector<Node> rest = scaled(node, std::move(integer), scale_of(node, a, b, 1, 0), bias);
    std::move(rest.begin(), rest.end(), std::back_inserter(made));
    return made;
  }

  /// Equal zero points as one.
  ValueId single_zero(const Quantised& q) {
    if (q.zero < 0 || g_.at(q.zero).constant->numel() == 1) return q.zero;
    Tensor one = Tensor::make(type_of(q.zero), {});
    one.mutable_data()[0] = g_.at(q.zero).constant->data[0];
    return e_.add_constant(std::move(one), g_.at(q.zero).name);
  }

  /// `integer`, its result as float32, times the scale, plus the bias.
  std::vector<Node> scaled(const Node& node, Node integer, ValueId scale, ValueId bias) {
    const ValueType type = g_.at(node.outputs[0]).type;
    auto value = [&](const char* what, DType dtype) {
      ValueType t = type;
      t.dtype = dtype;
      return e_.add_value(g_.at(node.outputs[0]).name + what, std::move(t));
    };
    auto next = [&](const char* op_type, std::vector<ValueId> inputs, ValueId output) {
      Node n = node;
      n.op_type = op_type;
      n.opset = 13;
      n.attributes.clear();
      n.inputs = std::move(inputs);
      n.outputs = {output};
      return n;
    };
    ValueId sum = value(".sum", DType::i32), real = value(".float", DType::f32);
    integer.outputs = {sum};
    std::vector<Node> made{std::move(integer), next("Cast", {sum}, real)};
    made.back().attributes["to"] = static_cast<int64_t>(DType::f32);
    ValueId product = bias >= 0 ? value(".scaled", DType::f32) : node.outputs[0];
    made.push_back(next("Mul", {real, scale}, product));
    if (bias >= 0) made.push_back(next("Add", {product, bias}, node.outputs[0]));
    return made;
  }

  Editor e_;
  Graph& g_;
  int64_t least_group_; ///< of a convolution
};

} // namespace

int multiply_integers(Graph& graph, const PassContext& context) {
  // Elsewhere float32 is faster.
  const int64_t least = context.target.byte_group;
  return least > 0 ? IntegerProducts(graph, least).run() : 0;
}

} // namespace tbx::graph
