// Schedule: Program -> ordered groups, each one generated kernel or one extern call. Fourth stage.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "base/target.h"
#include "ir/kernel.h"
#include "ir/tensor_box.h"

namespace tbx::fusion {

using tbx::Target; // base/target.h

struct ScheduleOptions {
  bool fuse = true;        ///< false: one kernel per operation
  bool fuse_extern = true; ///< post-operations into convolutions and matrix products
  bool channels_last = true;
  bool fold_constants = true; ///< what operations make of constants alone is computed now
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

/// Needs a verified program. Guarantees: groups in a valid order, every buffer read is written before,
/// strides fixed.
Schedule schedule(ir::Program program, const Target& target, const ScheduleOptions& options = {});

std::string to_string(const Schedule& schedule);
void verify(const Schedule& schedule);

} // namespace tbx::fusion
