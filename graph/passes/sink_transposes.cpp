// sink_transposes: elementwise nodes over transposed values work on the values before the Transpose, where
// that leaves fewer Transposes. Networks exported from channels-last frameworks transpose around every
// convolution.
#include <algorithm>
#include <map>
#include <set>

#include "graph/passes/match.h"
#include "graph/passes/passes.h"
#include "lowering/op_registry.h"

namespace tbx::graph {
namespace {

using Order = std::vector<int64_t>;

bool is_elementwise(const Node& node) {
  return node.domain.empty() && node.opset >= 7 && node.outputs.size() == 1 &&
         lowering::has(lowering::Trait::elementwise, node);
}

bool is_transpose(const Node& node) { return node.domain.empty() && node.op_type == "Transpose"; }

/// `x` of up to order.size() dimensions, in the order before a Transpose by `order`.
Tensor untransposed(const Tensor& x, const Order& order) {
  size_t rank = order.size();
  std::vector<int64_t> dims(rank - x.dims.size(), 1), out_dims(rank), strides(rank);
  dims.insert(dims.end(), x.dims.begin(), x.dims.end());
  int64_t stride = 1;
  for (size_t k = rank; k-- > 0;) {
    out_dims[order[k]] = dims[k];
    strides[order[k]] = stride;
    stride *= dims[k];
  }
  Tensor out = Tensor::make(x.dtype, out_dims);
  int64_t size = bits_of(x.dtype) / 8;
  const std::byte* from = x.data;
  std::byte* to = out.mutable_data();
  std::vector<int64_t> at(rank, 0);
  for (int64_t i = 0; i < x.numel(); ++i) {
    int64_t offset = 0;
    for (size_t k = 0; k < rank; ++k) offset += at[k] * strides[k];
    std::copy_n(from + offset * size, size, to + i * size);
    for (size_t k = rank; k-- > 0 && ++at[k] == out_dims[k];) at[k] = 0;
  }
  return out;
}

/// Connected elementwise nodes whose inputs all went through a Transpose of one order.
struct Region {
  std::vector<int> nodes;
};

class Sinker {
public:
  explicit Sinker(Graph& graph) : e_(graph), g_(graph) {}

  /// One round: every region where it pays. The number of Transposes that are gone.
  int run() {
    find_members();
    int gone = 0;
    for (const Region& r : regions()) {
      int gain = gain_of(r);
      if (gain <= 0) continue;
      apply(r);
      gone += gain;
    }
    if (gone > 0) rebuild();
    return gone;
  }

private:
  static constexpr int kNone = -1;

  /// Orders of Transposes and of the members over them.
  void find_members() {
    order_.resize(g_.values.size());
    region_.assign(g_.nodes.size(), kNone);
    readers_.resize(g_.values.size());
    stands_for_.resize(g_.values.size());
    for (size_t v = 0; v < stands_for_.size(); ++v) stands_for_[v] = static_cast<ValueId>(v);
    for (int i = 0; i < static_cast<int>(g_.nodes.size()); ++i) {
      Node& node = g_.nodes[i];
      for (ValueId id : node.inputs)
        if (id >= 0) readers_[id].push_back(i);
      if (is_transpose(node)) {
        order_[node.outputs[0]] = transpose_order(g_, node);
      } else if (is_elementwise(node)) {
        Order order = common_order(node);
        if (order.empty()) continue;
        order_[node.outputs[0]] = order;
        region_[i] = i;
        for (ValueId id : node.inputs)
          if (int p = member(id); p != kNone) region_[find(p)] = find(i);
      }
    }
  }

  /// The order that all inputs of the node share; empty when they do not.
  Order common_order(const Node& node) const {
    Order order;
    for (ValueId id : node.inputs) {
      if (id < 0 || g_.at(id).constant) continue;
      if (order_[id].empty() || (!order.empty() && order != order_[id])) return {};
      order = order_[id];
    }
    for (ValueId id : node.inputs) {
      if (id < 0 || !g_.at(id).constant) continue;
      const Tensor& t = *g_.at(id).constant;
      bool plain = t.dtype != DType::string && bits_of(t.dtype) >= 8 && t.dims.size() <= order.size();
      if (!plain) return {};
    }
    return order;
  }

  int find(int i) {
    while (region_[i] != i) i = region_[i] = region_[region_[i]];
    return i;
  }
  /// The member node that makes a value.
  int member(ValueId id) const {
    int p = id < 0 ? kNone : g_.at(id).producer;
    return p >= 0 && region_[p] != kNone ? p : kNone;
  }

  std::vector<Region> regions() {
    std::map<int, Region> by_root;
    for (int i = 0; i < static_cast<int>(region_.size()); ++i)
      if (region_[i] != kNone) by_root[find(i)].nodes.push_back(i);
    std::vector<Region> out;
    out.reserve(by_root.size());
    for (auto& [root, r] : by_root) out.push_back(std::move(r));
    return out;
  }

  bool inside(int node, int root) { return region_[node] != kNone && find(node) == root; }

