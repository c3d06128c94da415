// KernelProgram -> CUDA C++: a thread per outer point, or a block where inner loops are worth its threads.
#include <fmt/format.h>
#include <xxhash.h>

#include "codegen/emit.h"
#include "codegen/plan_loops.h"
#include "codegen/reductions.h"
#include "codegen/writer.h"

namespace tbx::codegen {

using ir::Access;
using ir::Phase;
using ir::Stmt;
using ir::StmtKind;
using ir::SymInt;

namespace {

constexpr const char* kPrelude =
#include "codegen/prelude/cuda.inc"
    ;

constexpr int64_t kShortRow = 16; ///< inner points that one thread runs alone

enum class Mapping : uint8_t {
  thread, ///< per outer point; inner loops are serial
  block,  ///< per outer point; inner points spread over its threads
  leader, ///< a block whose first thread does all: order within a point matters and rows need a place
};

/// Statements must run in the order of the inner points.
bool is_serial(const ir::KernelProgram& kernel, const Phase& phase) {
  if (phase.inner.empty()) return false;
  if (!points_are_independent(phase, kernel)) return true;
  for (const Stmt& s : phase.stmts) {
    if (s.kind == StmtKind::scan || s.mode != ir::StoreMode::set) return true;
    if (s.kind != StmtKind::store) continue;
    // Where several points store to one address, the last one counts.
    if (ir::has_indirect(s.address)) return true;
    for (size_t k = 0; k < phase.inner.size(); ++k) {
      const ir::SymNode* variable = kernel.context->rvar(static_cast<int>(k)).node();
      if (!phase.inner[k].is(1) && !ir::depends_on(s.address, variable)) return true;
    }
  }
  return false;
}

/// Neighbouring threads read neighbouring elements when each takes an outer point of its own.
bool outer_is_contiguous(const ir::KernelProgram& kernel) {
  if (kernel.outer.empty()) return false;
  int across = 0, along = 0;
  const ir::SymNode* outer = kernel.context->var(static_cast<int>(kernel.outer.size()) - 1).node();
  for (const Phase& phase : kernel.phases) {
    if (phase.inner.empty()) continue;
    const ir::SymNode* inner = kernel.context->rvar(static_cast<int>(phase.inner.size()) - 1).node();
    for (const Stmt& s : phase.stmts)
      ir::visit(s.value, [&](ir::Expr e) {
        if (e->op != ir::Op::load) return;
        auto a = ir::affine_in(e->indices[0], outer), b = ir::affine_in(e->indices[0], inner);
        across += a && a->coefficient.is(1);
        along += b && b->coefficient.is(1);
      });
  }
  return across > along;
}

Mapping choose_mapping(const ir::KernelProgram& kernel) {
  bool serial = kernel.sequential, rows = false, loops = false, longer = false;
  for (const Phase& phase : kernel.phases) {
    serial |= is_serial(kernel, phase);
    if (phase.inner.empty()) continue;
    loops = true;
    auto points = ir::product(phase.inner).as_constant();
    longer |= !points || *points > kShortRow;
  }
  for (const ir::KernelBuffer& b : kernel.buffers) rows |= b.access == Access::row_local;
  if (kernel.sequential || (serial && rows)) return Mapping::leader;
  if (rows) return Mapping::block;
  return !loops || serial || !longer || outer_is_contiguous(kernel) ? Mapping::thread : Mapping::block;
}

class CudaEmitter {
public:
  explicit CudaEmitter(const ir::KernelProgram& kernel)
      : kernel_(kernel), w_(kernel, 1), mapping_(choose_mapping(kernel)) {
    w_.on_failure = "{{ *error = {}; return; }}";
    w_.rows_per_block = true;
    w_.by_value = true;
  }

  EmittedKernel emit() {
    if (mapping_ == Mapping::leader) w_.line("if (threadIdx.x != 0) return;");
    std::string header;
    if (kernel_.sequential) {
      w_.line("if (blockIdx.x != 0 || begin >= end) return;");
      header = fmt::format("for (i64 p = 0; p < {}; ++p)", w_.index_text(ir::product(kernel_.outer)));
    } else if (mapping_ == Mapping::thread) {
      header =
          "for (i64 p = begin + (i64)blockIdx.x * blockDim.x + threadIdx.x; p < end; p += (i64)gridDim.x "
          "* blockDim.x)";
    } else {
      header = "for (i64 p = begin + blockIdx.x; p < end; p += gridDim.x)";
    }
    w_.point_scope = w_.open(header);
    unflatten("p", kernel_.outer, [&](int k) { return kernel_.context->var(k); });
    for (const Phase& phase : kernel_.phases) emit_phase(phase);
    w_.close();

    EmittedKernel out;
    std::string body = fmt::format("({}) {{\n{}}}\n", parameters(), w_.finish());
    out.function = fmt::format("k_{:016x}", XXH3_64bits(body.data(), body.size()));
    out.text = fmt::format("namespace tbx {{\nextern \"C\" __global__ void {}{}}}\n", out.function, body);
    out.size_args = w_.size_args;
    out.tasks = kernel_.sequential ? SymInt(1) : ir::product(kernel_.outer);
    out.scratch_bytes = w_.scratch_bytes;
    out.block_per_task = mapping_ != Mapping::thread;
    return out;
  }

private:
  /// Pointers and sizes by value: they lie in constant memory, where a table would cost a dependent load
  /// each.
  std::string parameters() const {
    std::string out;
    for (size_t b = 0; b < kernel_.buffers.size(); ++b)
      if (kernel_.buffers[b].access != Access::row_local)
        out += fmt::format("{} b{}, ", w_.pointer_type(static_cast<int>(b)), b);
    for (size_t s = 0; s < w_.size_args.size(); ++s) out += fmt::format("i64 s{}, ", s);
    return out + "i64 begin, i64 end, void* scratch, i64* error";
  }

