#include "graph/passes/join.h"

#include <algorithm>
#include <numeric>

namespace tbx::graph {

Readers::Readers(const Editor& editor) : editor_(editor), readers_(editor.graph.values.size()) {
  for (size_t i = 0; i < editor.graph.nodes.size(); ++i)
    for (ValueId id : editor.graph.nodes[i].inputs)
      if (id >= 0) readers_[id].push_back(static_cast<int>(i));
}

int Readers::only(ValueId id) const {
  return readers_[id].size() == 1 && editor_.uses(id) == 1 ? readers_[id][0] : -1;
}

bool Readers::split_into_heads(ValueId id) const {
  return all(id, [&](const Node& node) {
    return node.domain.empty() && node.op_type == "Reshape" && node.inputs[0] == id;
  });
}

Tensor side_by_side(std::span<const Tensor* const> matrices) {
  const int64_t rows = matrices[0]->dims[0];
  int64_t columns = 0;
  for (const Tensor* m : matrices) columns += m->dims[1];
  Tensor all = Tensor::make(matrices[0]->dtype, {rows, columns});
  auto* to = all.mutable_data();
  for (int64_t row = 0; row < rows; ++row)
    for (const Tensor* m : matrices) {
      const int64_t bytes = m->dims[1] * size_of(m->dtype);
      to = std::copy_n(m->data + row * bytes, bytes, to);
    }
  for (const Tensor* m : matrices) drop_pages(*m);
  return all;
}

Tensor end_to_end(std::span<const Tensor* const> parts) {
  std::vector<int64_t> dims = parts[0]->dims;
  dims[0] = 0;
  for (const Tensor* p : parts) dims[0] += p->dims[0];
  Tensor all = Tensor::make(parts[0]->dtype, dims);
  auto* to = all.mutable_data();
  for (const Tensor* p : parts) {
    to = std::copy_n(p->data, p->bytes(), to);
    drop_pages(*p);
  }
  return all;
}

Tensor joined_biases(std::span<const Tensor* const> parts, std::span<const int64_t> lengths, DType type) {
  Tensor all = Tensor::make(type, {std::accumulate(lengths.begin(), lengths.end(), int64_t{0})});
  auto* to = all.mutable_data();
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t bytes = lengths[i] * size_of(type);
    to = parts[i] ? std::copy_n(parts[i]->data, bytes, to) : std::fill_n(to, bytes, std::byte{0});
  }
  return all;
}

Node split_of(Editor& editor, const Node& of, ValueId result, std::vector<ValueId> parts,
              std::span<const int64_t> lengths, int64_t axis) {
  Tensor sizes = Tensor::make(DType::i64, {static_cast<int64_t>(lengths.size())});
  std::copy(lengths.begin(), lengths.end(), sizes.as_mutable<int64_t>().begin());
  Node split;
  split.op_type = "Split";
  split.opset = 13;
  split.name = of.name;
  split.origin = of.origin;
  split.inputs = {result, editor.add_constant(std::move(sizes), "")};
  split.outputs = std::move(parts);
  split.attributes["axis"] = axis;
  return split;
}

void replace_nodes(Graph& graph, std::map<int, std::vector<Node>> made, std::span<const int> gone) {
  std::vector<char> replaced(graph.nodes.size(), 0);
  for (int i : gone) replaced[i] = 1;
  std::vector<Node> nodes;
  for (size_t i = 0; i < replaced.size(); ++i) {
    if (auto it = made.find(static_cast<int>(i)); it != made.end())
      std::move(it->second.begin(), it->second.end(), std::back_inserter(nodes));
    if (!replaced[i]) nodes.push_back(std::move(graph.nodes[i]));
  }
  graph.nodes = std::move(nodes);
  set_producers(graph);
}

} // namespace tbx::graph
