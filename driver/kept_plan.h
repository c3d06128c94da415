// Kept plan: what compiling a model gave, as data, with which the next session of it starts without
// compiling. It lies in the cache beside its kernels (docs/kernels.md). Constants that the files of the model
// hold as they are stay there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/tensor_pool.h"
#include "codegen/build_module.h"
#include "driver/make_plan.h"
#include "importer/tensor_places.h"
#include "runtime/made_for.h"
#include "runtime/value_plan.h"
#include "tensorbox/tensorbox.h"

namespace tbx::driver {

/// A program for the types that the model, or a part of it, declares.
struct KeptProgram {
  runtime::MadeFor made_for;
  std::vector<std::string> inputs;         ///< names
  std::string executable;                  ///< bytes (runtime/executable_file.h)
  std::string evaluated;                   ///< bytes of kernels for the evaluator (ir/kernel_file.h)
  std::vector<StepInfo> steps;             ///< before they are bound
  std::vector<codegen::KernelUnit> native; ///< lie in the cache
  std::string device_kernels;              ///< lie there under this key; empty: there are none
};

struct KeptPlan {
  ModelMetadata metadata;
  std::vector<TensorInfo> inputs, outputs, overridable_initializers;
  std::map<std::string, std::shared_ptr<const Tensor>> defaults;
  std::vector<std::string> notes;    ///< what compiling it logged
  int nodes = 0;                     ///< of the model
  std::vector<KeptProgram> programs; ///< by stage
  std::string values;                ///< bytes of a value plan over them; empty: the only one is the model
};

/// Bytes of constants that a kept plan may have of its own, where the model's files have `elsewhere` of those
/// that it needs. A plan with more would hold the model's weights once more, and is as slow to read.
constexpr uint64_t most_kept_bytes(uint64_t elsewhere) {
  constexpr uint64_t kAlways = uint64_t{32} << 20;
  return std::max(kAlways, elsewhere / 4); // queries, keys and values that are joined: a fifth of a BERT
}

/// Collects the plan of a session while that is compiled.
class PlanRecorder {
public:
  /// `places`: of the tensors of the import.
  explicit PlanRecorder(std::shared_ptr<const importer::TensorPlaces> places);

  /// The plan of a program, before it is bound: binding gives elements of constants up. Nothing where it
  /// cannot be kept, for which there is a reason then.
  std::optional<KeptProgram> record(const PlanResult& plan);
  void record(const runtime::ValuePlan& values);
  /// The first reason counts.
  void refuse(std::string why);
  const std::string& refused() const { return refused_; } ///< empty: it can be kept

  KeptPlan plan;
  std::string to_bytes();

private:
  template <class Write> std::string bounded(Write write);

  std::shared_ptr<const importer::TensorPlaces> places_;
  std::map<importer::TensorPlace, uint64_t> numbers_;
  std::vector<importer::TensorPlace> elsewhere_;
  TensorPool tensors_;
  std::string refused_;
};

/// A program of a kept plan, read and not yet verified.
struct ReadProgram {
  runtime::MadeFor made_for;
  std::vector<std::string> inputs;
  PlanResult plan;
  std::vector<codegen::KernelUnit> native;
  std::string device_kernels;
};

/// Gives the elements of a range of the model's files. Throws Error where there is no such range.
using ReadPlace = std::function<TensorMemory(const importer::TensorPlace&)>;

/// A kept plan, read. Its programs and values are verified together.
struct ReadPlan {
  KeptPlan plan; ///< its programs have been moved out
  std::vector<ReadProgram> programs;
  std::shared_ptr<const runtime::ValuePlan> values; ///< null: the only program is the model
};

/// Which device the steps of a plan may be for, besides the host.
enum class Steps : uint8_t { of_host, of_device };

/// Throws Error (model) where the bytes are no plan, or one that is not sound. `memory` is that of the bytes,
/// at a multiple of kTensorAlignment.
ReadPlan read_plan(const TensorMemory& memory, const ReadPlace& read_place, Steps steps);

} // namespace tbx::driver
