#include "fusion/graph_passes.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "base/error.h"

namespace tbx::fusion {

std::span<const Pass> graph_passes() { return {}; }

std::vector<PassResult> run_graph_passes(Graph& graph, std::span<const std::string> disabled) {
  std::span<const Pass> passes = graph_passes();
  for (const std::string& name : disabled) {
    bool known = std::any_of(passes.begin(), passes.end(), [&](const Pass& p) { return name == p.name; });
    TBX_MODEL(known, "unknown pass '{}'; `tbx explain --passes` lists them", name);
  }
  std::vector<PassResult> results;
  for (const Pass& pass : passes) {
    if (std::find(disabled.begin(), disabled.end(), pass.name) != disabled.end()) continue;
    auto start = std::chrono::steady_clock::now();
    int rewrites = pass.run(graph);
    std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    results.push_back({pass.name, rewrites, took.count()});
#ifndef NDEBUG
    try {
      verify(graph);
    } catch (Error& e) {
      e.set_where(fmt::format("after pass '{}'", pass.name));
      throw;
    }
#endif
  }
  return results;
}

}  // namespace tbx::fusion
