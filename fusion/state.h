// State: inputs that grow by what a run appends, in memory that stays from run to run.
#pragma once

#include <string>

#include "ir/tensor_box.h"

namespace tbx::fusion {

/// What the memory of states has room for along the dimension that grows.
struct StateCapacity {
  int64_t first = 0; ///< before the first run
  int64_t most = 0;  ///< 0: whatever memory holds
  bool is_fixed() const { return most > 0 && first == most; }
};

/// An input that the session keeps.
struct StateInput {
  std::string input;
  int axis = 0;     ///< the dimension that grows
  ir::SymInts used; ///< the sizes of what is there before a run
  ir::SymInt after; ///< of the axis after it
  ir::SymInt room;  ///< of the axis in memory: a number, or a symbol that the session binds
  StateCapacity capacity;
};

/// Makes `output`, which is `input` with something appended along one dimension, a part of the input's
/// memory: the copy of the input goes, what is appended is written behind it. The input's buffer gets
/// the capacity along that dimension, and a check that this is enough: a number where it is fixed, so that
/// strides are numbers, too, else a symbol of its own, which runs bind to what there is room for. After
/// lowering. ModelError where the output is something else, or the input has other dimensions that are not
/// constant.
StateInput keep_in_place(ir::Program& program, const std::string& input, const std::string& output,
                         const StateCapacity& capacity);

} // namespace tbx::fusion
