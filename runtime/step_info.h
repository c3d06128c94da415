// Facts about one step of an executable for people: `tbx explain`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tbx::runtime {

struct StepInfo {
  std::string name, kind; ///< kind: "generated", "extern", "evaluated" or "copy"
  std::vector<int> origins;
  std::vector<std::string> decisions;
  int64_t bytes = 0; ///< moved, at size hints
  double flops = 0;
};

} // namespace tbx::runtime
