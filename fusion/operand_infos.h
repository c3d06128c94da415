// What kernels of a library call are asked about: its operands, as far as they are known.
#pragma once

#include <vector>

#include "extern_kernels/catalogue.h"
#include "ir/tensor_box.h"

namespace tbx::fusion {

struct OperandInfos {
  std::vector<extern_kernels::OperandInfo> inputs, outputs;
};
/// `result`: the sizes of the first output, which is the only one that is looked at. Strides are those of
/// constants alone.
OperandInfos operand_infos(const ir::Program& program, const ir::ExternCall& call, const ir::SymInts& result);

} // namespace tbx::fusion
