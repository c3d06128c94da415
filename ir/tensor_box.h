// TensorBox: what an operator returns. A view (an index map) of a StorageBox, which holds either a loop nest
// that is not in memory yet or a Buffer. Also the Program that collects buffers and operations in order.
//
// Views compose eagerly: a TensorBox has exactly one index map from its own indices to its storage's,
// whatever chain of Permute, Expand, Slice, Reshape made it. Inlining a producer is substitution of index
// expressions.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/target.h"
#include "base/tensor.h"
#include "ir/expr.h"
#include "ir/extern_call.h"

namespace tbx::ir {

enum class LoopKind : uint8_t { pointwise, reduction, scan };

enum class ReduceOp : uint8_t {
  sum,
  prod,
  max,
  min, ///< max and min propagate NaN
  any,
  all, ///< over booleans
  argmax,
  argmin, ///< index (i64) of the first best in reduction order; NaN wins over numbers
  argmax_last,
  argmin_last, ///< the last best
};
const char* name_of(ReduceOp op);

/// A loop nest that computes one value per point of `ranges`.
///  pointwise:  out[i] = body(i)
///  reduction:  out[i] = reduce over r of body(i, r); f32 accumulation of f32, i64 for arg reductions
///  scan:       out[i] = running reduce of body along i[scan_axis]; `exclusive` leaves out the current
///  element
struct Loops {
  LoopKind kind = LoopKind::pointwise;
  SymInts ranges;           ///< var(k) < ranges[k]: the shape of the result
  SymInts reduction_ranges; ///< rvar(k) < reduction_ranges[k]
  ReduceOp reduce = ReduceOp::sum;
  int scan_axis = 0;
  bool exclusive = false, reverse = false;
  Expr body = nullptr;
  DType dtype = DType::undefined; ///< type of the result (may be narrow; its buffer may be narrower)
  Extents extents() const { return {ranges, reduction_ranges}; }
};

/// How stores into a buffer combine with what is there.
enum class StoreMode : uint8_t { set, add, mul, max, min };

/// Where a buffer's bytes come from.
enum class BufferKind : uint8_t { input, constant, computed };

struct Buffer {
  BufferId id = -1;
  std::string name; ///< the ONNX value it stands for where there is one, for people only
  DType dtype = DType::undefined;
  SymInts sizes;
  SymInts strides; ///< in elements; empty while the layout is flexible, fixed by the layout pass
  BufferKind kind = BufferKind::computed;
  std::shared_ptr<const Tensor> constant; ///< kind constant
  /// Storage binding: this buffer is a rectangular part of `slice_of` starting at `slice_start` (concat
  /// without copy), or it overwrites the memory of `overwrites` (scatter into a copy). -1: owns its memory.
  BufferId slice_of = -1;
  SymInts slice_start;
  BufferId overwrites = -1;
  bool is_flexible() const { return strides.empty() && !sizes.empty(); }
};

/// Computes one buffer from a loop nest.
struct Compute {
  Loops loops;
  BufferId output;
};

/// For every point of `ranges` stores `value` at `indices` of `target` (whose old contents are those of the
/// buffer it overwrites). Points run in row-major order where indices may collide.
struct Scatter {
  SymInts ranges;
  SymInts indices; ///< into target, may be indirect
  Expr value;
  Expr mask = nullptr; ///< points where it is false store nothing
  StoreMode mode = StoreMode::set;
  BufferId target;
};

/// One operation of the program, in execution order, with the ONNX nodes it came from.
struct Operation {
  std::variant<Compute, Scatter, ExternCall> what;
  std::vector<int> origins; ///< node numbers of the imported graph
  std::string reason;       ///< why it was realized, for `tbx explain`
};

/// A run-time condition on symbols, checked before the run: `value` must be >= 0 (or == 0 when `equal`).
struct Check {
  SymInt value;
  bool equal = false;
  std::string message;
  /// Inputs for which it fails are legal, but need a program made without assumptions.
  bool assumption = false;
  std::string where; ///< the node that needs it
};

class StorageBox;
class TensorBox;

/// Values of the program that are known by name.
struct ProgramInput {
  std::string name;
  BufferId buffer;
};
struct ProgramOutput {
  std::string name;
  BufferId buffer;
};

/// The lowered model: buffers and operations in order. Result of lowering, input of fusion.
struct Program {
  std::shared_ptr<Context> context;
  std::vector<Buffer> buffers; ///< indexed by BufferId
  std::vector<Operation> operations;
  std::vector<ProgramInput> inputs;
  std::vector<ProgramOutput> outputs;
  std::vector<Check> checks;
  /// Dimensions that meet in a broadcast and are not known to be 1 are taken as equal (a Check says so).
  /// Otherwise every such dimension gets indices that are right for both outcomes.
  bool assume_broadcast = false;
  /// Sizes that pass through floats are taken as small enough to stay exact there (a Check says so).
  /// Otherwise floats are followed symbolically only where that is proven.
  bool assume_exact_floats = false;
  std::vector<std::string> origin_names; ///< node number -> "name (OpType)"
  std::string where;                     ///< the node that is being lowered: checks name it
  Target target;                         ///< what it is made for

  BufferId new_buffer(std::string name, DType dtype, SymInts sizes);
  /// Adds a check once; what is known to hold is left out, what is known to fail is a ModelError.
  void add_check(SymInt value, bool equal, std::string message, bool assumption = false);
  BufferId add_constant(std::shared_ptr<const Tensor> tensor, std::string name);
  Buffer& at(BufferId id) { return buffers[id]; }
  const Buffer& at(BufferId id) const { return buffers[id]; }
};

/// Printable, deterministic form of a program (golden tests, `tbx dump --stage=lower`).
std::string to_string(const Program& program);
/// Throws InternalError naming the first broken invariant (undefined buffer, use before definition, index
/// rank, types of operands, constant index out of bounds).
void verify(const Program& program);

/// A shared cell: a loop nest until somebody realizes it, a buffer from then on. All views see the change at
/// once.
class StorageBox {
public:
  explicit StorageBox(Loops loops) : data_(std::move(loops)) {}
  explicit StorageBox(BufferId buffer) : data_(buffer) {}

