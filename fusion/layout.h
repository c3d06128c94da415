// Layout: fixes the strides of every buffer. Channels-last for convolution networks, row-major otherwise.
#pragma once

#include <vector>

#include "ir/tensor_box.h"

namespace tbx::fusion {

/// Strides (in elements) of a dense tensor whose dimensions from outermost to innermost are `order`.
ir::SymInts strides_in_order(const ir::SymInts& sizes, const std::vector<int>& order);

/// Order with dimension 1 innermost: N, spatial..., C.
std::vector<int> channels_last_order(int rank);

/// Needs a program before grouping. Guarantees fixed strides on every buffer; where an extern kernel cannot
/// take an operand's layout a copy is inserted into the program just before the call.
void assign_layouts(ir::Program& program);

} // namespace tbx::fusion
