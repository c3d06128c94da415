// Problems on a device beside the plain loops of the CPU.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "extern_kernels/kernel.h"

namespace tbx::test {

using extern_kernels::AttentionProblem;
using extern_kernels::ConvProblem;
using extern_kernels::MatMulProblem;
using extern_kernels::PostOp;
using extern_kernels::Problem;
using Dims = std::vector<int64_t>;

/// "fake", or "cuda" where there is a GPU; else nullptr and the reason.
std::shared_ptr<device::Device> open_for_test(const std::string& name, std::string& why);

/// Makes a module of a text with the kernel `function`, without a library: for the emulator.
std::shared_ptr<device::Module> load_text(device::Device& device, const std::string& text,
                                          const std::string& function);

/// A tensor in host memory, of any strides. Without sizes: absent.
struct Operand {
  DType dtype = DType::undefined;
  Dims sizes, strides;
  std::vector<char> bytes;
  bool constant = false; ///< the kernel may know it ahead
  bool present() const { return dtype != DType::undefined; }
};

/// Dense over the dimensions in `order`, outermost first; empty: in their own order. Values are near 1 in
/// size, integers small.
Operand random_operand(DType dtype, Dims sizes, std::vector<int> order = {});
std::vector<int> channels_last(size_t rank);
std::vector<double> values_of(const Operand& t); ///< in the order of the memory

/// What the kernel chosen for the problem gives on the device, run twice (the second time from a graph), must
/// be what the plain loops give in double, but for roundings of operands' and result's types. `out` gives
/// form and contents before the run.
struct Chosen {
  std::string candidate;
  std::vector<std::string> notes; ///< what its library took for the sizes
  bool by_library() const;        ///< and nothing fell to loops
};
Chosen expect_right(device::Device& device, const Problem& problem, const std::vector<Operand>& inputs,
                    const Operand& out);
/// The same of one kernel.
void expect_right(device::Device& device, const extern_kernels::ExternKernel& kernel, const Problem& problem,
                  const std::vector<Operand>& inputs, const Operand& out);
std::vector<extern_kernels::OperandInfo> infos_of(const std::vector<Operand>& operands);

} // namespace tbx::test
