// keep_weights_packed: a product with weights that the model stores as 8- or 4-bit integers with scales
// becomes com.microsoft MatMulNBits, whose kernel reads the integers. As floats they would be four or eight
// times the bytes, which is what products of few rows wait for; with many rows it takes as long as with
// floats. GPUs have no kernel for many rows: where the model always has them, the weights become floats
// there.
#include <algorithm>
#include <span>

#include "graph/node_attributes.h"
#include "graph/passes/match.h"
#include "graph/passes/passes.h"

namespace tbx::graph {
namespace {

constexpr int64_t kMinElements = 1024; ///< smaller weights may as well be floats
constexpr int64_t kMostRowsOnGpu = 24;
constexpr int64_t kLeastBlock = 16, kMostBlock = 128;

/// Constant integers [k, n], or [n, k] where they are transposed, and what makes numbers of them.
struct Weights {
  const Tensor *values = nullptr, *scales = nullptr, *zeros = nullptr;
  int64_t k = 0, n = 0, block = 0; ///< block: along k
  int bits = 8;
  bool transposed = false, per_block = false, per_column = false;

  int64_t blocks() const { return (k + block - 1) / block; }
  /// Where the scale of a block of a column is.
  int64_t scale_at(int64_t column, int64_t b) const {
    if (per_block) return transposed ? column * blocks() + b : b * n + column;
    return per_column ? column : 0;
  }
};

class Packer {
public:
  Packer(Graph& graph, bool cuda) : e_(graph), g_(graph), cuda_(cuda) {}

  int run() {
    int count = 0;
    for (Node& node : g_.nodes) {
      if (!node.domain.empty() || (node.op_type != "MatMul" && node.op_type != "Gemm")) continue;
      auto w = weights_of(node);
      if (!w) continue;
      become_packed(node, *w);
      ++count;
    }
    return count;
  }

private:
  std::optional<Weights> weights_of(const Node& node) {
    const ValueType& type = g_.at(node.outputs[0]).type;
    const auto& left = g_.at(node.inputs[0]).type.shape;
    if ((type.dtype != DType::f32 && !is_half(type.dtype)) || !left || left->empty()) return std::nullopt;
    if (cuda_ && always_many(*left)) return std::nullopt;
    Node* dequantize = e_.producer(node.input(1), "DequantizeLinear");
    // Quantised on both sides it is a product of integers, or of floats where those are faster.
    if (!dequantize || e_.producer(node.inputs[0], "DequantizeLinear")) return std::nullopt;
    Weights w;
    if (node.op_type == "Gemm") {
      w.transposed = attribute_or<int64_t>(node, "transB", 0) != 0;
      auto is_one = [&](const char* name) { return attribute_or<float>(node, name, 1) == 1; };
      if (attribute_or<int64_t>(node, "transA", 0) != 0 || !is_one("alpha") || !is_one("beta"))
        return std::nullopt;
    }
    const ValueId bias = node.op_type == "Gemm" ? node.input(2) : -1;
    auto constant = [&](size_t i) {
      const ValueId id = dequantize->input(i);
      return id < 0 ? nullptr : g_.at(id).constant.get();
    };
    w.values = constant(0);
    w.scales = constant(1);
    w.zeros = constant(2);
    if (!w.values || !w.scales || (dequantize->input(2) >= 0 && !w.zeros)) return std::nullopt;
    const DType t = w.values->dtype;
    const bool four = t == DType::i4 || t == DType::u4;
    if (!four && !is_byte(t)) return std::nullopt;
    w.bits = four ? 4 : 8;
    if (w.values->dims.size() != 2 || w.values->numel() < kMinElements || !is_float(w.scales->dtype))
      return std::nullopt;
    const int along = w.transposed ? 1 : 0; // the dimension that is summed
    w.k = w.values->dims[along];
    w.n = w.values->dims[1 - along];
    if (bias >= 0) {
      const auto& shape = g_.at(bias).type.shape;
      if (!shape || shape->size() != 1 || !shape->front().is(w.n)) return std::nullopt;
    }
    return fits(w, *dequantize, along) ? std::optional(w) : std::nullopt;
  }

