// What the oneDNN kernels share: descriptors of operands, post-operations, packed weights.
#pragma once

#include <dnnl.hpp>
#include <functional>
#include <mutex>

#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels::onednn {

/// The engine of the CPU. The first call turns off the library's cache of primitives (primitives.h).
const dnnl::engine& cpu_engine();
dnnl::stream& this_thread_stream();

/// Throws dnnl::error (unimplemented) for a dimension above 2^30: many of the library's kernels count in 32
/// bits, in whole blocks. Some throw through its C interface what nobody there catches, some divide by zero.
void require_countable(std::span<const int64_t> sizes);

/// A tensor's place in memory. Dimensions of size 1 get a stride that keeps the descriptor plain.
dnnl::memory::desc describe(std::span<const int64_t> sizes, std::span<const int64_t> strides,
                            DType type = DType::f32);
/// A zero point: one i32.
dnnl::memory::desc one_integer();
dnnl::memory::data_type data_type(DType type);
/// The CPU multiplies f16 or bf16 and adds in f32.
bool multiplies(DType half);
/// The CPU multiplies f16, bf16 or bytes in registers of tiles (AMX), as far as the library may use them.
bool has_tiles(DType type);
/// Empty where the library takes these operands of a product of floats together, else the reason why not.
std::string unfit_floats(std::span<const OperandInfo> inputs, DType result);

/// Why oneDNN does not give a product of f32, or of `bytes`, as `result`; empty where it does.
std::string unfit_result(bool bytes, DType result, bool has_post_ops);
/// The library's version and build, and the instruction set that it goes up to.
std::string identity();
/// Empty where products of bytes are exact, else the reason why not.
std::string inexact_bytes();
/// Why a product of bytes whose sums the library adds to as float32 (shifts of signed left-hand sides, zero
/// points) may be inexact; empty where all sums are below 2^24. Each is of `terms` products (-1: known at run
/// time only); `columns` is the dimension of `weights` that the result has, too.
std::string inexact_sums(const OperandInfo& weights, size_t columns, int64_t terms, bool has_right_zero);
/// Whether sums may be so large where the CPU has tiles (AMX), whose kernels round before they add zero
/// points.
bool large_sums_on_tiles(const OperandInfo& weights, size_t columns, int64_t terms, bool has_right_zero);
/// Appends the operations; an 8-bit `result` is rounded and saturates, so a last clip to its range and a
/// rounding before it are left out.
void append_all(std::span<const PostOp> list, DType result,
                const std::function<void(const PostOp&)>& append_one);

/// Scratchpad of the caller, operands as exact as asked for.
dnnl::primitive_attr attributes(Precision precision);

/// Appends the operation; binary ones read a tensor described by `operand`.
void append(dnnl::post_ops& ops, const PostOp& op,
            const std::function<dnnl::memory::desc(int operand)>& operand);

/// Constant weights (f16 and bf16 become f32 where that is asked for) reordered into the layouts primitives
/// ask for, each layout once. What they were is given up where it can be made of the first layout again.
class PackedWeights {
public:
  /// `has_left_zero`: bytes whose left-hand side is unsigned and has a zero point.
  PackedWeights(dnnl::memory::desc plain, std::shared_ptr<const Tensor> weights, bool has_left_zero = false)
      : plain_(std::move(plain)), dims_(weights->dims), type_(weights->dtype), has_left_zero_(has_left_zero),
        weights_(std::move(weights)) {}
  dnnl::memory get(const dnnl::memory::desc& wanted);
  /// The weights as they were, at least those that `plain` describes.
  std::shared_ptr<const Tensor> original();
  int64_t bytes() const;

private:
  void pack(const dnnl::memory::desc& wanted);
  void restore();

  dnnl::memory::desc plain_;
  std::vector<int64_t> dims_;
  DType type_;
  bool has_left_zero_;
  std::shared_ptr<const Tensor> weights_; ///< null: given up
  bool lent_ = false;                     ///< somebody has their address
  mutable std::mutex mutex_;
  struct Packed {
    dnnl::memory memory;
    std::shared_ptr<void> owner;
  };
  std::vector<Packed> packed_;
};

/// Runs `f`, turning dnnl::error into BackendError.
template <class F> auto guarded(const char* what, F&& f) -> decltype(f());
[[noreturn]] void raise(const char* what, const dnnl::error& e);
template <class F> auto guarded(const char* what, F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const dnnl::error& e) {
    raise(what, e);
  }
}

} // namespace tbx::extern_kernels::onednn
