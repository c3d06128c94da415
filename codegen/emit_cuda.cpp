// KernelProgram -> CUDA C++: a thread per outer point, or a block where inner loops are worth its threads.
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

#include "codegen/cuda_running.h"
#include "codegen/cuda_tiles.h"
#include "codegen/device_binary.h"
#include "codegen/emit.h"
#include "codegen/exact_values.h"
#include "codegen/held_rows.h"
#include "codegen/plan_threads.h"
#include "codegen/recompute_rows.h"
#include "codegen/reductions.h"
#include "codegen/writer.h"
#include "device/device.h"

namespace tbx::codegen {

using ir::Access;
using ir::Phase;
using ir::Stmt;
using ir::StmtKind;
using ir::SymInt;

namespace {

/// Blocks of a kernel behind which the next starts at once, too: those of steps of decoders.
constexpr int64_t kMostBeside = 8;

constexpr const char* kPrelude =
#include "codegen/prelude/cuda.inc"
#include "codegen/prelude/cuda_functions.inc"
#include "codegen/prelude/cuda_lanes.inc"
#include "codegen/prelude/cuda_running.inc"
    ;

/// What is decided before the text: what threads do, and what they keep of rows in registers.
struct CudaPlan {
  ThreadPlan threads;
  HeldRows held;

  CudaPlan(const ir::KernelProgram& kernel, const Gpu& gpu) : threads(plan_threads(kernel, gpu)) {
    const bool warp = threads.mapping == Mapping::warp;
    if ((warp || threads.mapping == Mapping::block) && !threads.row_begin)
      held = hold_rows(kernel, threads.lanes, warp ? 32 : threads.row_threads, gpu);
  }
  bool keeps_rows_in_memory() const { return threads.mapping == Mapping::block && held.threads == 0; }
};

class CudaEmitter {
public:
  CudaEmitter(const ir::KernelProgram& kernel, CudaPlan plan, const Gpu& gpu)
      : kernel_(kernel), gpu_(gpu), plan_(std::move(plan.threads)), w_(kernel, plan_.lanes),
        mapping_(plan_.mapping), rows_(std::move(plan.held)),
        shared_(mapping_ == Mapping::block && rows_.threads == 0
                    ? share_rows(kernel, plan_.lanes, gpu.shared_bytes - gpu.reduce_bytes)
                    : SharedRows{}),
        across_(kernel.outer.empty() ? nullptr
                                     : kernel.context->var(static_cast<int>(kernel.outer.size()) - 1).node(),
                plan_.lanes) {
    w_.on_failure = "{{ failed(error, {}, {}, {}, {}{}); return; }}";
    w_.rows_per_block = true;
    w_.by_value = true;
    w_.row_begin = plan_.row_begin;
    w_.fuse_arithmetic(exact_values(kernel));
  }

