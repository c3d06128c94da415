// Compile: the whole pipeline from ONNX bytes to a bound executable. Knows every stage, and nothing else
// does.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "base/isa.h"
#include "driver/make_plan.h"
#include "fusion/state.h"
#include "graph/passes/graph_passes.h"
#include "importer/import.h"
#include "importer/seen_files.h"
#include "ir/tensor_box.h"
#include "lowering/demand.h"
#include "runtime/bind.h"
#include "runtime/made_for.h"
#include "tensorbox/tensorbox.h"

namespace tbx::driver {

/// A model, which may be read several times: from the same files each time.
struct Source {
  Source() : Source(std::filesystem::path()) {}
  Source(std::filesystem::path file) : from(std::move(file)) {}
  Source(std::span<const std::byte> bytes) : from(bytes) {}

  std::variant<std::filesystem::path, std::span<const std::byte>> from;
  std::shared_ptr<importer::SeenFiles> seen = std::make_shared<importer::SeenFiles>();
  std::shared_ptr<importer::TensorPlaces> places; ///< is told where the tensors of an import lie; may be null
};

class PlanRecorder;
struct KeptProgram;
struct ReadProgram;

struct Compiled {
  std::shared_ptr<const runtime::BoundExecutable> bound;
  std::vector<StepInfo> steps;
  CompileStats stats;
  /// With the option tiered, where kernels are evaluated that the C++ compiler is still to build: makes the
  /// same program with them, as often as it is asked, in any thread. `stopped` is asked meanwhile; true ends
  /// it with an error. Owns what it needs, and calls no function of the options.
  using Later = std::function<Compiled(const std::function<bool()>& stopped,
                                       const std::function<void(const std::string&)>& log)>;
  Later later;
  std::shared_ptr<KeptProgram> kept; ///< for a recorder, where its plan can be kept

  const runtime::Executable& executable() const { return *bound->executable; }
};

/// In the decisions of a step that is evaluated until `later` is done.
inline constexpr const char* kTierNote = "tier: evaluated until the C++ compiler has built its kernel";

/// Graph inputs whose elements are fixed while compiling, by name (axes, target shapes given as run-time
/// inputs).
using KnownInputs = std::map<std::string, std::shared_ptr<const Tensor>>;

using runtime::Assume;

/// What a program is made for, beyond the model itself.
struct Specialisation {
  KnownInputs known;
  std::map<std::string, std::vector<int64_t>> shapes; ///< of graph inputs
  /// Integers of graph inputs, where they are fixed; see lowering::LowerOptions::element_inputs.
  std::map<std::string, std::vector<std::optional<int64_t>>> elements;
  Assume assume = Assume::broadcast_too;
};

/// The device to compile for and run on; null: the CPU does everything.
std::shared_ptr<device::Device> device_of(const CompileOptions& options);

/// The first stage. `shapes`: of graph inputs; `defaults`: initializers that the model declares as inputs.
Graph import_source(const Source& source, const CompileOptions& options,
                    const std::map<std::string, std::vector<int64_t>>& shapes = {},
                    std::vector<InputDefault>* defaults = nullptr);

/// The graph that `compile` lowers: imported and simplified, with what that took in `stats`, and the
/// initializers that the model declares as inputs in `defaults`. `isa`: for a package for machines that run
/// it.
Graph prepare_graph(const Source& source, const CompileOptions& options,
                    const std::map<std::string, std::vector<int64_t>>& shapes, CompileStats& stats,
                    std::vector<InputDefault>* defaults = nullptr, std::optional<Isa> isa = {});
/// A program, what it was made for, and what was spent so far.
struct LoweredGraph {
  ir::Program program;
  std::vector<fusion::StateInput> state;
  Specialisation made_for;
  CompileStats stats;
};
/// The stage behind: lower. Where it would have to assume less, that is tried: `made_for` of the result says
/// so. Other demands are the caller's to meet. `stats` is what was spent before.
std::variant<LoweredGraph, lowering::Demand> lower_graph(const Graph& graph, const CompileOptions& options,
                                                         Specialisation made_for, CompileStats stats = {});
/// Whether an executable keeps the elements of constants that library kernels have packed: runs do not need
/// them, who writes it into a file or binds it once more does.
enum class PackedConstants : uint8_t { given_up, kept };
/// The stages behind that: schedule, emit, plan, build, bind. `graph` is the one that was lowered. `recorder`
/// (may be null) is told of the plan before it is bound.
Compiled compile_program(LoweredGraph lowered, const Graph& graph, const CompileOptions& options,
                         PackedConstants packed, PlanRecorder* recorder = nullptr);
/// The last stage alone, of a verified program that was kept. Nothing where its native kernels are no more in
/// the cache.
std::optional<Compiled> bind_kept(ReadProgram program, const CompileOptions& options);

/// A program as a package holds it: nothing in it belongs to this process.
struct Portable {
  runtime::Executable executable;
  std::vector<StepInfo> steps;
  std::vector<std::string> objects;                          ///< shared objects of native kernels
  std::vector<NamedKernel> evaluated;                        ///< kernels for the evaluator
  std::vector<std::pair<std::string, std::string>> binaries; ///< of a device: architecture, machine code
  std::string source;                                        ///< text of the device's kernels
};
/// `isa`: of the native kernels, whatever this CPU runs; none: all kernels are for the evaluator. Throws
/// BackendError where there is no compiler. With the option device, kernels of the device are for these
/// architectures.
Portable compile_portable(const Graph& graph, const CompileOptions& options, std::optional<Isa> isa,
                          const Specialisation& made_for, const std::vector<std::string>& architectures = {});

/// All in one, with all constants. Throws Error, also for what a demand asks for: sessions can do more
/// (driver/specialiser.h, driver/value_compile.h).
Compiled compile(const Source& source, const CompileOptions& options, const Specialisation& made_for = {});

/// Inputs and outputs of a model that cannot be compiled before its inputs' values are seen.
struct Signature {
  std::vector<runtime::SignatureEntry> inputs, outputs; ///< sizes and buffers are not set
};
Signature signature_of(const Graph& graph);

/// Text of the model at a stage: "import", "simplify", "lower", "schedule", "source", "cuda", "plan". Throws
/// Error (model) for an unknown stage. Exported, not public: for the command.
TBX_API std::string dump_stage(const Source& source, const CompileOptions& options, const std::string& stage);

} // namespace tbx::driver
