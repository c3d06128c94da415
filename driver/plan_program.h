// The stages between lowering and binding: schedule, emit, plan. For driver/compile.cpp and driver/dump.cpp.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "codegen/build_module.h"
#include "codegen/emit.h"
#include "driver/compile.h"
#include "fusion/schedule.h"

namespace tbx::driver {

using StepTimes = std::vector<std::pair<std::string, double>>;

/// `times`: milliseconds of the schedule's steps, by name.
fusion::Schedule schedule_program(ir::Program program, const CompileOptions& options,
                                  StepTimes* times = nullptr);

using Emit = std::function<codegen::EmittedKernel(const ir::KernelProgram&)>;
Emit emit_cpp_for(const Target& target);

/// One entry per kernel group. A kernel the emitter cannot express keeps an empty name and is evaluated; that
/// is reported, never silent.
std::vector<codegen::EmittedKernel> emit_all(const fusion::Schedule& schedule, const Emit& emit,
                                             const CompileOptions& options);

/// The C++ compiler and the kernel cache that the options ask for.
codegen::Toolchain toolchain_of(const CompileOptions& options);

/// Those that are compiled.
std::vector<codegen::EmittedKernel> named_kernels(const std::vector<codegen::EmittedKernel>& all);

/// What schedule, emit and plan give.
struct Planned {
  PlanResult plan;
  std::optional<PlanResult> evaluated;         ///< the same, run before its kernels are built: option tiered
  std::vector<codegen::EmittedKernel> emitted; ///< empty: all kernels are evaluated
  bool has_compiler = false;                   ///< asked where it is needed
  std::shared_ptr<codegen::Module> found;      ///< all kernels were in the cache
  std::shared_ptr<device::Device> device;
  std::vector<codegen::EmittedKernel> for_device;
};

/// The kernels that were not emitted for a device.
std::vector<codegen::EmittedKernel> kernels_of_host(const Planned& planned);

/// Which GPUs kernels are for.
enum class For : uint8_t { this_device, any_device };

/// `graph` is the one that was lowered. `stats` of what was lowered go on counting.
Planned plan_program(LoweredGraph& lowered, const Graph& graph, const CompileOptions& options,
                     For gpus = For::this_device);

} // namespace tbx::driver