  EmittedKernel emit() {
    if (plan_.lanes > 1) w_.line(fmt::format("LANES({})", plan_.lanes));
    if (mapping_ == Mapping::running) {
      const RunningLoops loops = emit_running(w_, kernel_, plan_);
      EmittedKernel out = finish(loops.tasks);
      out.state_bytes = loops.state_bytes;
      return out;
    }
    if (mapping_ != Mapping::thread)
      w_.line(mapping_ == Mapping::warp     ? "using team = warp_team;"
              : mapping_ == Mapping::column ? "using team = column_team;"
                                            : fmt::format("using team = block_of<{}>;", block_threads()));
    if (mapping_ == Mapping::leader) w_.line("if (threadIdx.x != 0) return;");
    declare_shared();
    if (mapping_ == Mapping::tile) return finish(emit_tiles(w_, kernel_, plan_));
    ir::SymInts points = kernel_.outer;
    const bool across = plan_.lanes > 1 && mapping_ == Mapping::thread;
    if (across) points.back() = ir::ceildiv(points.back(), plan_.lanes);
    std::string header;
    if (kernel_.sequential) {
      w_.line("if (blockIdx.x != 0 || begin >= end) return;");
      header = fmt::format("for (i64 p = 0; p < {}; ++p)", w_.index_text(ir::product(points)));
    } else if (mapping_ == Mapping::thread) {
      header =
          "for (i64 p = begin + (i64)blockIdx.x * blockDim.x + threadIdx.x; p < end; p += (i64)gridDim.x "
          "* blockDim.x)";
    } else if (mapping_ == Mapping::column) {
      points = {ir::ceildiv(ir::product(points), 32 * plan_.lanes)};
      header = kTeamLoop;
    } else {
      header = kTeamLoop;
    }
    w_.point_scope = w_.open(header);
    if (rows_.threads > 0) declare_held();
    if (mapping_ == Mapping::column)
      emit_columns();
    else if (across)
      emit_across(points);
    else {
      unflatten_outer(points);
      if (plan_.row_begin) {
        first_vector_ = w_.fresh("f");
        w_.line(fmt::format("const i64 {} = umod(W - umod({}, W), W);", first_vector_,
                            w_.index_text(*plan_.row_begin)));
      }
      for (const Phase& phase : kernel_.phases) emit_phase(phase);
    }
    w_.close();

    return finish(kernel_.sequential ? SymInt(1) : ir::product(points));
  }

private:
  EmittedKernel finish(const SymInt& tasks) {
    EmittedKernel out;
    out.block_threads = block_threads();
    out.tasks = tasks;
    out.team = mapping_ == Mapping::thread ? Team::thread
               : mapping_ == Mapping::warp ? Team::warp
                                           : Team::block;
    // Where sizes are known with the run, so is whether it starts early.
    const auto blocks = ir::ceildiv(tasks, ir::SymInt(teams_of_block(out))).as_constant();
    out.overlaps = !blocks || *blocks <= device::kMostEarlyBlocks;
    const char* const begin = !out.overlaps ? "" : blocks && *blocks <= kMostBeside ? "BESIDE\n" : "BEHIND\n";
    const std::string body = fmt::format("({}) {{\n{}{}}}\n", parameters(out.overlaps), begin, w_.finish());
    out.function = fmt::format("k_{:016x}", XXH3_64bits(body.data(), body.size()));
    out.text = fmt::format("namespace tbx {{\nextern \"C\" __global__ void __launch_bounds__({}{}) {}{}}}\n",
                           out.block_threads, blocks_beside(), out.function, body);
    out.size_args = w_.size_args;
    out.check_origins = w_.check_origins;
    out.scratch_bytes = w_.scratch_bytes;
    out.shared_bytes = static_cast<int>(shared_.bytes);
    return out;
  }

  /// Of the kernel on a multiprocessor, as text behind the threads of a block.
  const char* blocks_beside() const {
    if (mapping_ == Mapping::running) return ", 2";
    if (mapping_ == Mapping::tile) return plan_.tile_anywhere ? ", 3" : ", 4";
    return "";
  }

  /// A vector for each thread along the longest phase, where that is no more than a block holds.
  int block_threads() const {
    if (mapping_ == Mapping::thread || mapping_ == Mapping::warp) return gpu_.usual_threads;
    if (mapping_ == Mapping::leader) return Gpu::kWarp;
    if (mapping_ == Mapping::running) return RunPlan::kThreads;
    if (mapping_ == Mapping::tile) return plan_.tile_threads;
    if (mapping_ == Mapping::column) return gpu_.block_threads / 2;
    if (rows_.threads > 0) return rows_.threads;
    int64_t points = 1;
    for (const Phase& phase : kernel_.phases)
      if (!phase.inner.empty()) points = std::max(points, ir::size_hint(ir::product(phase.inner)));
    const int64_t vectors = (points + plan_.lanes - 1) / plan_.lanes;
    // More wait for each other, even where no other block has room on the multiprocessor.
    return static_cast<int>(std::clamp<int64_t>((vectors + 31) / 32 * 32, 32, gpu_.block_threads / 2));
  }

