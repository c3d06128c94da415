// Tensors in host memory for tests of kernels, filled with numbers that look random.
#pragma once

#include <memory>
#include <vector>

#include "extern_kernels/kernel.h"

namespace tbx::test {

using Dims = std::vector<int64_t>;

/// A tensor in host memory, of any strides. Without sizes: absent.
struct Operand {
  DType dtype = DType::undefined;
  Dims sizes, strides;
  std::vector<char> bytes;
  bool constant = false; ///< the kernel may know it ahead
  bool present() const { return dtype != DType::undefined; }
};

/// Dense over the dimensions in `order`, outermost first; empty: in their own order. Values are near 1 in
/// size, integers small. They follow from type, sizes, order, and how many operands the case had before it: a
/// case begins with its test, and behind end_case(). So neither tests nor cases change those of others.
Operand random_operand(DType dtype, Dims sizes, std::vector<int> order = {});
void end_case();
/// The same of an integer of 8 bits, with all of its values.
Operand bytes_operand(DType dtype, Dims sizes, std::vector<int> order = {});
/// Of a product of these: one i32.
Operand zero_point(int32_t value);

std::vector<int> channels_last(size_t rank);

/// In the order of the memory.
std::vector<double> values_of(const Operand& t);
/// The same values as double; integers stay what they are.
Operand widened(const Operand& t);

/// What kernels are given of an operand: where it lies, and what is known ahead.
extern_kernels::TensorRef ref_of(const Operand& t, void* data);
extern_kernels::OperandInfo info_of(const Operand& t);
std::vector<extern_kernels::OperandInfo> infos_of(const std::vector<Operand>& operands);

} // namespace tbx::test
