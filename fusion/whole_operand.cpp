#include "fusion/whole_operand.h"

#include <algorithm>

namespace tbx::fusion {

using namespace ir;

ExternOperand whole(const Program& program, BufferId id) {
  const SymInts& sizes = program.at(id).sizes;
  const size_t rank = sizes.size();
  ExternOperand operand{id, sizes, SymInts(rank * rank, SymInt(0)), SymInts(rank, SymInt(0))};
  for (size_t d = 0; d < rank; ++d) operand.coefficients[d * rank + d] = 1;
  return operand;
}

bool is_whole(const Program& program, const ExternOperand& operand) {
  const ExternOperand all = whole(program, operand.buffer);
  auto same = [](const SymInts& a, const SymInts& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), provably_equal);
  };
  // Where there is one element the index may be anything.
  const size_t rank = all.sizes.size();
  if (rank != 4 || !same(operand.sizes, all.sizes)) return false;
  for (size_t d = 0; d < rank; ++d)
    for (size_t k = 0; k < rank; ++k)
      if (!all.sizes[d].is(1) &&
          !provably_equal(operand.coefficients[d * rank + k], all.coefficients[d * rank + k]))
        return false;
  return same(operand.start, all.start);
}

} // namespace tbx::fusion
