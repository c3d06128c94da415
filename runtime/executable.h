// Executable: the compiled model as plain data: buffers, steps over them, and what a run has to check.
// Seventh stage's result. It holds no pointer into a program and no closure, so it can be printed, verified
// and saved; what its names mean on a machine is found when it is bound (runtime/bind.h).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/tensor.h"
#include "extern_kernels/problem.h"

namespace tbx::runtime {

/// A symbolic integer as a postfix program over the symbol table: numbers are pushed, operators pop two.
struct SizeExpr {
  enum class Code : uint8_t { push, symbol, add, mul, floordiv, mod, min, max };
  struct Item {
    Code code;
    int64_t value; ///< push: the number; symbol: its index
    bool operator==(const Item&) const = default;
  };
  std::vector<Item> items;
  bool is_constant() const { return items.size() == 1 && items[0].code == Code::push; }
  /// Throws Error (model) on overflow or a non-positive divisor.
  int64_t evaluate(std::span<const int64_t> symbols) const;
  bool operator==(const SizeExpr&) const = default;
};
using SizeExprs = std::vector<SizeExpr>;

/// How many numbers SizeExpr::evaluate keeps at once, at most.
inline constexpr int kMaxSizeDepth = 64;

enum class DeviceKind : uint8_t { cpu, cuda };

/// "cpu", "cuda".
const char* name_of(DeviceKind device);

enum class StorageKind : uint8_t {
  arena,
  input,
  output,
  constant,
  dynamic /*of sizes that a step finds out*/
};

struct BufferPlan {
  std::string name;
  DType dtype = DType::undefined;
  SizeExprs sizes, strides; ///< elements
  DeviceKind device = DeviceKind::cpu;
  StorageKind storage = StorageKind::arena;
  int index = -1; ///< input/output: position in the signature; constant: position in Executable::constants
  int first_step = -1, last_step = -1; ///< life in steps
};

/// How a kernel is started on a device: `blocks` blocks of `threads` threads.
struct KernelLaunch {
  SizeExpr blocks;
  int threads = 0, shared_bytes = 0;
  int teams = 1; ///< of a block; each needs the kernel's scratch for itself
  /// May start before the kernel before it ends, where the GPU can and it has few blocks
  /// (device::kMostEarlyBlocks).
  bool overlaps = false;
};

/// Runs tasks of a generated kernel.
struct KernelStep {
  std::string name;                  ///< in the module that the executable is bound to
  std::vector<int> buffers;          ///< -1: of the kernel alone
  std::vector<bool> writes;          ///< by buffer
  std::vector<int64_t> offset_bytes; ///< of address 0, by buffer
  SizeExprs size_args;
  SizeExpr tasks, scratch_bytes;
  /// Of a step on a device: memory that all teams have together and that is cleared before, by a start of the
  /// kernel for the range [words of 8 bytes, 0).
  SizeExpr state_bytes;
  std::vector<int>
      check_origins;        ///< in Executable::origin_names: what check number 1 + i of the kernel is about
  double cost_per_task = 0; ///< estimated ns
  bool sequential = false;
  KernelLaunch launch; ///< of a step that runs on a device
};

/// An operand of an extern step: an affine view of a buffer.
struct OperandView {
  int buffer = -1; ///< -1: absent
  SizeExprs sizes, strides;
  SizeExpr offset; ///< elements
};

/// A call of a library, or of a host operator (HostProblem: found by its name). Which kernel computes the
/// problem is chosen when the executable is bound, from the facts of the operands: their types, their sizes
/// and strides where those are constant, and their elements where the buffer is (operand_facts in
/// runtime/bind.h).
struct ExternStep {
  extern_kernels::Problem problem;
  std::vector<OperandView> inputs, outputs;
  std::vector<int> dynamic_outputs; ///< buffers the kernel allocates (data-dependent shapes)
  std::vector<int>
      bound_symbols; ///< symbols bound from their sizes, in order of output and dimension where symbolic
  std::vector<std::vector<int>> dynamic_dims; ///< per dynamic output and dimension: bound symbol or -1
};

/// Copies a whole buffer into one of the same type, sizes and strides on another device.
struct CopyStep {
  int from = -1, to = -1;
};

struct Step {
  std::variant<KernelStep, ExternStep, CopyStep> what;
  std::vector<int> origins;            ///< ONNX nodes, for profile and explain
  DeviceKind device = DeviceKind::cpu; ///< where it runs, and where all its buffers lie; a copy runs on the
                                       ///< device that is not the host
};

struct SignatureEntry {
  std::string name;
  DType dtype = DType::undefined;
  std::vector<std::string> dims; ///< "batch", "768": as shown to the user
  SizeExprs sizes;
  int buffer = -1;
  bool ranked = true; ///< false: the model leaves the number of dims open
  /// Of an input that the session keeps: the dimension that grows, and what it is after a run. The buffer has
  /// room for more, and is written. Where that size of the buffer is a symbol the session may move the state
  /// to larger memory before a run.
  int state_axis = -1;
  SizeExpr state_after;
  int64_t state_room = 0;  ///< what there is room for before the first run
  int64_t state_limit = 0; ///< what there is room for at most; 0: whatever memory holds
};

/// Where a run finds the value of a symbol.
struct SymbolBinding {
  enum class Of : uint8_t {
    dim,     ///< a dimension of an input
    element, ///< an element of an input of integers
    room     ///< what the memory of a state has room for along its `dim`, which is its state_axis
  };
  int symbol, input, dim;
  Of of = Of::dim;
};

struct PlanCheck {
  SizeExpr value;
  bool equal = false; ///< must be == 0, else >= 0
  std::string message;
  bool assumption = false; ///< AssumptionError when it fails
  std::string where;       ///< the node that needs it
};

struct Executable {
  std::vector<std::string> symbol_names;
  std::vector<SymbolBinding> bindings; ///< the first binding of a symbol defines it, later ones are checked
  std::vector<PlanCheck> checks;
  std::vector<SignatureEntry> inputs, outputs;
  std::vector<BufferPlan> buffers;
  std::vector<std::shared_ptr<const Tensor>> constants; ///< dense tensors: data, too
  std::vector<Step> steps;
  std::vector<std::string> origin_names;
};

/// Calls `touch(buffer, writes)` for every buffer that a step reads or writes; reads come first.
template <class Touch> void for_each_buffer(const Step& step, Touch touch) {
  if (const auto* kernel = std::get_if<KernelStep>(&step.what)) {
    for (bool writes : {false, true})
      for (size_t b = 0; b < kernel->buffers.size(); ++b)
        if (kernel->buffers[b] >= 0 && kernel->writes[b] == writes) touch(kernel->buffers[b], writes);
    return;
  }
  if (const auto* copy = std::get_if<CopyStep>(&step.what)) {
    touch(copy->from, false);
    touch(copy->to, true);
    return;
  }
  const auto& call = std::get<ExternStep>(step.what);
  for (const OperandView& v : call.inputs)
    if (v.buffer >= 0) touch(v.buffer, false);
  for (const OperandView& v : call.outputs)
    if (v.buffer >= 0) touch(v.buffer, true);
}

/// "node 'conv1' (Conv)", "one of the nodes 'conv1' (Conv), 'relu1' (Relu)": how errors name the nodes of a
/// step.
std::string nodes_of(const Executable& executable, std::span<const int> origins);

/// Deterministic text (`tbx dump --stage=plan`).
std::string to_string(const Executable& executable);

} // namespace tbx::runtime
