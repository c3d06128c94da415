// What lowering and fusion may ask about extern kernels: layout wishes and which post-operations fit. They
// ask for the CPU and the threads of the target. The library answers for the CPU that it runs on: it knows no
// other.
#pragma once

#include <span>
#include <string>

#include "base/isa.h"
#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels {

/// Convolutions and matrix products: work on the result may be done with them (PostOp).
bool is_product(const Problem& problem);
/// Products and attention: what libraries have kernels for, and compiling runs none of.
bool is_for_libraries(const Problem& problem);

/// Memory order wished for an operand or the output of `problem`.
enum class LayoutWish {
  any,           ///< any strides
  row_major,     ///< dense, contiguous
  channels_last, ///< dense, dimension 1 innermost (N, spatial..., C)
  matrix,        ///< one of the last two dimensions has stride 1, no overlap
};
LayoutWish input_layout(const Problem& problem, int input, bool channels_last);
/// Whether the fastest kernel of a convolution reads channels one by one, wherever they lie side by side.
bool takes_planes(const Problem& problem, std::span<const OperandInfo> inputs,
                  std::span<const OperandInfo> outputs, const Target& target);
/// Whether it takes an image in any order, and copies for itself what it needs of it in another one.
bool copies_image(const Problem& problem, std::span<const OperandInfo> inputs,
                  std::span<const OperandInfo> outputs, const Target& target);
LayoutWish output_layout(const Problem& problem, bool channels_last);

/// How the operand of a post-operation is repeated over the result.
enum class Spread {
  none,    ///< it has the result's shape
  channel, ///< one value per channel (convolution) or column (matrix product)
  single,  ///< one value
  other,
};
/// Empty when `op` can be appended to the problem's post-operations, else the reason why not. `operand`
/// matters for operations that have one.
std::string accepts_post_op(const Problem& problem, const PostOp& op, DType result, Spread operand);

/// Empty when a kernel that is no plain loop computes the problem with all its post-operations, else the
/// reasons why not. Operands without known strides are taken to lie as their layout wish says.
std::string accepts_post_ops(const Problem& problem, std::span<const OperandInfo> inputs,
                             std::span<const OperandInfo> outputs, const Target& target);

/// The candidate (its name) is taken where nothing else computes a problem: any other kernel is faster.
bool is_plain_loops(std::string_view candidate);

/// Which build of the library answers, and for which instruction set: another one may answer otherwise.
std::string library_identity();

/// From how many results on a group of a convolution of 8-bit integers has a fast exact kernel on this CPU;
/// 0: none has, and no matrix product.
int64_t least_byte_group();
/// The same on every CPU that runs `isa`, whatever else it has.
int64_t least_byte_group(Isa isa);
/// Products of f16 or bf16, added in f32, are faster than those of f32 on this CPU. No instruction set of
/// ours has them.
bool has_half_products(DType type);
/// Attention of bf16 multiplies in registers of tiles (AMX) on this CPU.
bool has_attention_tiles();

} // namespace tbx::extern_kernels