  /// Pointers and sizes by value: they lie in constant memory, where a table would cost a dependent load
  /// each. What a kernel reads that starts while the one before it runs may change at first: the compiler
  /// must not load it early, as it does where nothing else writes there (__restrict).
  std::string parameters(bool changing) const {
    std::string out;
    for (size_t b = 0; b < kernel_.buffers.size(); ++b)
      if (kernel_.buffers[b].access != Access::row_local)
        out += fmt::format("{} b{}, ", w_.pointer_type(static_cast<int>(b), changing), b);
    for (size_t s = 0; s < w_.size_args.size(); ++s) out += fmt::format("i64 s{}, ", s);
    return out + "i64 begin, i64 end, void* scratch, i64* error";
  }

  /// Calls known(k, name) with the index along dimension k of a row-major space at point `p`, in the current
  /// scope.
  template <class Known> void unflatten(std::string p, const ir::SymInts& extents, Known&& known) {
    for (size_t k = extents.size(); k-- > 0;) {
      std::string extent = w_.index_text(extents[k]), name = w_.fresh("q");
      w_.line(k == 0 ? fmt::format("const i64 {} = {};", name, p)
                     : fmt::format("const i64 {} = umod({}, {});", name, p, extent));
      if (k > 0) p = fmt::format("udiv({}, {})", p, extent);
      known(static_cast<int>(k), name);
    }
  }

  void unflatten_outer(const ir::SymInts& extents) {
    unflatten("p", extents,
              [&](int k, const std::string& name) { w_.bind(kernel_.context->var(k), name, w_.current()); });
  }

  void unflatten_inner(const std::string& r, const Phase& phase) {
    unflatten(r, phase.inner,
              [&](int k, const std::string& name) { w_.bind(kernel_.context->rvar(k), name, w_.current()); });
  }

  /// A point is a vector of neighbours along the last outer dimension; the last vector of a row may have a
  /// rest.
  void emit_across(const ir::SymInts& points) {
    const auto last = static_cast<int>(points.size()) - 1;
    const SymInt variable = kernel_.context->var(last), extent = kernel_.outer.back();
    const std::string first = w_.fresh("q");
    unflatten("p", points, [&](int k, const std::string& name) {
      if (k < last) return w_.bind(kernel_.context->var(k), name, w_.current());
      w_.line(fmt::format("const i64 {} = {} * W;", first, name));
    });
    auto phases = [&](const std::string& live) {
      w_.point_scope = w_.current();
      w_.bind(variable, first, w_.current());
      w_.set_lanes(&across_, live);
      for (const Phase& phase : kernel_.phases) emit_phase(phase);
      w_.set_lanes(nullptr, "");
    };
    if (known_divisor(extent, nullptr, 1) % plan_.lanes == 0) {
      w_.open("");
      phases("");
      w_.close();
      return;
    }
    const std::string n = w_.index_text(extent), live = w_.fresh("n");
    w_.open(fmt::format("if ({} + W <= {})", first, n), true);
    phases("");
    w_.close();
    w_.open("else", true);
    w_.line(fmt::format("const i64 {} = {} - {};", live, n, first));
    phases(live);
    w_.close();
  }

  /// A task is 32 outer points, or as many vectors of them. Threads behind the last one do the last one's
  /// work, for all must meet, but store nothing.
  void emit_columns() {
    const std::string n = w_.index_text(ir::product(kernel_.outer)), c = w_.fresh("c");
    w_.line(fmt::format("const i64 {} = (p * 32 + threadIdx.x % 32) * {};", c, plan_.lanes));
    w_.line(fmt::format("const bool live = {} < {};", c, n));
    unflatten(fmt::format("vmin({}, {} - {})", c, n, plan_.lanes), kernel_.outer,
              [&](int k, const std::string& name) { w_.bind(kernel_.context->var(k), name, w_.current()); });
    if (plan_.lanes > 1) w_.set_lanes(&across_, "");
    for (const Phase& phase : kernel_.phases) emit_phase(phase);
    w_.set_lanes(nullptr, "");
  }

