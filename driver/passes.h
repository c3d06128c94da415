// Passes: the names by which graph passes and steps of the schedule are switched off.
#pragma once

#include <string>
#include <vector>

namespace tbx::driver {

/// All graph passes, and the steps of the schedule that can be left out; in order.
std::vector<std::string> names_of_passes();

struct DisabledPasses {
  std::vector<std::string> of_graph, of_schedule;
};
/// ModelError for a name of neither.
DisabledPasses sort_disabled(const std::vector<std::string>& names);

} // namespace tbx::driver
