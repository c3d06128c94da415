// Complex tensors: pairs of real ones. Operators that move elements, or are linear in them, work on both
// parts.
#pragma once

#include <functional>

#include "lowering/op_registry.h"

namespace tbx::lowering {

/// The type of the parts: f32 of c64, f64 of c128.
DType part_type(DType complex);

/// A complex tensor of its real and imaginary parts.
LoweredValue make_complex(LoweredValue real, LoweredValue imaginary);
/// The parts of a constant.
LoweredValue complex_constant(const Tensor& t);
/// The parts of [..., 2].
LoweredValue from_pairs(ir::Program& program, const ir::TensorBox& pairs);
/// [..., 2]
ir::TensorBox to_pairs(ir::Program& program, BoxPool& pool, const LoweredValue& complex);

/// Whether the node reads a complex tensor, or makes one out of real ones.
bool is_complex_node(const Node& node, const std::vector<LoweredValue>& inputs);

/// Lowers the node of `ctx` over the parts; `lower_real` lowers a node of real tensors. Asks for a run for
/// operators that are not meant for complex elements here.
std::vector<LoweredValue> lower_complex(
    OpContext& ctx,
    const std::function<std::vector<LoweredValue>(const Node&, std::vector<LoweredValue>)>& lower_real);

} // namespace tbx::lowering