  /// Arrays of as many lanes as a thread has steps.
  void declare_held() {
    const bool vector = plan_.lanes > 1;
    for (const HeldRows::Value& v : rows_.values) {
      held_names_.push_back(w_.fresh("h"));
      w_.line(fmt::format("{} {}[{}];", w_.type_of(v.expr->dtype, vector), held_names_.back(), rows_.steps));
    }
    for (int b : rows_.buffers) {
      held_buffers_.push_back(w_.fresh("h"));
      w_.line(fmt::format("{}{} {}[{}];", storage_of(kernel_.buffers[b].dtype), vector ? "v" : "",
                          held_buffers_.back(), rows_.steps));
    }
  }

  void declare_shared() {
    if (shared_.rows.empty()) return;
    const std::string memory = w_.fresh("m");
    w_.line(fmt::format("SHARED_ROWS({}, {})", memory, shared_.bytes));
    for (const SharedRows::Row& row : shared_.rows) {
      const char* type = storage_of(kernel_.buffers[row.load->buffer].dtype);
      shared_names_.push_back(w_.fresh("sh")); // s0, s1, ... are sizes
      w_.line(
          fmt::format("{0}* const {1} = ({0}*)({2} + {3});", type, shared_names_.back(), memory, row.offset));
    }
  }

  /// What the phase has in shared memory, or puts there: the thread's points are at `place` of a row.
  void share(const Phase& phase, const std::string& place) {
    const auto number = static_cast<int>(&phase - kernel_.phases.data());
    if (shared_.rows.empty() || !shared_.phases[number]) return;
    const bool vector = plan_.lanes > 1;
    for (size_t k = 0; k < shared_.rows.size(); ++k) {
      const SharedRows::Row& row = shared_.rows[k];
      const std::string at = fmt::format("{} + {}", shared_names_[k], place);
      std::string text = vector ? fmt::format("load_lanes<W, 16>({})", at) : fmt::format("*({})", at);
      if (row.phase > number) continue;
      if (row.phase == number) {
        const std::string x = w_.fresh("h");
        w_.line(fmt::format("const {}{} {} = {};", storage_of(kernel_.buffers[row.load->buffer].dtype),
                            vector ? "v" : "", x, w_.stored(row.load)));
        w_.line(vector ? fmt::format("store_lanes<16>({}, {});", at, x) : fmt::format("*({}) = {};", at, x));
        text = x;
      }
      w_.set_tile(row.load, text, w_.current(), vector);
    }
  }

  /// The points of a row in steps, all of them written out: what is held of each has registers of its own.
  void emit_steps(const Phase& phase, Reductions& reductions) {
    const auto number = static_cast<int>(&phase - kernel_.phases.data());
    const int64_t points = *ir::product(phase.inner).as_constant();
    const std::string j = w_.fresh("j"), r = w_.fresh("r");
    w_.open(fmt::format("_Pragma(\"unroll\") for (i32 {0} = 0; {0} < {1}; ++{0})", j, rows_.steps), true);
    w_.line(fmt::format("const i64 {} = ({} * {} + team::rank()) * {};", r, j, rows_.threads, plan_.lanes));
    const bool guarded = points % (int64_t{rows_.threads} * plan_.lanes) != 0;
    if (guarded) w_.open(fmt::format("if ({} < {})", r, points), true);
    unflatten_inner(r, phase);
    auto at = [&](const std::string& name) { return fmt::format("{}[{}]", name, j); };
    for (size_t b = 0; b < held_buffers_.size(); ++b) w_.hold_buffer(rows_.buffers[b], at(held_buffers_[b]));
    for (size_t k = 0; k < held_names_.size(); ++k)
      if (rows_.values[k].phase < number) w_.hold(rows_.values[k].expr, at(held_names_[k]), plan_.lanes > 1);
    for (size_t k = 0; k < held_names_.size(); ++k)
      if (rows_.values[k].phase == number)
        w_.line(fmt::format("{} = {};", at(held_names_[k]), w_.emit(rows_.values[k].expr).text));
    emit_stmts(phase, reductions);
    for (int b : rows_.buffers) w_.hold_buffer(b, "");
    if (guarded) w_.close();
    w_.close();
  }

