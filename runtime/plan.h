// Plan: the compiled model as a flat list of steps over numbered buffers. Plain data; seventh stage's result.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/tensor.h"
#include "extern_kernels/kernel.h"
#include "extern_kernels/problem.h"
#include "runtime/abi.h"

namespace tbx::runtime {

/// A symbolic integer as a postfix program over the symbol table: numbers are pushed, operators pop two.
struct SizeExpr {
  enum class Code : uint8_t { push, symbol, add, mul, floordiv, mod, min, max };
  struct Item {
    Code code;
    int64_t value; ///< push: the number; symbol: its index
  };
  std::vector<Item> items;
  bool is_constant() const { return items.size() == 1 && items[0].code == Code::push; }
  /// Throws Error (model) on overflow or a non-positive divisor.
  int64_t evaluate(std::span<const int64_t> symbols) const;
};
using SizeExprs = std::vector<SizeExpr>;

enum class StorageKind : uint8_t {
  arena,
  input,
  output,
  constant,
  dynamic /*allocated by a data-dependent step*/
};

struct BufferPlan {
  std::string name;
  DType dtype = DType::undefined;
  SizeExprs sizes, strides; ///< elements
  StorageKind storage = StorageKind::arena;
  int index = -1;    ///< input/output: position in the signature; constant: position in Plan::constants
  int alias_of = -1; ///< this buffer's memory is that of another buffer, `alias_offset` elements in
  SizeExpr alias_offset;
  int first_step = -1, last_step = -1; ///< life in steps, aliases included
};

/// Runs tasks of a generated kernel.
struct KernelStep {
  /// Native code, or an interpreter closure with the same contract.
  KernelFunction function = nullptr;
  std::function<int64_t(void* const*, const int64_t*, const int64_t* symbols, int64_t, int64_t, void*)>
      interpreted;
  std::string name;
  std::vector<int> buffers;
  std::vector<int64_t> offset_bytes; ///< of address 0, by buffer
  SizeExprs size_args;
  SizeExpr tasks, scratch_bytes;
  std::vector<int> check_origins; ///< in Plan::origin_names: what check number 1 + i of the kernel is about
  double cost_per_task = 0;       ///< estimated ns
  bool sequential = false;
};

/// An operand of an extern step: an affine view of a buffer.
struct OperandView {
  int buffer = -1; ///< -1: absent
  SizeExprs sizes, strides;
  SizeExpr offset; ///< elements
};

struct ExternStep {
  std::shared_ptr<const extern_kernels::ExternKernel> kernel;
  extern_kernels::Problem problem;
  std::string name;
  std::vector<OperandView> inputs, outputs;
  std::vector<int> dynamic_outputs; ///< buffers the kernel allocates (data-dependent shapes)
  std::vector<int>
      bound_symbols; ///< symbols bound from their sizes, in order of output and dimension where symbolic
  std::vector<std::vector<int>> dynamic_dims; ///< per dynamic output and dimension: bound symbol or -1
};

struct Step {
  std::variant<KernelStep, ExternStep> what;
  std::vector<int> origins; ///< ONNX nodes, for profile and explain
};

struct SignatureEntry {
  std::string name;
  DType dtype = DType::undefined;
  std::vector<std::string> dims; ///< "batch", "768": as shown to the user
  SizeExprs sizes;
  int buffer = -1;
  bool ranked = true; ///< false: the model leaves the number of dims open
};

/// A symbol that is one dimension of an input, or one element of an input of integers.
struct SymbolBinding {
  int symbol, input, dim;
  bool element = false; ///< `dim` numbers an element
};

struct PlanCheck {
  SizeExpr value;
  bool equal = false; ///< must be == 0, else >= 0
  std::string message;
  bool assumption = false; ///< AssumptionError when it fails
  std::string where;       ///< the node that needs it
};

struct Plan {
  int num_symbols = 0;
  std::vector<std::string> symbol_names;
  std::vector<SymbolBinding> bindings; ///< the first binding of a symbol defines it, later ones are checked
  std::vector<PlanCheck> checks;
  std::vector<SignatureEntry> inputs, outputs;
  std::vector<BufferPlan> buffers;
  std::vector<std::shared_ptr<const Tensor>> constants;
  std::vector<Step> steps;
  std::vector<std::string> origin_names;
  std::shared_ptr<void> module; ///< keeps native code loaded
};

/// "node 'conv1' (Conv)", "one of the nodes 'conv1' (Conv), 'relu1' (Relu)": how errors name the nodes of a
/// step.
std::string nodes_of(const Plan& plan, std::span<const int> origins);

/// Deterministic text (`tbx dump --stage=plan`).
std::string to_string(const Plan& plan);

} // namespace tbx::runtime
