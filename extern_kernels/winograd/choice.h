// When convolutions are computed by Winograd's transforms.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels::winograd {

/// Sizes of a convolution of 3 x 3 elements.
struct Sizes {
  int64_t images = 0, in_channels = 0, out_channels = 0, height = 0, width = 0; ///< of the results
};

struct Choice {
  int tile = 0;       ///< results along both dimensions; 0: the library computes
  std::string reason; ///< why it does
};

/// By a model of the work, for sizes of which -1 is unknown: the same for every machine and number of
/// threads.
Choice choose(const ConvProblem& problem, Sizes sizes);

} // namespace tbx::extern_kernels::winograd
