#include "driver/passes.h"

#include <algorithm>

#include "base/error.h"
#include "fusion/schedule.h"
#include "graph/passes/graph_passes.h"

namespace tbx::driver {

std::vector<std::string> names_of_passes() {
  std::vector<std::string> names;
  for (const graph::Pass& p : graph::graph_passes()) names.emplace_back(p.name);
  for (const fusion::ScheduleStep& s : fusion::schedule_steps())
    if (s.wanted) names.emplace_back(s.name);
  return names;
}

DisabledPasses sort_disabled(const std::vector<std::string>& names) {
  DisabledPasses sorted;
  const auto passes = graph::graph_passes();
  const auto steps = fusion::schedule_steps();
  for (const std::string& name : names) {
    auto is_it = [&](const auto& p) { return name == p.name; };
    const bool of_graph = std::any_of(passes.begin(), passes.end(), is_it);
    const auto step = std::find_if(steps.begin(), steps.end(), is_it);
    TBX_MODEL(of_graph || (step != steps.end() && step->wanted),
              "unknown pass '{}'; `tbx explain --passes` lists them", name);
    (of_graph ? sorted.of_graph : sorted.of_schedule).push_back(name);
  }
  return sorted;
}

} // namespace tbx::driver
