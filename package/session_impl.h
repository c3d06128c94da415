// Session::Impl: what sessions have in common, wherever their code comes from: the compiler
// (driver/compiled_session.cpp) or a package (package/packaged_session.cpp).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/random_streams.h"
#include "device/device.h"
#include "package/broken_assumption.h"
#include "package/kept_state.h"
#include "runtime/made_for.h"
#include "runtime/session.h"
#include "runtime/step_info.h"
#include "runtime/value_session.h"
#include "tensorbox/tensorbox.h"

namespace tbx {

namespace package {

/// An executable and the session that runs it.
struct Program {
  std::shared_ptr<const runtime::BoundExecutable> bound;
  std::vector<runtime::StepInfo> steps;
  std::unique_ptr<runtime::Session> session;
};

/// Where the reports of a plan begin, and what is known of its steps.
struct PlanReports {
  size_t first;
  std::vector<runtime::StepInfo> steps;
};
using ReportsByPlan = std::map<const runtime::Executable*, PlanReports>;

/// Adds to `steps` what binding decided.
void describe(const runtime::BoundExecutable& bound, std::vector<runtime::StepInfo>& steps);

/// ModelError where there cannot be as many threads.
void check_threads(int threads);
/// Where `seed` is none: that of set_seed, else a fresh one.
uint64_t seed_of(std::optional<int64_t> seed);
/// Of the tensor's memory, only to be read.
TensorView view_of(const Tensor& tensor);

} // namespace package

struct Session::Impl {
  std::vector<TensorInfo> inputs, outputs, overridable_initializers;
  ModelMetadata metadata;
  std::map<std::string, size_t> input_index;
  /// Initializers that the model declares as inputs, too; nullptr: they are constants.
  std::map<std::string, std::shared_ptr<const Tensor>> defaults;
  runtime::SessionOptions run_with; ///< of every program
  int64_t time_limit_ms = 0;
  std::unique_ptr<RandomStreams> random; ///< shared by all programs
  /// Models with other values than numeric tensors, or bodies that run: nothing else is used for them.
  std::unique_ptr<runtime::ValueSession> value_session;
  std::shared_ptr<device::Device> device;    ///< null: everything is on the host
  std::unique_ptr<package::KeptState> state; ///< inputs behind `inputs`, which runs get from here

  virtual ~Impl() = default;

  std::vector<OutputTensor> run(const Inputs& given, const std::vector<TensorView>& into,
                                const runtime::RunOptions& run_options) const;
  /// Whatever the outputs are: sequences and maps, too.
  void run_without_outputs(const Inputs& given, const runtime::RunOptions& run_options) const;
  /// Throws what is known to be wrong before a run. In package/bound_run.cpp, as run_bound.
  void make_bound(BoundRun::Impl& bound) const;
  void run_bound(BoundRun::Impl& bound, runtime::RunOptions run_options) const;
  void synchronize() const;
  Values run_values(const Values& given) const;
  /// `first`: where the steps of a plan begin.
  std::vector<KernelReport> reports(package::ReportsByPlan* plans = nullptr) const;

  virtual CompileStats stats() const = 0;
  /// Of packages that do not serve all inputs.
  virtual std::vector<std::string> made_for() const { return {}; }
  virtual std::string dump(const std::string& stage) const = 0;
  virtual PackageReport save(const std::string& file, const PackageOptions& options) const = 0;
  int threads() const { return run_with.threads > 0 ? run_with.threads : runtime::default_threads(); }

protected:
  /// The program for these inputs that takes no more for granted.
  virtual std::shared_ptr<const package::Program> program_for(const std::vector<runtime::RunTensor>& given,
                                                              runtime::Assume assume) const = 0;
  /// The one for any inputs, where it stays.
  virtual std::shared_ptr<const package::Program> plain_program() const { return nullptr; }
  /// All that runs were made with so far.
  virtual std::vector<std::shared_ptr<const package::Program>> programs() const = 0;
  /// All that is compiled, for explain and profile.
  virtual std::vector<std::shared_ptr<const package::Program>> compiled() const = 0;

private:
  mutable package::BrokenAssumption broken_;

  template <class Given, class Put> void bind_by_name(const Given& given, Put put) const;
  [[noreturn]] void throw_no_input(const std::string& name) const;
  std::vector<runtime::RunTensor> bind(const Inputs& given, const runtime::RunOptions& run_options) const;
  void check_device(const char* what, const std::string& name, int32_t number) const;
  void run_program(const package::Program& program, const std::vector<runtime::RunTensor>& in,
                   std::vector<runtime::RunTensor>& out, const runtime::RunOptions& run_options) const;
  void prepare_state(const package::Program& program, std::vector<runtime::RunTensor>& in,
                     const std::vector<runtime::RunTensor>& out) const;
  static void place_outputs(const std::vector<TensorView>& into, std::vector<runtime::RunTensor>& out);
  template <class Run>
  std::shared_ptr<const package::Program> with_program(const std::vector<runtime::RunTensor>& in,
                                                       Run run) const {
    const runtime::Assume first = broken_.assume_for(in);
    for (auto assume = first;; assume = less_than(assume)) try {
        std::shared_ptr<const package::Program> program = program_for(in, assume);
        run(*program);
        if (assume != first) broken_.note(in, assume);
        return program;
      } catch (const runtime::AssumptionError&) {
        if (assume == runtime::Assume::nothing) throw;
      }
  }
  std::vector<OutputTensor> run_through_host(const Inputs& given, const std::vector<TensorView>& into,
                                             const runtime::RunOptions& run_options) const;
  template <class Given>
  std::vector<OnnxValue> run_value_session(const Given& given, const runtime::RunOptions& run_options) const;
  std::vector<OutputTensor> tensors_of_values(const Inputs& given, const std::vector<TensorView>& into,
                                              const runtime::RunOptions& run_options) const;
  std::string input_names() const;
  runtime::RunOptions limited(runtime::RunOptions run_options) const;
};

} // namespace tbx
