// State: inputs that grow by what a run appends, in memory that stays from run to run.
#pragma once

#include <string>

#include "ir/tensor_box.h"

namespace tbx::fusion {

/// An input that the session keeps.
struct StateInput {
  std::string input;
  int axis = 0;     ///< the dimension that grows
  ir::SymInts used; ///< the sizes of what is there before a run
  ir::SymInt after; ///< of the axis after it
};

/// Makes `output`, which is `input` with something appended along one dimension, a part of the input's
/// memory: the copy of the input goes, what is appended is written behind it. The input's buffer gets
/// `capacity` elements along that dimension, and a check that they do. After lowering. ModelError where the
/// output is something else, or the input has other dimensions that are not constant.
StateInput keep_in_place(ir::Program& program, const std::string& input, const std::string& output,
                         int64_t capacity);

} // namespace tbx::fusion
