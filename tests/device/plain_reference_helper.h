// What the plain loops of the CPU give for a problem, in double.
#pragma once

#include "operands_helper.h"

namespace tbx::test {

struct Reference {
  std::vector<double> values; ///< in the order of the memory
  /// Of the results: what their errors are in proportion to. A sum is as large as the root of the sum of the
  /// squares of its terms, also where they cancel: roundings are those of the terms.
  double size = 0;
};

/// `out` gives the form of the result, and what it holds before. Integer problems keep their type.
Reference reference_of(const extern_kernels::Problem& problem, const std::vector<Operand>& inputs,
                       const Operand& out);

} // namespace tbx::test
