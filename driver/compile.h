// Compile: the whole pipeline from ONNX bytes to a runnable plan. Knows every stage, and nothing else does.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <variant>

#include "driver/make_plan.h"
#include "fusion/graph_passes.h"
#include "importer/import.h"
#include "tensorbox/tensorbox.h"

namespace tbx::driver {

using Source = std::variant<std::filesystem::path, std::span<const std::byte>>;

struct Compiled {
  std::shared_ptr<runtime::Plan> plan;
  std::vector<StepInfo> steps;
  CompileStats stats;
};

/// Throws Error.
Compiled compile(const Source& source, const CompileOptions& options);

/// Text of the model at a stage: "import", "simplify", "lower", "schedule", "source", "plan". Throws Error (model)
/// for an unknown stage.
std::string dump_stage(const Source& source, const CompileOptions& options, const std::string& stage);

}  // namespace tbx::driver
