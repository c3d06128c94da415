// join_convolutions: the heads of detectors, pairs of a convolution of one pixel and one of each channel
// alone over the same input, become one pair, whose results are views of it. Each of them has fewer results
// than a vector has lanes, and so takes nearly as long as all of them together. What an activation or another
// convolution follows stays apart: there the library computes what follows while it has the elements, or
// reads a tensor of its own.
#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <tuple>

#include "graph/node_attributes.h"
#include "graph/passes/join.h"
#include "graph/passes/passes.h"

namespace tbx::graph {
namespace {

using Sizes = std::vector<int64_t>;

/// Channels of a result: with more, a vector is full.
constexpr int64_t kMostChannels = 15;

struct Pair {
  int pixel = -1, depth = -1; ///< nodes: of one pixel, and behind it of each channel alone
  int64_t channels = 0;
};

/// The input, the sizes of a channel of the first weights, which the input has where the model is right, and
/// what the second convolutions of a group have in common: kernel, strides, pads, dilations and their
/// automatic pads.
using Kind = std::tuple<ValueId, Sizes, Sizes, Sizes, Sizes, Sizes, std::string>;

class Joiner {
public:
  explicit Joiner(Graph& graph) : e_(graph), g_(graph), readers_(e_) {}

  int run() {
    std::map<Kind, std::vector<Pair>> groups;
    for (size_t i = 0; i < g_.nodes.size(); ++i)
      if (auto found = find(static_cast<int>(i))) groups[found->first].push_back(found->second);
    int joined = 0;
    for (const auto& [kind, pairs] : groups)
      if (pairs.size() > 1) {
        join(pairs);
        joined += static_cast<int>(pairs.size());
      }
    if (joined > 0) replace_nodes(g_, std::move(made_), replaced_);
    return joined;
  }

private:
  std::optional<std::pair<Kind, Pair>> find(int at) const {
    const Node& pixel = g_.nodes[at];
    const Tensor* weights = weights_of(pixel);
    if (!weights || weights->dims[0] > kMostChannels || !is_of_one_pixel(pixel, *weights))
      return std::nullopt;
    const ValueId between = pixel.outputs[0];
    const int behind = readers_.only(between);
    if (behind < 0) return std::nullopt;
    const Node& depth = g_.nodes[behind];
    const Tensor* taps = weights_of(depth);
    const int64_t channels = weights->dims[0];
    if (!taps || depth.inputs[0] != between || taps->dims[0] != channels || taps->dims[1] != 1 ||
        attribute_or<int64_t>(depth, "group", 1) != channels || !is_seen_in_another_shape(depth.outputs[0]))
      return std::nullopt;
    return std::pair(Kind{pixel.inputs[0], Sizes(weights->dims.begin() + 1, weights->dims.end()),
                          Sizes(taps->dims.begin() + 2, taps->dims.end()),
                          attribute_or<Sizes>(depth, "strides", {}), attribute_or<Sizes>(depth, "pads", {}),
                          attribute_or<Sizes>(depth, "dilations", {}),
                          attribute_or<std::string>(depth, "auto_pad", "NOTSET")},
                     Pair{at, behind, channels});
  }

  /// Of a convolution in float32 whose weights and bias are constants; nullptr of anything else.
  const Tensor* weights_of(const Node& node) const {
    if (!node.domain.empty() || node.op_type != "Conv") return nullptr;
    const Tensor* weights = f32_constant(g_, node.input(1));
    if (!weights || weights->dims.size() < 3 || weights->numel() == 0 || g_.at(node.inputs[0]).constant)
      return nullptr;
    if (node.input(2) < 0) return weights;
    const Tensor* bias = f32_constant(g_, node.input(2));
    return bias && bias->dims == Sizes{weights->dims[0]} ? weights : nullptr;
  }

  static bool is_of_one_pixel(const Node& node, const Tensor& weights) {
    auto all = [](const Sizes& sizes, int64_t n) {
      return std::all_of(sizes.begin(), sizes.end(), [n](int64_t s) { return s == n; });
    };
    return all(Sizes(weights.dims.begin() + 2, weights.dims.end()), 1) &&
           all(attribute_or<Sizes>(node, "strides", {}), 1) &&
           all(attribute_or<Sizes>(node, "pads", {}), 0) && attribute_or<int64_t>(node, "group", 1) == 1 &&
           attribute_or<std::string>(node, "auto_pad", "NOTSET") == "NOTSET";
  }

  /// Nothing is computed on it, and it is no output.
  bool is_seen_in_another_shape(ValueId id) const {
    static constexpr std::array kReaders = {"Transpose", "Reshape", "Flatten", "Shape"};
    return readers_.all(id, [](const Node& node) {
      return node.domain.empty() &&
             std::find(kReaders.begin(), kReaders.end(), node.op_type) != kReaders.end();
    });
  }

  /// The convolutions of these nodes as one.
  ValueId add_joined(std::vector<Node>& made, ValueId x, const std::vector<int>& nodes,
                     const std::vector<int64_t>& lengths, int64_t channels) {
    std::vector<const Tensor*> weights, biases;
    for (int at : nodes) {
      weights.push_back(weights_of(g_.nodes[at]));
      biases.push_back(f32_constant(g_, g_.nodes[at].input(2)));
    }
    Node node = g_.nodes[nodes[0]];
    ValueType type = g_.at(node.outputs[0]).type;
    if (type.shape && type.shape->size() > 1) (*type.shape)[1] = channels;
    const ValueId result = e_.add_value(g_.at(node.outputs[0]).name + " and more", type);
    node.inputs = {x, e_.add_constant(end_to_end(weights), "")};
    if (std::any_of(biases.begin(), biases.end(), [](const Tensor* b) { return b != nullptr; }))
      node.inputs.push_back(e_.add_constant(joined_biases(biases, lengths, DType::f32), ""));
    node.outputs = {result};
    made.push_back(std::move(node));
    return result;
  }

  void join(const std::vector<Pair>& pairs) {
    std::vector<int> pixel, depth;
    std::vector<ValueId> parts;
    std::vector<int64_t> lengths;
    int64_t channels = 0;
    for (const Pair& p : pairs) {
      lengths.push_back(p.channels);
      channels += p.channels;
      pixel.push_back(p.pixel), depth.push_back(p.depth);
      parts.push_back(g_.nodes[p.depth].outputs[0]);
      replaced_.push_back(p.pixel), replaced_.push_back(p.depth);
    }
    std::vector<Node>& made = made_[pixel[0]];
    const ValueId between = add_joined(made, g_.nodes[pixel[0]].inputs[0], pixel, lengths, channels);
    const ValueId result = add_joined(made, between, depth, lengths, channels);
    made.back().attributes["group"] = channels;
    made.push_back(split_of(e_, made.back(), result, std::move(parts), lengths, 1));
  }

  Editor e_;
  Graph& g_;
  Readers readers_;
  std::map<int, std::vector<Node>> made_; ///< by the node they replace
  std::vector<int> replaced_;
};

} // namespace

int join_convolutions(Graph& graph, const PassContext& context) {
  return context.target.cuda ? 0 : Joiner(graph).run();
}

} // namespace tbx::graph
