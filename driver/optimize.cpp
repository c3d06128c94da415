#include "driver/optimize.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "driver/limits.h"
#include "driver/passes.h"
#include "graph/passes/fold_shapes.h"
#include "graph/passes/graph_passes.h"
#include "importer/convert_opset.h"
#include "importer/export.h"
#include "importer/import.h"
#include "lowering/op_registry.h"

namespace tbx::driver {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxRounds = 8;

int opset_of(const Graph& graph) {
  auto it = graph.opset_imports.find("");
  return it == graph.opset_imports.end() ? 0 : it->second;
}

std::map<std::string, int> operators_of(const Graph& graph) {
  std::map<std::string, int> counts;
  for (const Node& n : graph.nodes) ++counts[n.domain.empty() ? n.op_type : n.domain + "." + n.op_type];
  return counts;
}

/// Passes that make operators which the model's operator set has not, or that serve our own compiler only.
std::vector<std::string> passes_beyond(int opset, std::vector<std::string>& reasons) {
  std::vector<std::string> names;
  for (const graph::Pass& p : graph::graph_passes()) {
    if (p.makes_opset <= opset) continue;
    names.emplace_back(p.name);
    if (p.makes_opset != graph::kCompileOnly)
      reasons.push_back(
          fmt::format("{} makes operators of opset {}, the model has {}", p.name, p.makes_opset, opset));
  }
  return names;
}

} // namespace

OptimizeReport optimize(const fs::path& model, const fs::path& to, const OptimizeOptions& options) {
  const CompileOptions limits = with_limits(options.limits);
  const Loading loading(limits);
  ImportOptions import_options;
  set_limits(import_options, limits);
  import_options.dim_overrides = options.dims;
  import_options.type_giver = lowering::type_giver;
  Graph graph = import_model(model, import_options);
  OptimizeReport report;
  report.operators_before = operators_of(graph);
  report.nodes_before = static_cast<int>(graph.nodes.size());
  import_options.dim_overrides.clear(); // what is read again has them
  if (options.opset != 0 && options.opset != opset_of(graph)) {
    std::string converted = convert_opset(graph, options.opset);
    graph = import_model(std::as_bytes(std::span(converted)), import_options);
  }
  report.opset = opset_of(graph);
  report.rewrites.emplace_back("fold_shapes", graph::fold_shapes(graph));
  std::vector<std::string> disabled = passes_beyond(report.opset, report.left_out);
  for (std::string& name : sort_disabled(options.disabled_passes).of_graph)
    disabled.push_back(std::move(name));
  // One pass makes room for another: again, until nothing is left to do.
  bool changed = true;
  for (int round = 0; changed && round < kMaxRounds; ++round) {
    changed = false;
    size_t entry = 1;
    for (const graph::PassResult& p : graph::run_graph_passes(graph, disabled)) {
      if (round == 0) report.rewrites.emplace_back(p.name, 0);
      report.rewrites[entry++].second += p.rewrites;
      changed |= p.rewrites > 0;
    }
  }
  report.operators_after = operators_of(graph);
  report.nodes_after = static_cast<int>(graph.nodes.size());
  export_model(graph, to);
  return report;
}

} // namespace tbx::driver
