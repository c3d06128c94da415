// Facts about one step of an executable for people: `tbx explain`.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/executable.h"

namespace tbx::runtime {

/// Operations per element of a nest, and its sizes.
struct NestWork {
  double each = 0;
  SizeExprs sizes;
};

struct StepInfo {
  std::string name, kind; ///< kind: "generated", "extern", "evaluated" or "copy"
  std::vector<int> origins;
  std::vector<std::string> decisions;
  int64_t bytes = 0;    ///< moved, at size hints
  double flops = 0;     ///< at size hints
  bool guessed = false; ///< sizes among these are symbolic
  std::vector<NestWork> work;
};

/// The operations of a step in a run with these sizes.
double flops_of(const StepInfo& step, std::span<const int64_t> symbols);

} // namespace tbx::runtime