  /// A thread adds few numbers in the phase.
  bool has_few_points(const Phase& phase) const {
    auto points = ir::product(phase.inner).as_constant();
    const int64_t threads = mapping_ == Mapping::column ? block_threads() / 32
                            : mapping_ == Mapping::warp ? 32
                                                        : block_threads();
    return is_team() && points && *points / threads <= gpu_.flush;
  }

  /// Running values: a chunk at a time of as many points as the team has lanes, all threads in each.
  void emit_scan(const Phase& phase) {
    const Stmt& s = phase.stmts[0];
    const bool vector = plan_.lanes > 1;
    const DType t = s.value->dtype;
    const std::string n = w_.index_text(phase.inner[0]), none = neutral(s.reduce, t);
    const std::string carry = w_.fresh("a"), c = w_.fresh("c"), r = w_.fresh("r"), x = w_.fresh("x");
    const char* combine = s.reduce == ir::ReduceOp::sum    ? "sum_of"
                          : s.reduce == ir::ReduceOp::prod ? "prod_of"
                          : s.reduce == ir::ReduceOp::max  ? "max_of"
                                                           : "min_of";
    LaneAnalysis along(kernel_.context->rvar(0).node(), plan_.lanes);
    auto inside = [&](auto&& body) {
      w_.open(fmt::format("if ({} < {})", r, n), true);
      w_.bind(kernel_.context->rvar(0), r, w_.current());
      if (vector) w_.set_lanes(&along, "");
      body();
      w_.set_lanes(nullptr, "");
      w_.close();
    };
    w_.line(fmt::format("{} {} = {};", w_.type_of(t, false), carry, none));
    w_.open(fmt::format("for (i64 {0} = 0; {0} < {1}; {0} += team::size() * {2})", c, n, plan_.lanes), true);
    w_.line(fmt::format("const i64 {} = {} + team::rank() * {};", r, c, plan_.lanes));
    w_.line(vector ? fmt::format("{} {} = v{}({});", w_.type_of(t, true), x, compute_of(t), none)
                   : fmt::format("{} {} = {};", w_.type_of(t, false), x, none));
    inside([&] {
      const Value v = w_.emit(s.value);
      w_.line(fmt::format("{} = {};", x, vector ? w_.as_vector(v, t).text : v.text));
    });
    w_.line(
        fmt::format("{0} = running<team>({0}, {1}, {2}, {3}, {4}());", x, carry, none, s.exclusive, combine));
    inside([&] { w_.store(s, {x, w_.current(), vector}); });
    w_.close();
    meet(phase);
  }

  void emit_phase(const Phase& phase) {
    w_.enter_phase(&phase);
    w_.forget_tiles();
    if (is_team() && is_scan_of_team(phase)) return emit_scan(phase);
    const bool steps = rows_.threads > 0 && rows_.phases[&phase - kernel_.phases.data()];
    const bool spread = is_team() && !phase.inner.empty();
    const bool columns = mapping_ == Mapping::column && plan_.lanes > 1;
    Reductions reductions(w_, kernel_, phase, /*along=*/spread && !columns, 1);
    if (columns && spread) reductions.join_threads();
    if (steps || has_few_points(phase)) reductions.sum_at_once();
    if (spread && plan_.lanes > 1 && !columns) {
      LaneAnalysis along(kernel_.context->rvar(static_cast<int>(phase.inner.size()) - 1).node(), plan_.lanes);
      w_.set_lanes(&along, "");
      reductions.declare();
      if (steps)
        emit_steps(phase, reductions);
      else
        emit_vectors(phase, reductions, along);
      reductions.finish();
      w_.set_lanes(nullptr, "");
      meet(phase);
      return;
    }
    reductions.declare();
    if (steps)
      emit_steps(phase, reductions);
    else if (spread)
      emit_spread(phase, reductions);
    else
      emit_serial(phase, 0, reductions);
    reductions.finish();
    meet(phase);
  }

