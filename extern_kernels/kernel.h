// ExternKernel: a library or host kernel behind one interface. Only this folder sees vendor headers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/target.h"
#include "extern_kernels/problem.h"

namespace tbx::device {
class Stream;
}

namespace tbx::extern_kernels {

/// A tensor argument at run time: concrete sizes and strides in elements, no ownership. `data` null: absent
/// operand.
struct TensorRef {
  void* data = nullptr;
  DType dtype = DType::undefined;
  std::span<const int64_t> sizes, strides;
  int64_t numel() const;
};

/// What is known of an operand while compiling. -1 in `sizes`: known at run time only.
struct OperandInfo {
  DType dtype = DType::undefined;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;           ///< empty: unknown or flexible
  std::shared_ptr<const Tensor> constant; ///< weights: may be packed once
};

/// Outputs of kernels whose result shapes depend on data: the kernel calls `allocate` per output.
class OutputAllocator {
public:
  virtual ~OutputAllocator() = default;
  /// Memory for output `index` of this shape, valid for the rest of the run.
  virtual void* allocate(int index, DType dtype, std::span<const int64_t> sizes) = 0;
};

struct RunArgs {
  std::span<const TensorRef> inputs, outputs; ///< outputs empty for data-dependent kernels
  OutputAllocator* allocator = nullptr;
  void* workspace = nullptr; ///< workspace_bytes() for these sizes, 64-byte aligned
  /// Of kernels of a device: all addresses are of its memory, and run() returns when the work is in here.
  device::Stream* stream = nullptr;
  int64_t room = INT64_MAX; ///< bytes that run() may take while it works, besides its workspace
  bool rehearsal = false;   ///< the operands have any contents: nothing that is made of them may be kept
};

/// Immutable after creation and callable from many threads at once (primitive caches inside are
/// synchronised). Runs inside the runtime's TBB arena and may use all of its threads, unless it is serial.
class ExternKernel {
public:
  virtual ~ExternKernel() = default;
  virtual std::string
  description() const = 0; ///< "oneDNN convolution jit:avx512_core nhwc +relu", for explain
  /// Does the work; throws Error (model: bad data such as an index out of range).
  virtual void run(const RunArgs& args) const = 0;
  virtual int64_t workspace_bytes(std::span<const TensorRef> inputs,
                                  std::span<const TensorRef> outputs) const;
  /// Whether a run with these operands does all of its work in the thread that calls it. Such a run needs no
  /// arena, which takes as long to enter and to leave as the least of them last.
  virtual bool is_serial(std::span<const TensorRef>, std::span<const TensorRef>) const { return false; }
  /// Of kernels of a device: whether run() asks its stream for launches alone, and may so be called on one
  /// that does nothing, to compile what it needs (runtime/rehearsal.h).
  virtual bool can_rehearse() const { return false; }
  /// Bytes of packed weights held.
  virtual int64_t packed_bytes() const { return 0; }
  /// Whether runs read the elements of this input. Not of a constant that is packed, or is kept by the kernel
  /// until it is: its address in `RunArgs` may be null then.
  virtual bool reads(size_t input) const { return static_cast<void>(input), true; }
};

/// Which kernels may compute.
enum class Kernels : uint8_t {
  fastest, ///< libraries and tuned kernels come first
  plain,   ///< loops over the elements that add in double, and nothing else: what the others are held against
};

/// A way to compute a problem. Candidates are asked in order of preference; a refusal states its reason.
struct Candidate {
  const char* name;
  /// Empty string: supported. Otherwise the reason of the refusal.
  std::string (*supports)(const Problem&, std::span<const OperandInfo> inputs,
                          std::span<const OperandInfo> outputs, const Target& target);
  std::unique_ptr<ExternKernel> (*make)(const Problem&, std::span<const OperandInfo> inputs,
                                        std::span<const OperandInfo> outputs);
};

/// All candidates for the kind of problem, preferred first (extern_kernels/kernels.inc).
std::span<const Candidate> candidates(const Problem& problem, Kernels kernels = Kernels::fastest);

struct Selection {
  std::unique_ptr<ExternKernel> kernel;
  std::string chosen;
  std::vector<std::string> refusals; ///< "onednn_conv: dilation of a 3-D transposed convolution"
};
/// The first candidate that accepts for the CPU at hand and the number of threads of the arena that the call
/// is in, which is to be that of its runs. UnsupportedError with all refusals when none does.
Selection select(const Problem& problem, std::span<const OperandInfo> inputs,
                 std::span<const OperandInfo> outputs, Kernels kernels = Kernels::fastest);

} // namespace tbx::extern_kernels
