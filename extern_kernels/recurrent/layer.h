// What a recurrent layer's problem says, as its steps use it.
#pragma once

#include <vector>

#include "extern_kernels/problem.h"
#include "extern_kernels/recurrent/cells.h"

namespace tbx::extern_kernels::recurrent {

using Kind = RecurrentProblem::Cell;

struct Layer {
  Kind kind;
  int gates;
  bool batch_first;
  int outputs;                      ///< bit k is set where Y, Y_h, Y_c number k is asked for
  std::vector<CellOptions> options; ///< one per direction
  std::vector<char> reverse;        ///< the same

  explicit Layer(const RecurrentProblem& p);
};

} // namespace tbx::extern_kernels::recurrent
