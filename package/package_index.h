// PackageIndex: what a package holds, as data. The parts that it numbers are the bytes of plans, kernels and
// constants in the file (package/package_file.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/made_for.h"
#include "runtime/step_info.h"
#include "tensorbox/tensorbox.h"

namespace tbx::package {

/// An executable for CPUs of an instruction set, or for the evaluator. The launches of their kernels differ,
/// so each is a plan of its own; constants lie in the file once.
struct PackedPlan {
  std::string isa; ///< empty: all kernels are evaluated
  /// Of a device, where it has a part in the plan: "cuda". The host's kernels are native then, for `isa`.
  std::string device;
  std::vector<std::pair<std::string, int32_t>> binaries; ///< architecture of the device, part: machine code
  int32_t source = -1; ///< part: text of the device's kernels, for other architectures; -1: it has none
  int32_t plan = -1;   ///< part: an executable
  std::vector<int32_t> objects; ///< parts: shared objects of kernels
  int32_t programs = -1;        ///< part: kernels for the evaluator; -1: none
  std::vector<runtime::StepInfo> steps;
};

struct PackedProgram {
  runtime::MadeFor made_for;
  std::vector<PackedPlan> plans; ///< the best instruction set first, the evaluator last
};

/// A part of the model: the programs that were made of it, for all inputs or for those of kinds.
struct PackedStage {
  std::vector<PackedProgram> programs;
};

/// The name of an option that says what the package is made for, where it does not serve all inputs that the
/// model takes.
inline constexpr const char* kMadeFor = "made for";

struct PackageIndex {
  std::string version; ///< of the tensorbox that wrote it
  ModelMetadata metadata;
  std::vector<TensorInfo> inputs, outputs, overridable_initializers;
  std::map<std::string, std::shared_ptr<const Tensor>> defaults;
  std::vector<std::pair<std::string, std::string>> options; ///< what it was compiled with
  CompileStats stats;
  std::vector<PackedStage> stages;
  int32_t values = -1; ///< part: a value plan over the stages; -1: the only stage is the model
};

} // namespace tbx::package