  /// What one thread stored, another may read in a later phase or overwrite for the next point.
  void meet(const Phase& phase) {
    bool shared = false;
    for (const Stmt& s : phase.stmts) {
      shared |= (s.kind == StmtKind::store || s.kind == StmtKind::scan) && w_.is_read(s.buffer) &&
                !rows_.holds(s.buffer);
      ir::visit(s.value, [&](ir::Expr e) {
        shared |= e->op == ir::Op::load && kernel_.buffers[e->buffer].access == Access::row_local &&
                  !rows_.holds(e->buffer);
      });
    }
    if (shared && is_team()) w_.line("team::sync();");
  }

  /// One loop over the flat inner space, a chunk of it between flushes of f32 sums.
  void emit_spread(const Phase& phase, Reductions& reductions) {
    std::string n = w_.index_text(ir::product(phase.inner)), r = w_.fresh("r"), lo = "0";
    const bool chunks = reductions.cascade_level() >= 0;
    if (chunks) {
      std::string c = w_.fresh("c"), ce = w_.fresh("c"), step = fmt::format("{}l * team::size()", gpu_.flush);
      w_.open(fmt::format("for (i64 {0} = 0; {0} < {1}; {0} += {2})", c, n, step), true);
      w_.line(fmt::format("const i64 {} = vmin({} + {}, {});", ce, c, step, n));
      lo = c, n = ce;
    }
    // Loads of a column are far apart: several on their way at once.
    const char* unrolled = mapping_ == Mapping::column ? "_Pragma(\"unroll 8\") " : "";
    w_.open(fmt::format("{3}for (i64 {0} = {1} + team::rank(); {0} < {2}; {0} += team::size())", r, lo, n,
                        unrolled),
            true);
    unflatten_inner(r, phase);
    share(phase, r);
    emit_stmts(phase, reductions);
    w_.close();
    if (!chunks) return;
    reductions.flush();
    w_.close();
  }

  /// The same with a vector for each thread; the rest of a space of one dimension is one vector more, or two
  /// where rows begin anywhere.
  void emit_vectors(const Phase& phase, Reductions& reductions, LaneAnalysis& along) {
    const SymInt points = ir::product(phase.inner);
    const std::string n = w_.index_text(points);
    const bool even = known_divisor(points, nullptr, 1) % plan_.lanes == 0;
    auto body = [&](const std::string& r, const std::string& rest, const std::string& place) {
      unflatten_inner(r, phase);
      w_.set_lanes(&along, rest);
      share(phase, place);
      emit_stmts(phase, reductions);
      w_.set_lanes(&along, "");
      w_.close();
    };
    const std::string begin = plan_.row_begin ? first_vector_ : "0";
    auto loop = [&](const std::string& lo, const std::string& condition, const std::string& live) {
      const std::string r = w_.fresh("r"), rest = w_.fresh("n");
      // Few blocks have room beside long rows: several loads of a thread are on their way at once.
      w_.open(fmt::format("{3}for (i64 {0} = {1} + (i64)team::rank() * W; {2}; {0} += (i64)team::size() * W)",
                          r, lo, fmt::format(fmt::runtime(condition), r),
                          !shared_.rows.empty() && live.empty() ? "_Pragma(\"unroll 4\") " : ""),
              true);
      if (!live.empty()) w_.line(fmt::format("const i64 {} = {} - {};", rest, n, r));
      body(r, live.empty() ? "" : rest, plan_.row_begin ? fmt::format("({} - {})", r, begin) : r);
    };
    if (reductions.cascade_level() >= 0) {
      const std::string c = w_.fresh("c"), ce = w_.fresh("c");
      const std::string step = fmt::format("{}l * team::size()", int64_t{gpu_.flush} * plan_.lanes);
      w_.open(fmt::format("for (i64 {0} = {3}; {0} < {1}; {0} += {2})", c, n, step, begin), true);
      w_.line(fmt::format("const i64 {} = vmin({} + {}, {});", ce, c, step, n));
      loop(c, "{} + W <= " + ce, "");
      reductions.flush();
      w_.close();
    } else {
      loop(begin, "{} + W <= " + n, "");
    }
    if (plan_.row_begin) {
      // What is before the first vector and behind the last one, each a thread's.
      const std::string r = w_.fresh("r"), rest = w_.fresh("n");
      w_.line(
          fmt::format("const i64 {0} = team::rank() == 0 ? 0 : {1} > {2} ? {1} - umod({1} - {2}, W) : {1};",
                      r, n, begin));
      w_.line(
          fmt::format("const i64 {} = team::rank() == 0 ? vmin({}, {}) : {} - {};", rest, begin, n, n, r));
      w_.open(fmt::format("if (team::rank() < 2 && {} > 0)", rest), true);
      body(r, rest, fmt::format("({} + team::rank() * W)", shared_.points));
      reductions.flush();
      return;
    }
    if (even) return;
    loop(fmt::format("umod({0}, W) == 0 ? {0} : {0} - umod({0}, W)", n), "{} < " + n, "rest");
    reductions.flush();
  }

