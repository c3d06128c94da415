// Blocks take tiles of the last dimension and of the one along which the strided loads are contiguous. These
// are read as they lie, 16 bytes at a time where addresses allow, all of a thread's before the first one is
// used; the second pass goes along the last dimension, with lanes.
#include "codegen/cuda_tiles.h"

#include <fmt/format.h>

namespace tbx::codegen {

using ir::Expr;
using ir::Phase;
using ir::Stmt;
using ir::StmtKind;
using ir::SymInt;

namespace {

class TileEmitter {
public:
  TileEmitter(Writer& w, const ir::KernelProgram& kernel, const ThreadPlan& plan)
      : w_(w), kernel_(kernel), tiles_(plan.tiles), lanes_(plan.lanes), size_(plan.tile_size),
        threads_(plan.tile_threads), last_(static_cast<int>(kernel.outer.size()) - 1),
        across_(kernel.context->var(last_).node(), plan.lanes, plan.lanes) {}

  SymInt run() {
    ir::SymInts points = kernel_.outer;
    for (int k : {tiles_.axis, last_}) points[k] = ir::ceildiv(points[k], size_);
    for (Expr e : tiles_.loads) {
      names_.push_back(w_.fresh("t"));
      w_.line(fmt::format("__shared__ {} {}[{}];", storage(e), names_.back(), size_ * pitch(e)));
    }
    w_.point_scope = w_.open("for (i64 p = begin + blockIdx.x; p < end; p += gridDim.x)");
    u0_ = w_.fresh("u"), v0_ = w_.fresh("v");
    std::string p = "p";
    for (int k = last_; k >= 0; --k) {
      const std::string extent = w_.index_text(points[k]), name = w_.fresh("q");
      w_.line(k == 0 ? fmt::format("const i64 {} = {};", name, p)
                     : fmt::format("const i64 {} = umod({}, {});", name, p, extent));
      if (k > 0) p = fmt::format("udiv({}, {})", p, extent);
      if (k == tiles_.axis || k == last_)
        w_.line(fmt::format("const i64 {} = {} * {};", k == last_ ? v0_ : u0_, name, size_));
      else
        w_.bind(kernel_.context->var(k), name, w_.current());
    }
    const std::string u = w_.index_text(kernel_.outer[tiles_.axis]), v = w_.index_text(kernel_.outer[last_]);
    w_.open(fmt::format("if ({} + {} <= {} && {} + {} <= {})", u0_, size_, u, v0_, size_, v), true);
    passes(true);
    w_.close();
    w_.open("else", true);
    passes(false);
    w_.close();
    w_.close();
    return ir::product(points);
  }

private:
  const char* storage(Expr load) const { return storage_of(kernel_.buffers[load->buffer].dtype); }

  /// Elements from one row of a tile to the next: threads that read down a column find theirs in different
  /// banks.
  int pitch(Expr load) const {
    const int64_t bytes = size_of(kernel_.buffers[load->buffer].dtype);
    return size_ + static_cast<int>(std::max<int64_t>(1, 4 / bytes));
  }

  /// Neighbours along the axis that are one access.
  int load_lanes(Expr load) const {
    const ir::KernelBuffer& b = kernel_.buffers[load->buffer];
    const ir::SymNode* axis = kernel_.context->var(tiles_.axis).node();
    for (int lanes = static_cast<int>(16 / size_of(b.dtype)); lanes > 1; lanes /= 2)
      if (known_divisor(kernel_.outer[tiles_.axis], nullptr, 1) % lanes == 0 &&
          access_bytes(b, load->indices[0], axis, lanes) % (lanes * size_of(b.dtype)) == 0)
        return lanes;
    return 1;
  }

