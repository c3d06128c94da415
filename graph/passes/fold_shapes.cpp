#include "graph/passes/fold_shapes.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "lowering/lower.h"

namespace tbx::graph {

int fold_shapes(Graph& graph) {
  constexpr int64_t kMaxElements = 1024;
  std::map<ValueId, std::shared_ptr<const Tensor>> found;
  lowering::LowerOptions options;
  options.constant_found = [&](ValueId id, const std::shared_ptr<const Tensor>& value) { found[id] = value; };
  try {
    lowering::lower(graph, options);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::internal) throw;
    // A model that needs its inputs' values, or operators we lack, is optimised as far as it was read.
  }
  int folded = 0;
  for (auto& [id, value] : found) {
    Value& v = graph.at(id);
    const bool output = std::find(graph.outputs.begin(), graph.outputs.end(), id) != graph.outputs.end();
    const bool integer =
        value->dtype == DType::i64 || value->dtype == DType::i32 || value->dtype == DType::boolean;
    if (v.constant || v.producer < 0 || output || !integer || value->numel() > kMaxElements) continue;
    v.constant = value;
    ++folded;
  }
  return folded;
}

} // namespace tbx::graph