  bool is_realized() const { return std::holds_alternative<BufferId>(data_); }
  BufferId buffer() const { return std::get<BufferId>(data_); }
  const Loops& loops() const { return std::get<Loops>(data_); }
  /// Puts the value into memory: appends a Compute to the program. No-op when already realized.
  BufferId realize(Program& program, std::string reason);

  /// What memory holds it in, once it goes there, where that is narrower than what it is computed in.
  DType stored = DType::undefined;
  int users = 0;            ///< consumers seen so far (realize policy)
  std::vector<int> origins; ///< ONNX nodes computed by the loop nest
  std::string name;

private:
  std::variant<Loops, BufferId> data_;
};

/// A tensor value during lowering. Cheap to copy.
class TensorBox {
public:
  TensorBox() = default;
  /// The whole of `storage` with its own shape.
  TensorBox(std::shared_ptr<StorageBox> storage, DType dtype, SymInts sizes);

  bool defined() const { return storage_ != nullptr; }
  DType dtype() const { return dtype_; }
  const SymInts& sizes() const { return sizes_; }
  int rank() const { return static_cast<int>(sizes_.size()); }
  const std::shared_ptr<StorageBox>& storage() const { return storage_; }
  /// Index of the storage element that element (var(0), var(1), ...) of this box shows; empty for an identity
  /// view.
  const SymInts& index_map() const { return map_; }
  bool is_identity_view() const { return identity_; }

  /// A view: its element `v` is element `map(v)` of this box; `map` is given over var(0..sizes.size()-1).
  TensorBox view(Context& c, SymInts sizes, const SymInts& map) const;

  /// The value at `indices` (one per dimension): inlines an unrealized pointwise producer, else a Load.
  /// Realizes unrealized reductions and scans.
  Expr load(Program& program, std::span<const SymInt> indices) const;

  /// Integer tensors of up to 4096 elements whose values are known symbolically (shape computations);
  /// row-major.
  std::shared_ptr<const SymInts> known_values;
  /// Set when the value is an initializer or folded constant.
  std::shared_ptr<const Tensor> constant;

private:
  std::shared_ptr<StorageBox> storage_;
  DType dtype_ = DType::undefined;
  SymInts sizes_;
  SymInts map_;           ///< one per dimension of the storage, over var(k); unused by an identity view
  SymInts storage_sizes_; ///< shape of the storage
  bool identity_ = true;  ///< shows the whole storage unchanged
};

// --- builders (ir/build.cpp)
TensorBox make_pointwise(Program& p, DType dtype, SymInts ranges, Expr body);
TensorBox make_reduction(Program& p, ReduceOp op, DType dtype, SymInts ranges, SymInts reduction_ranges,
                         Expr body);
TensorBox make_scan(Program& p, ReduceOp op, DType dtype, SymInts ranges, int axis, bool exclusive,
                    bool reverse, Expr body);
TensorBox make_constant(Program& p, Tensor tensor, std::string name = {});
/// 1-D (or scalar when `scalar`) i64 tensor with these symbolic values; known_values is set.
TensorBox make_symbolic(Program& p, SymInts values, bool scalar = false, DType dtype = DType::i64);
/// A box over a whole buffer.
TensorBox make_buffer_box(Program& p, BufferId buffer);

// --- views (ir/view.cpp); axes are normalised (>= 0) by the caller
TensorBox permute(Program& p, const TensorBox& x, std::span<const int> order);
/// numpy broadcast of `x` to `sizes`; a dimension whose equality cannot be proven gets an index that is right
/// for both outcomes and a run-time check.
TensorBox expand(Program& p, const TensorBox& x, const SymInts& sizes);
TensorBox reshape(Program& p, const TensorBox& x, SymInts sizes);
TensorBox squeeze(Program& p, const TensorBox& x, std::span<const int> axes);
/// `axes` are those of the result, sorted.
TensorBox unsqueeze(Program& p, const TensorBox& x, std::span<const int> axes);
/// Elements start, start+step, ... (`length` of them) along `axis`; step may be negative.
TensorBox slice(Program& p, const TensorBox& x, int axis, SymInt start, SymInt step, SymInt length);

/// numpy broadcast of two shapes; adds run-time checks to `p` where equality cannot be proven.
SymInts broadcast_sizes(Program& p, const SymInts& a, const SymInts& b);

/// Puts the box into memory and gives buffer + index map. A view that is not `strided` in its buffer is
/// copied first.
struct StridedView {
  BufferId buffer;
  SymInts sizes;
  SymInts coefficients; ///< [rank][buffer rank] row-major: buffer index k = start[k] + sum_d
                        ///< coefficients[d][k]*v[d]
  SymInts start;        ///< [buffer rank]
};
/// Needs nothing; guarantees an affine view: each buffer index is affine in the view's indices.
StridedView realize_strided(Program& p, const TensorBox& x, std::string reason);
/// The type that memory holds the box in, or will hold it in: its own, or a narrower float.
DType memory_type(const Program& p, const TensorBox& x);
/// `x`, or where memory holds it narrower than its type, a nest that computes it anew or copies it.
TensorBox wide_in_memory(Program& p, const TensorBox& x);
/// Realized into a buffer of exactly this box's shape (copying a view when needed).
BufferId realize_whole(Program& p, const TensorBox& x, std::string reason);

} // namespace tbx::ir
