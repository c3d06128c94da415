// Bind: executable + modules + device -> what runs. Every decision that belongs to a machine is made here,
// once: library kernels are chosen from the catalogue and pack their weights, constants are placed, names of
// kernels become pointers. The stage before is data, and the session behind it only runs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "extern_kernels/kernel.h"
#include "runtime/bound_device.h"
#include "runtime/executable.h"
#include "runtime/module.h"

namespace tbx::runtime {

struct BoundStep {
  Kernel kernel;                                               ///< of a KernelStep
  std::shared_ptr<const extern_kernels::ExternKernel> library; ///< of an ExternStep
  std::string chosen;                                          ///< the candidate's name, and why
  std::vector<std::string> refusals; ///< not those before it (extern_kernels::Selection)
};

struct BoundExecutable {
  std::shared_ptr<const Executable> executable;
  std::vector<BoundStep> steps;                       ///< by step
  std::vector<void*> constants;                       ///< by constant: its elements; null: no run reads them
  std::shared_ptr<const BoundDevice> on_device;       ///< null: the host does everything
  bool data_dependent = false;                        ///< some step's output sizes depend on data
  std::vector<std::shared_ptr<const Module>> modules; ///< keep the kernels loaded
};

/// What the catalogue may know of an operand before a run.
extern_kernels::OperandInfo operand_facts(const Executable& executable, const OperandView& view);

struct BindOptions;

/// Library calls of the device among the steps, by step: with all that they compile, and look for where sizes
/// are known. Takes no kernels of ours, so that these may be compiled meanwhile.
std::vector<BoundStep> bind_on_device(const Executable& executable, const BindOptions& options);

struct BindOptions {
  int threads = 0; ///< of the sessions that will run it; 0: as many as the machine grants
  extern_kernels::Kernels kernels = extern_kernels::Kernels::fastest; ///< what library kernels are taken from
  DeviceModule on;                                                    ///< kernels of the steps of a device
  /// Of a run, 0: none. What is measured ahead of the first one takes no more either.
  int64_t max_memory = 0;
  /// Has the same steps with kernels of another kind: its library kernels are used, with the weights that
  /// they have packed.
  const BoundExecutable* twin = nullptr;
  /// Gives what bind_on_device() gave; empty: it is called.
  std::function<std::vector<BoundStep>()> libraries = {};
  /// Told of constants whose elements no run reads, as soon as that is so: library kernels have packed them,
  /// or keep what they still need. Their memory may go.
  std::function<void(size_t constant)> unread = {};
};

/// For `unread`: the elements of the constant go, its type and sizes stay.
void give_up(Executable& executable, size_t constant);

/// Needs a verified executable. A kernel is taken from the first module that has it. Throws BackendError when
/// none has, UnsupportedError when no library kernel computes a problem; both name the nodes of the step.
std::shared_ptr<const BoundExecutable> bind(std::shared_ptr<const Executable> executable,
                                            std::vector<std::shared_ptr<const Module>> modules,
                                            const BindOptions& options = {});

} // namespace tbx::runtime