  void emit_serial(const Phase& phase, size_t level, Reductions& reductions) {
    if (level == phase.inner.size()) return emit_stmts(phase, reductions);
    const std::string n = w_.index_text(phase.inner[level]), r = w_.fresh("r");
    // The next elements of a running value are on their way while one is added.
    const bool running =
        mapping_ == Mapping::thread && !phase.stmts.empty() && phase.stmts.front().kind == StmtKind::scan;
    const char* unrolled = running ? "_Pragma(\"unroll 8\") " : "";
    auto loop = [&](const std::string& lo, const std::string& hi) {
      int scope = w_.open(fmt::format("{3}for (i64 {0} = {1}; {0} < {2}; ++{0})", r, lo, hi, unrolled), true);
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
    const bool one_of_block = is_team() && phase.inner.empty();
    for (const Stmt& s : phase.stmts) {
      switch (s.kind) {
      case StmtKind::reduce: reductions.update(s, 0); break;
      case StmtKind::scan: reductions.scan(s); break;
      case StmtKind::let: w_.set_local(s.number, w_.emit(s.value)); break;
      case StmtKind::store:
        if (one_of_block)
          w_.open(mapping_ == Mapping::column ? "if (team::rank() == 0 && live)" : "if (team::rank() == 0)",
                  true);
        else if (mapping_ == Mapping::column)
          w_.open("if (live)", true);
        w_.store(s, w_.emit(s.value));
        if (one_of_block || mapping_ == Mapping::column) w_.close();
        break;
      }
    }
  }

  /// Threads share the inner points of one outer point.
  bool is_team() const {
    return mapping_ == Mapping::block || mapping_ == Mapping::warp || mapping_ == Mapping::column;
  }

  static constexpr const char* kTeamLoop =
      "for (i64 p = begin + team::number(); p < end; p += team::count())";
  const ir::KernelProgram& kernel_;
  const Gpu& gpu_;
  const ThreadPlan plan_;
  Writer w_;
  const Mapping mapping_;
  const HeldRows rows_;
  const SharedRows shared_;
  std::vector<std::string> held_names_, held_buffers_; ///< of rows_.values and rows_.buffers
  std::vector<std::string> shared_names_;              ///< of shared_.rows
  std::string first_vector_;                           ///< of plan_.row_begin
  LaneAnalysis across_; ///< lanes along the last outer dimension (Mapping::thread)
};

} // namespace

std::string prelude_cuda() { return kPrelude; }

EmittedKernel emit_cuda(const ir::KernelProgram& kernel, const Gpu& gpu) {
  CudaPlan plan(kernel, gpu);
  if (plan.threads.running && plan.threads.running->backwards)
    return CudaEmitter(from_the_end(kernel), std::move(plan), gpu).emit();
  if (plan.keeps_rows_in_memory())
    if (const auto shorter = recompute_rows(kernel))
      return CudaEmitter(*shorter, CudaPlan(*shorter, gpu), gpu).emit();
  return CudaEmitter(kernel, std::move(plan), gpu).emit();
}

} // namespace tbx::codegen
