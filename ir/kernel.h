// KernelProgram: one generated kernel, as fusion makes it and as codegen emits and the evaluator runs it.
//
// Meaning. For every point of the `outer` space (var(0), var(1), ...; points are independent and may run in
// any order and in parallel, unless `sequential`) the phases run in order. A phase is a loop nest over its
// `inner` ranges (rvar(0), rvar(1), ..., row-major order); its statements run in order at every inner point.
// Accumulators and locals live for one outer point: a `reduce` statement's result, Expr accumulator(number),
// is final after its phase; a `let` value, Expr local(number), is usable in later statements of its own phase
// if the phase has inner ranges (it is private to the inner point then) and in all later phases if `inner` is
// empty.
//
// Every load and store has exactly one index: a linear address in elements of KernelProgram::buffers[b], with
// all layouts resolved. Row-local buffers are private to one outer point; their address space is [0, numel).
//
// Typical shapes: pointwise = outer over all dimensions, one phase without inner ranges. Reduction over rows
// = outer over rows, a phase with inner ranges and `reduce`, then a phase without inner ranges that stores.
// Softmax, LayerNorm and chains of them = several phases over the same inner ranges. Sum over axis 0 = outer
// over the kept (contiguous) dimension, inner over the reduced one: codegen then vectorises over the last
// outer variable.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "ir/expr.h"
#include "ir/tensor_box.h"

namespace tbx::ir {

enum class Access : uint8_t { read, write, read_write, row_local };

struct KernelBuffer {
  BufferId id = -1; ///< in Program::buffers; -1 for row_local
  DType dtype = DType::undefined;
  Access access = Access::read;
  SymInt numel;           ///< elements addressed, from `offset` on
  bool may_alias = false; ///< shares memory with another buffer of this kernel (in-place)
  int64_t offset = 0;     ///< address 0 is this element of the buffer
};

enum class StmtKind : uint8_t {
  store,  ///< buffers[buffer][address] = value (combined by `mode`); skipped where `mask` is false
  reduce, ///< accumulator(number) = reduce over the phase of value (positions count row-major for arg
          ///< reductions)
  scan, ///< buffers[buffer][address] = running `reduce` of value in inner order (`exclusive`: before adding)
  let,  ///< local(number) = value
};

struct Stmt {
  StmtKind kind = StmtKind::store;
  Expr value = nullptr;
  Expr mask = nullptr;
  int buffer = -1;
  SymInt address;
  StoreMode mode = StoreMode::set;
  ReduceOp reduce = ReduceOp::sum;
  bool exclusive = false;
  int number = -1; ///< accumulator or local
};

/// What a statement stores or adds, and its mask.
std::vector<Expr> operands_of(const Stmt& s);
/// The values in its address that come from data.
std::vector<Expr> address_values_of(const Stmt& s);
/// Both of them: all that it computes.
std::vector<Expr> values_of(const Stmt& s);
/// Calls f(buffer, address) for every access of the statement to memory.
template <class F> void visit_accesses(const Stmt& s, F&& f) {
  if (s.buffer >= 0) f(s.buffer, s.address);
  visit(values_of(s), [&](Expr e) {
    if (e->op == Op::load) f(e->buffer, e->indices[0]);
  });
}

struct Phase {
  SymInts inner;
  std::vector<Stmt> stmts;
};

struct KernelProgram {
  std::shared_ptr<Context> context;
  SymInts outer;
  std::vector<Phase> phases;
  std::vector<KernelBuffer> buffers;
  int num_accumulators = 0, num_locals = 0;
  bool sequential = false; ///< outer points must run in row-major order on one thread (colliding scatters)

  Extents extents(const Phase& phase) const { return {outer, phase.inner}; }
};

/// Deterministic text (golden tests, `tbx dump --stage=schedule`).
std::string to_string(const KernelProgram& kernel);
/// Throws InternalError on a broken invariant (types, undefined accumulators, address out of [0, numel) when
/// constant).
void verify(const KernelProgram& kernel);

/// An index computed from data is out of range.
class IndexError : public Error {
public:
  IndexError(std::string message, int origin) : Error(ErrorKind::model, std::move(message)), origin(origin) {}
  int origin; ///< SymNode::origin
};

/// Runs outer points [begin, end) (row-major linear order) without a compiler. `buffers[b]` points at
/// address 0 of kernel.buffers[b] (row_local entries are ignored); `symbols` are indexed by SymNode::number.
/// Throws IndexError when an indirect index is out of range. Safe to call from several threads on disjoint
/// ranges.
void evaluate_kernel(const KernelProgram& kernel, std::span<void* const> buffers,
                     std::span<const int64_t> symbols, int64_t begin, int64_t end);

} // namespace tbx::ir