  /// Are there more than kMostRowsOnGpu rows at every run?
  static bool always_many(const ir::SymInts& left) {
    const auto rows = ir::product(std::span(left).first(left.size() - 1)).as_constant();
    return rows && *rows > kMostRowsOnGpu;
  }

  /// The scales are one, one per column, or one per block of a column; the zero points like them.
  static bool fits(Weights& w, const Node& dequantize, int along) {
    const auto& dims = w.scales->dims;
    if (w.zeros && (w.zeros->dims != dims || w.zeros->dtype != w.values->dtype)) return false;
    int64_t axis = attribute_or<int64_t>(dequantize, "axis", 1);
    if (axis < 0) axis += 2;
    const int64_t block = attribute_or<int64_t>(dequantize, "block_size", 0);
    if (block != 0) {
      w.block = block;
      w.per_block = true;
      std::vector<int64_t> want = w.values->dims;
      want[along] = w.blocks();
      return axis == along && dims == want && block >= kLeastBlock && (block & (block - 1)) == 0;
    }
    w.block = w.k >= kMostBlock ? kMostBlock : kLeastBlock;
    w.per_column = w.scales->numel() == w.n && dims.size() == 1 && w.n != 1;
    return w.per_column ? axis == 1 - along : w.scales->numel() == 1;
  }

  void become_packed(Node& node, const Weights& w) {
    const int64_t blocks = w.blocks(), blob = w.block / 8 * w.bits, zero_bytes = (blocks * w.bits + 7) / 8;
    const int64_t middle = int64_t{1} << (w.bits - 1);
    const bool is_signed_type = is_signed(w.values->dtype);
    const int64_t shift = is_signed_type ? middle : 0;
    Tensor bytes = Tensor::make(DType::u8, {w.n, blocks, blob});
    Tensor scales = Tensor::make(DType::f32, {w.n * blocks});
    Tensor zeros = Tensor::make(DType::u8, {w.n, zero_bytes});
    auto* to = bytes.as_mutable<uint8_t>().data();
    auto* zero = zeros.as_mutable<uint8_t>().data();
    std::fill_n(to, bytes.numel(), uint8_t{0});
    std::fill_n(zero, zeros.numel(), uint8_t{0});
    const std::vector<int64_t> given = w.zeros ? to_ints(*w.zeros) : std::vector<int64_t>();
    auto put = [&](uint8_t* base, int64_t i, int64_t element) {
      base[i * w.bits / 8] |= static_cast<uint8_t>(element << (i * w.bits % 8));
    };
    for (int64_t j = 0; j < w.n; ++j) {
      for (int64_t b = 0; b < blocks; ++b) {
        const int64_t at = w.scale_at(j, b);
        scales.as_mutable<float>()[j * blocks + b] = static_cast<float>(element_as_double(*w.scales, at));
        put(zero + j * zero_bytes, b, (given.empty() ? 0 : given[at]) + shift);
      }
      for (int64_t i = 0; i < w.k; ++i)
        put(to + j * blocks * blob, i,
            element_as_int(*w.values, w.transposed ? j * w.k + i : i * w.n + j) + shift);
    }
    const bool plain =
        is_signed_type && std::all_of(given.begin(), given.end(), [](int64_t z) { return z == 0; });
    const ValueId bias = node.op_type == "Gemm" ? node.input(2) : -1;
    const std::string name = node.name;
    std::vector<ValueId> inputs{node.inputs[0], e_.add_constant(std::move(bytes), name + ".weights"),
                                e_.add_constant(std::move(scales), name + ".scales")};
    if (!plain) inputs.push_back(e_.add_constant(std::move(zeros), name + ".zero_points"));
    if (bias >= 0) {
      inputs.resize(5, -1);
      inputs.push_back(bias);
    }
    e_.become(node, "MatMulNBits", 1, std::move(inputs),
              {{"K", w.k}, {"N", w.n}, {"bits", int64_t{w.bits}}, {"block_size", w.block}});
    node.domain = "com.microsoft";
  }

  Editor e_;
  Graph& g_;
  const bool cuda_;
};

} // namespace

int keep_weights_packed(Graph& graph, const PassContext& context) {
  return Packer(graph, context.target.cuda).run();
}

} // namespace tbx::graph
