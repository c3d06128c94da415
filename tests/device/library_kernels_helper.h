// Problems on a device beside the plain loops of the CPU.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "operands_helper.h"

namespace tbx::test {

using extern_kernels::AttentionProblem;
using extern_kernels::ConvProblem;
using extern_kernels::MatMulProblem;
using extern_kernels::PostOp;
using extern_kernels::Problem;

/// "fake", or "cuda" where there is a GPU; else nullptr and the reason.
std::shared_ptr<device::Device> open_for_test(const std::string& name, std::string& why);

/// Makes a module of a text with these kernels, without a library: for the emulator. A text is compiled once
/// in the process.
std::shared_ptr<device::Module> load_text(device::Device& device, const std::string& text,
                                          std::initializer_list<const char*> functions);

/// What the kernel chosen for the problem gives on the device, run twice (the second time from a graph), must
/// be what the plain loops give in double, but for roundings of operands' and result's types. `out` gives
/// form and contents before the run. Ends a case (operands_helper.h).
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

} // namespace tbx::test
