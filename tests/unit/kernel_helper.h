// Kernels as test cases: buffers with random contents and guard zones, run by the evaluator and by generated
// code.
#pragma once

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "codegen/build_module.h"
#include "ir/kernel.h"

namespace tbx::test {

/// One kernel under construction with everything a run needs.
struct KernelCase {
  explicit KernelCase(std::string name);

  ir::Context& c() { return *kernel.context; }
  /// Adds a buffer of `numel` elements; its number.
  int buffer(DType t, int64_t numel, ir::Access access);
  int buffer(DType t, ir::SymInt numel, ir::Access access);
  ir::Expr load(int b, ir::SymInt address, ir::Expr mask = nullptr);
  ir::Phase& phase(ir::SymInts inner = {});
  /// Into the last phase.
  void store(int b, ir::SymInt address, ir::Expr value, ir::Expr mask = nullptr,
             ir::StoreMode mode = ir::StoreMode::set);
  ir::Expr reduce(ir::ReduceOp op, ir::Expr value); ///< its accumulator
  ir::Expr let(ir::Expr value);
  void scan(ir::ReduceOp op, int b, ir::SymInt address, ir::Expr value, bool exclusive = false);
  /// A size symbol with its value in this case.
  ir::SymInt symbol(const std::string& name, int64_t value);

  std::string name;
  ir::KernelProgram kernel;
  std::vector<int64_t> symbols;
  /// Fills element i of buffer b before the run; the default is random values of small magnitude.
  std::function<double(int b, int64_t i)> fill;
  double relative = 0,
         absolute = 0; ///< tolerance of float results; 0: equal bits, but for the sign of 0 and NaN payloads
  bool fails = false;  ///< an index is out of range: evaluator and kernel must say so
};

/// How to run an emitted kernel on prepared memory.
struct KernelRun {
  const std::vector<void*>& buffers;
  const std::vector<size_t>& bytes; ///< of each buffer; guard zones of kGuard bytes lie before and behind
  std::vector<int64_t> sizes;
  int64_t tasks, scratch_bytes, state_bytes;
  std::mt19937& rng;
};
constexpr size_t kGuard = 256;
/// Runs the evaluator and `run` on equal memory and compares. `run` gives 0, or the number of a failed check.
void compare_with_evaluator(const KernelCase& k, const codegen::EmittedKernel& e,
                            const std::function<int64_t(const KernelRun&)>& run, uint32_t seed = 1);

/// ISAs this machine runs.
std::vector<Isa> runnable_isas();

/// Emits all cases for `isa`, builds them together, and compares each with the evaluator. Failures are test
/// failures.
void run_cases(const std::vector<std::shared_ptr<KernelCase>>& cases, Isa isa, uint32_t seed = 1);
/// The same for every ISA of runnable_isas().
void run_cases(const std::vector<std::shared_ptr<KernelCase>>& cases);

} // namespace tbx::test