  /// Binds the variables of a row-major space to their values at point `p`, in the current scope.
  template <class Variable> void unflatten(std::string p, const ir::SymInts& extents, Variable&& variable) {
    for (size_t k = extents.size(); k-- > 0;) {
      std::string extent = w_.index_text(extents[k]), name = w_.fresh("q");
      w_.line(k == 0 ? fmt::format("const i64 {} = {};", name, p)
                     : fmt::format("const i64 {} = umod({}, {});", name, p, extent));
      if (k > 0) p = fmt::format("udiv({}, {})", p, extent);
      w_.bind(variable(static_cast<int>(k)), name, w_.current());
    }
  }

  void emit_phase(const Phase& phase) {
    w_.enter_phase(&phase);
    const bool spread = mapping_ == Mapping::block && !phase.inner.empty();
    Reductions reductions(w_, kernel_, phase, /*along=*/spread, 1);
    reductions.declare();
    if (spread)
      emit_spread(phase, reductions);
    else
      emit_serial(phase, 0, reductions);
    reductions.finish();
    // What one thread stored, another may read in a later phase or overwrite for the next point.
    bool stores = false;
    for (const Stmt& s : phase.stmts) stores |= s.kind == StmtKind::store;
    if (stores && mapping_ == Mapping::block) w_.line("__syncthreads();");
  }

  /// One loop over the flat inner space, a chunk of it between flushes of f32 sums.
  void emit_spread(const Phase& phase, Reductions& reductions) {
    std::string n = w_.index_text(ir::product(phase.inner)), r = w_.fresh("r"), lo = "0";
    const bool chunks = reductions.cascade_level() >= 0;
    if (chunks) {
      std::string c = w_.fresh("c"), ce = w_.fresh("c"), step = fmt::format("{}l * blockDim.x", kChunk);
      w_.open(fmt::format("for (i64 {0} = 0; {0} < {1}; {0} += {2})", c, n, step), true);
      w_.line(fmt::format("const i64 {} = vmin({} + {}, {});", ce, c, step, n));
      lo = c, n = ce;
    }
    w_.open(fmt::format("for (i64 {0} = {1} + threadIdx.x; {0} < {2}; {0} += blockDim.x)", r, lo, n), true);
    unflatten(r, phase.inner, [&](int k) { return kernel_.context->rvar(k); });
    emit_stmts(phase, reductions);
    w_.close();
    if (!chunks) return;
    reductions.flush();
    w_.close();
  }

  void emit_serial(const Phase& phase, size_t level, Reductions& reductions) {
    if (level == phase.inner.size()) return emit_stmts(phase, reductions);
    const std::string n = w_.index_text(phase.inner[level]), r = w_.fresh("r");
    auto loop = [&](const std::string& lo, const std::string& hi) {
      int scope = w_.open(fmt::format("for (i64 {0} = {1}; {0} < {2}; ++{0})", r, lo, hi), true);
      w_.bind(kernel_.context->rvar(static_cast<int>(level)), r, scope);
      emit_serial(phase, level + 1, reductions);
      w_.close();
    };
    if (reductions.cascade_level() != static_cast<int>(level)) return loop("0", n);
    std::string c = w_.fresh("c"), ce = w_.fresh("c");
    const int64_t step = reductions.cascade_chunk();
    w_.open(fmt::format("for (i64 {0} = 0; {0} < {1}; {0} += {2})", c, n, step), true);
    w_.line(fmt::format("const i64 {} = vmin({} + {}l, {});", ce, c, step, n));
    loop(c, ce);
    reductions.flush();
    w_.close();
  }

  void emit_stmts(const Phase& phase, Reductions& reductions) {
    const bool one_of_block = mapping_ == Mapping::block && phase.inner.empty();
    for (const Stmt& s : phase.stmts) {
      switch (s.kind) {
      case StmtKind::reduce: reductions.update(s, 0); break;
      case StmtKind::scan: reductions.scan(s); break;
      case StmtKind::let: w_.set_local(s.number, w_.emit(s.value)); break;
      case StmtKind::store:
        if (one_of_block) w_.open("if (threadIdx.x == 0)", true);
        w_.store(s, w_.emit(s.value));
        if (one_of_block) w_.close();
        break;
      }
    }
  }

  static constexpr int kChunk = 256; ///< f32 values that a thread sums before it flushes them into f64
  const ir::KernelProgram& kernel_;
  Writer w_;
  const Mapping mapping_;
};

} // namespace

std::string prelude_cuda() { return kPrelude; }

EmittedKernel emit_cuda(const ir::KernelProgram& kernel) { return CudaEmitter(kernel).emit(); }

} // namespace tbx::codegen
