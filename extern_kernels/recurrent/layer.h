// What a recurrent layer's attributes say.
#pragma once

#include <vector>

#include "extern_kernels/problem.h"
#include "extern_kernels/recurrent/cells.h"

namespace tbx::extern_kernels::recurrent {

enum class Kind { lstm, gru, gru_linear, rnn };

struct Layer {
  Kind kind;
  int64_t layout, outputs;          ///< outputs: bit k is set where Y, Y_h, Y_c number k is asked for
  std::vector<CellOptions> options; ///< one per direction
  std::vector<char> reverse;        ///< the same

  explicit Layer(const HostProblem& p);
  int gates() const { return kind == Kind::lstm ? 4 : kind == Kind::rnn ? 1 : 3; }
};

/// Empty for LSTM, GRU and RNN, else why this is none.
std::string refuses_layer(const HostProblem& p);

} // namespace tbx::extern_kernels::recurrent