  /// A loop over a thread's steps through the tile, `lanes` points each along u (fast) or along v. In it u
  /// and v are bound, and `at` is the place of the first point in a tile. A part of a tile is what lies
  /// inside of the space.
  template <class Body> void steps(bool whole, bool along_u, int lanes, int pitch, Body&& body) {
    const int across = size_ / lanes, count = (size_ * across + threads_ - 1) / threads_;
    const std::string j = w_.fresh("j"), k = w_.fresh("k"), u = w_.fresh("u"), v = w_.fresh("v");
    w_.open(fmt::format("_Pragma(\"unroll\") for (i32 {0} = 0; {0} < {1}; ++{0})", j, count), true);
    const std::string fast = fmt::format("{} % {} * {}", k, across, lanes),
                      slow = fmt::format("{} / {}", k, across);
    w_.line(fmt::format("const i32 {} = {} * {} + (i32)threadIdx.x;", k, j, threads_));
    w_.line(
        fmt::format("const i32 d{0} = {1}, d{2} = {3};", u, along_u ? fast : slow, v, along_u ? slow : fast));
    w_.line(fmt::format("const i64 {0} = {1} + d{0}, {2} = {3} + d{2};", u, u0_, v, v0_));
    const bool idle = size_ * across % threads_ != 0; // threads, in the last step
    if (idle) w_.open(fmt::format("if ({} < {})", k, size_ * across), true);
    if (!whole)
      w_.open(fmt::format("if ({} < {} && {} < {})", u, w_.index_text(kernel_.outer[tiles_.axis]), v,
                          w_.index_text(kernel_.outer[last_])),
              true);
    w_.bind(kernel_.context->var(tiles_.axis), u, w_.current());
    w_.bind(kernel_.context->var(last_), v, w_.current());
    body(j, fmt::format("d{} * {} + d{}", v, pitch, u),
         [&](int other) { // the same in a tile of another pitch
           return fmt::format("d{} * {} + d{}", v, other, u);
         });
    if (!whole) w_.close();
    if (idle) w_.close();
    w_.close();
  }

  void passes(bool whole) {
    for (size_t t = 0; t < names_.size(); ++t) {
      const Expr e = tiles_.loads[t];
      const int lanes = load_lanes(e), count = (size_ * size_ / lanes + threads_ - 1) / threads_;
      const int bytes = lanes * static_cast<int>(size_of(kernel_.buffers[e->buffer].dtype));
      const std::string held = w_.fresh("h");
      w_.line(fmt::format("vec<{}, {}> {}[{}];", storage(e), lanes, held, count));
      steps(whole, true, lanes, pitch(e), [&](const std::string& j, const std::string&, auto&&) {
        w_.line(fmt::format("{}[{}] = load_lanes<{}, {}>({} + {});", held, j, lanes, bytes,
                            w_.buffer(e->buffer), w_.index_text(e->indices[0])));
      });
      steps(whole, true, lanes, pitch(e), [&](const std::string& j, const std::string& at, auto&&) {
        w_.line(fmt::format("_Pragma(\"unroll\") for (i32 l = 0; l < {}; ++l) {}[{} + l] = {}[{}][l];", lanes,
                            names_[t], at, held, j));
      });
    }
    w_.line("__syncthreads();");
    steps(whole, false, lanes_, 0, [&](const std::string&, const std::string&, auto&& place) {
      for (size_t t = 0; t < names_.size(); ++t) {
        const int step = pitch(tiles_.loads[t]);
        const std::string at = place(step);
        w_.set_tile(tiles_.loads[t],
                    lanes_ > 1 ? fmt::format("load_strided<W>({} + {}, {}, W)", names_[t], at, step)
                               : fmt::format("{}[{}]", names_[t], at),
                    w_.current(), lanes_ > 1);
      }
      statements();
    });
    w_.line("__syncthreads();");
  }

  void statements() {
    w_.point_scope = w_.current();
    if (lanes_ > 1) w_.set_lanes(&across_, "");
    for (const Phase& phase : kernel_.phases) {
      w_.enter_phase(&phase);
      for (const Stmt& s : phase.stmts) {
        const Value v = w_.emit(s.value);
        if (s.kind == StmtKind::let)
          w_.set_local(s.number, v);
        else
          w_.store(s, v);
      }
    }
    w_.set_lanes(nullptr, "");
  }

  Writer& w_;
  const ir::KernelProgram& kernel_;
  const TilePlan& tiles_;
  const int lanes_, size_, threads_, last_;
  LaneAnalysis across_;
  std::string u0_, v0_;            ///< where the tile begins
  std::vector<std::string> names_; ///< of the loads' tiles
};

} // namespace

SymInt emit_tiles(Writer& w, const ir::KernelProgram& kernel, const ThreadPlan& plan) {
  return TileEmitter(w, kernel, plan).run();
}

} // namespace tbx::codegen
