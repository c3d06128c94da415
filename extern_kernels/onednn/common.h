// What the oneDNN kernels share: descriptors of operands, post-operations, packed weights, execution slots.
#pragma once

#include <dnnl.hpp>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>

#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels::onednn {

const dnnl::engine& cpu_engine();
dnnl::stream& this_thread_stream();

/// A tensor's place in memory. Dimensions of size 1 get a stride that keeps the descriptor plain.
dnnl::memory::desc describe(std::span<const int64_t> sizes, std::span<const int64_t> strides,
                            DType type = DType::f32);
/// A zero point: one i32.
dnnl::memory::desc one_integer();
/// Halves are f32 here: constants become that.
dnnl::memory::data_type data_type(DType type);

/// Why oneDNN does not give a product of f32, or of `bytes`, as `result`; empty where it does.
std::string unfit_result(bool bytes, DType result, bool has_post_ops);
/// Empty where products of bytes are exact, else the reason why not.
std::string inexact_bytes();
/// Appends the operations; an 8-bit `result` is rounded and saturates, so a last clip to its range and a
/// rounding before it are left out.
void append_all(const std::vector<PostOp>& list, DType result,
                const std::function<void(const PostOp&)>& append_one);

/// Scratchpad of the caller, operands as exact as asked for.
dnnl::primitive_attr attributes(Precision precision);

/// Appends the operation; binary ones read a tensor described by `operand`.
void append(dnnl::post_ops& ops, const PostOp& op,
            const std::function<dnnl::memory::desc(int operand)>& operand);

/// A primitive for one set of sizes, and idle argument lists for it.
class Prepared {
public:
  struct Argument {
    int id; ///< DNNL_ARG_*
    dnnl::memory::desc desc;
    int input = -1, output = -1; ///< where its data comes from; both -1: `fixed`
    void* fixed = nullptr;
    dnnl::memory::desc given = {}; ///< of an input: how it lies where it is not as `desc` says
  };

  Prepared(dnnl::primitive primitive, std::vector<Argument> arguments, size_t scratchpad_bytes,
           std::vector<dnnl::memory> owned);
  void execute(const RunArgs& args);
  int64_t scratchpad_bytes() const { return static_cast<int64_t>(scratchpad_bytes_); }

  /// Input `input` is copied into output 0 before the primitive runs.
  void copy_first(int input, const dnnl::memory::desc& from, const dnnl::memory::desc& to);
  /// oneDNN has only a plain loop for this.
  bool is_reference() const { return is_reference_; }
  void set_reference(bool is) { is_reference_ = is; }

private:
  struct Copy {
    int input;
    dnnl::memory::desc from, to;
    dnnl::reorder reorder;
  };
  struct Slot {
    std::vector<dnnl::memory> memories;
    std::vector<dnnl_exec_arg_t> args;
  };
  std::unique_ptr<Slot> take();

  dnnl::primitive primitive_;
  std::vector<Argument> arguments_;
  size_t scratchpad_bytes_;
  std::vector<dnnl::memory> owned_; ///< packed weights kept alive
  std::optional<Copy> copy_;
  bool is_reference_ = false;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Slot>> idle_;
};

/// Primitives by operand sizes, least recently used ones dropped.
class PreparedCache {
public:
  using Make = std::function<std::shared_ptr<Prepared>()>;
  std::shared_ptr<Prepared> get(std::span<const TensorRef> inputs, std::span<const TensorRef> outputs,
                                const Make& make);

private:
  static constexpr size_t kLimit = 32;
  struct Entry {
    std::vector<int64_t> key;
    std::shared_ptr<Prepared> prepared;
  };
  std::mutex mutex_;
  std::list<Entry> entries_;
};

/// Constant weights (f32; f16 and bf16 become that) reordered into the layouts primitives ask for, each
/// layout once.
class PackedWeights {
public:
  PackedWeights(dnnl::memory::desc plain, std::shared_ptr<const Tensor> weights)
      : plain_(std::move(plain)), weights_(std::move(weights)) {}
  dnnl::memory get(const dnnl::memory::desc& wanted);
  int64_t bytes() const;

private:
  dnnl::memory::desc plain_;
  std::shared_ptr<const Tensor> weights_;
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