  /// Readers of a member's value that need it as it was: other nodes than Transposes, outputs, subgraphs.
  bool needs_old(ValueId v, int root) {
    int known = 0;
    for (int r : readers_[v]) known += inside(r, root) || !exit_order(r, v).empty();
    return known != e_.uses(v);
  }

  /// What transposing as reader `r` of `v` comes to for the value before; empty when `r` does something else.
  Order exit_order(int r, ValueId v) const {
    if (!is_transpose(g_.nodes[r])) return {};
    const Order& then = order_[g_.nodes[r].outputs[0]];
    return then.size() == order_[v].size() ? combined(order_[v], then) : Order();
  }

  static Order combined(const Order& first, const Order& then) {
    Order both;
    for (int64_t k : then) both.push_back(first[k]);
    return both;
  }

  int gain_of(const Region& r) {
    int root = find(r.nodes[0]), gain = 0;
    std::set<ValueId> sources;
    for (int i : r.nodes) {
      for (ValueId id : g_.nodes[i].inputs)
        if (id >= 0 && !g_.at(id).constant && member(id) == kNone) sources.insert(id);
      ValueId v = g_.nodes[i].outputs[0];
      gain -= needs_old(v, root);
      for (int reader : readers_[v])
        if (Order exit = exit_order(reader, v); !exit.empty()) gain += is_identity_order(exit);
    }
    for (ValueId id : sources) {
      if (moved_.contains(g_.at(id).producer)) return 0; // the next round sees what became of it
      int within = 0;
      for (int reader : readers_[id]) within += inside(reader, root);
      gain += within == e_.uses(id);
    }
    return gain;
  }

  void apply(const Region& r) {
    int root = find(r.nodes[0]);
    std::map<ValueId, ValueId> fresh; // a member's value -> the same before the Transpose
    for (int i : r.nodes) {
      ValueId v = g_.nodes[i].outputs[0];
      const Order order = order_[v];
      for (ValueId& id : g_.nodes[i].inputs) {
        if (id < 0) continue;
        if (g_.at(id).constant) {
          id = constant_before(id, order);
        } else if (auto it = fresh.find(id); it != fresh.end()) {
          id = it->second;
        } else {
          id = g_.nodes[g_.at(id).producer].inputs[0];
        }
      }
      ValueId u = fresh[v] = value_before(v, order);
      g_.nodes[i].outputs[0] = u;
      for (int reader : readers_[v]) {
        Order both = exit_order(reader, v);
        if (both.empty()) continue;
        Node& transpose = g_.nodes[reader];
        transpose.inputs[0] = u;
        transpose.attributes["perm"] = both;
        moved_.insert(reader);
        if (is_identity_order(both)) stands_for_[transpose.outputs[0]] = u;
      }
      if (needs_old(v, root)) restored_.emplace(i, transposing(g_.nodes[i], u, v, order));
    }
  }

  ValueId constant_before(ValueId id, const Order& order) {
    const Tensor& t = *g_.at(id).constant;
    if (t.numel() == 1) return id;
    ValueId made = e_.add_constant(untransposed(t, order), g_.at(id).name + " transposed");
    stands_for_.push_back(made);
    return made;
  }

  ValueId value_before(ValueId v, const Order& order) {
    ValueType type = g_.at(v).type;
    if (type.shape) {
      ir::SymInts before(order.size());
      for (size_t k = 0; k < order.size(); ++k) before[order[k]] = (*type.shape)[k];
      type.shape = before;
    }
    ValueId u = e_.add_value(g_.at(v).name + " before transposition", std::move(type));
    g_.at(u).stored = g_.at(v).stored;
    stands_for_.push_back(u);
    return u;
  }

  static Node transposing(const Node& like, ValueId from, ValueId to, const Order& order) {
    Node node;
    if (!like.name.empty()) node.name = like.name + " transposed";
    node.op_type = "Transpose";
    node.opset = like.opset;
    node.inputs = {from};
    node.outputs = {to};
    node.attributes = {{"perm", order}};
    node.origin = like.origin;
    return node;
  }

  void rebuild() {
    std::vector<Node> nodes;
    for (int i = 0; i < static_cast<int>(g_.nodes.size()); ++i) {
      nodes.push_back(std::move(g_.nodes[i]));
      if (auto it = restored_.find(i); it != restored_.end()) nodes.push_back(std::move(it->second));
    }
    g_.nodes = std::move(nodes);
    set_producers(g_);
    replace_values(g_, stands_for_);
  }

  Editor e_;
  Graph& g_;
  std::vector<Order> order_;              ///< per value: the order by which it is transposed
  std::vector<int> region_;               ///< per node: union-find of members; kNone: no member
  std::vector<std::vector<int>> readers_; ///< per value: nodes, once per read
  std::vector<ValueId> stands_for_;
  std::set<int> moved_;          ///< Transposes that this round gave another input
  std::map<int, Node> restored_; ///< after node: the Transpose that its other readers need
};

} // namespace

int sink_transposes(Graph& graph) {
  constexpr int kMaxRounds = 8; // what one round moved may meet more in the next
  int count = 0;
  for (int round = 0; round < kMaxRounds; ++round) {
    int gone = Sinker(graph).run();
    if (gone == 0) break;
    count += gone;
  }
  return count;
}

} // namespace tbx::graph
