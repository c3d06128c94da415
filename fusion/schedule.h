// Schedule: Program -> ordered groups, each one generated kernel or one extern call. Fourth stage.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/target.h"
#include "ir/kernel.h"
#include "ir/tensor_box.h"

namespace tbx::fusion {

struct ScheduleOptions {
  bool fuse = true;                  ///< false: one kernel per operation
  bool fuse_extern = true;           ///< post-operations into convolutions and matrix products
  bool fold_constants = true;        ///< what operations make of constants alone is computed now
  std::vector<std::string> disabled; ///< steps to leave out, of those that can be
#ifdef NDEBUG
  bool verify_steps = false; ///< verifies the program behind each step; an InternalError names the step
#else
  bool verify_steps = true;
#endif
};

/// One step of the schedule.
struct Group {
  std::variant<ir::KernelProgram, ir::ExternCall> what;
  std::vector<int> origins;           ///< ONNX nodes computed here
  std::vector<std::string> decisions; ///< why these operations are (not) together, for `tbx explain`
  std::vector<ir::BufferId> reads, writes;
};

struct Schedule {
  ir::Program program; ///< operations moved out; all buffers have fixed strides
  std::vector<Group> groups;
};

struct ScheduleWork;

struct ScheduleStep {
  const char* name;
  const char* what; ///< one line with what it does
  void (*run)(ScheduleWork& work);
  /// Whether the options ask for it; nullptr: there is no schedule without it.
  bool (*wanted)(const ScheduleOptions& options) = nullptr;
};

/// All steps in order (fusion/schedule.cpp); an order constraint is explained beside its line.
std::span<const ScheduleStep> schedule_steps();

/// Needs a verified program. Guarantees: groups in a valid order, every buffer read is written before,
/// strides fixed. `times` gets name and milliseconds of each step.
Schedule schedule(ir::Program program, const Target& target, const ScheduleOptions& options = {},
                  std::vector<std::pair<std::string, double>>* times = nullptr);

std::string to_string(const Schedule& schedule);
void verify(const Schedule& schedule);

} // namespace tbx::fusion
