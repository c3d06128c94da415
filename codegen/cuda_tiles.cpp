// Blocks take tiles of the last dimension and of the one along which the strided loads are contiguous. These
// are read as they lie, 16 bytes at a time, all of a thread's before the first one is used; the second pass
// goes along the last dimension, with lanes. Where lines begin at no multiple of 16 bytes the vectors of
// memory are read all the same, with what they have of the tile's neighbours, and each line that is stored
// has its vectors in the tile: it begins up to a vector before the others, so that the tile has as many lines
// more.
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
        row_begin_(plan.row_begin), anywhere_(plan.tile_anywhere), before_(row_begin_ ? plan.lanes - 1 : 0),
        across_(kernel.context->var(last_).node(), plan.lanes, plan.row_begin ? 1 : plan.lanes) {}

  SymInt run() {
    ir::SymInts points = kernel_.outer;
    for (int k : {tiles_.axis, last_})
      points[k] = ir::ceildiv(points[k] + SymInt(k == last_ ? before_ : 0), SymInt(size_));
    for (Expr e : tiles_.loads) {
      names_.push_back(w_.fresh("t"));
      w_.line(fmt::format("__shared__ {} {}[{}];", storage(e), names_.back(), lines() * pitch(e)));
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
    w_.open(fmt::format("if ({} + {} <= {} && {} >= {} && {} + {} <= {})", u0_, size_, u, v0_, before_, v0_,
                        size_, v),
            true);
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

  /// Neighbours along the axis that are one access where it is a multiple of 16 bytes; 1: they never are.
  int lanes_anywhere(Expr load) const {
    const auto lanes =
        static_cast<int>(std::min<int64_t>(8, 16 / size_of(kernel_.buffers[load->buffer].dtype)));
    return anywhere_ && load_lanes(load) == 1 ? lanes : 1;
  }

  /// Elements before the first of a tile's line that are there for the vectors of memory.
  int pad(Expr load) const { return lanes_anywhere(load) - 1; }

  /// Elements from one line of a tile to the next: threads that read down a column find theirs in different
  /// banks.
  int pitch(Expr load) const {
    const int64_t bytes = size_of(kernel_.buffers[load->buffer].dtype), row = size_ + 2 * pad(load);
    return static_cast<int>(bytes >= 4 ? row | 1 : ((row * bytes + 3) / 4 | 1) * 4 / bytes);
  }

  int lines() const { return size_ + before_; }

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

  /// A thread's steps: {j} of them, and its number {k} in the tile.
  template <class Body> void steps(int accesses, Body&& body) {
    const std::string j = w_.fresh("j"), k = w_.fresh("k");
    const int count = (accesses + threads_ - 1) / threads_;
    w_.open(fmt::format("_Pragma(\"unroll\") for (i32 {0} = 0; {0} < {1}; ++{0})", j, count), true);
    w_.line(fmt::format("const i32 {} = {} * {} + (i32)threadIdx.x;", k, j, threads_));
    if (accesses % threads_ != 0) w_.open(fmt::format("if ({} < {})", k, accesses), true);
    body(j, k);
    if (accesses % threads_ != 0) w_.close();
    w_.close();
  }

  /// Point `d` of the tile along the axis or the last dimension.
  std::string bind(int k, const std::string& d) {
    std::string name = w_.fresh("u");
    w_.line(fmt::format("const i64 {} = {} + {};", name, k == last_ ? v0_ : u0_, d));
    w_.bind(kernel_.context->var(k), name, w_.current());
    return name;
  }

  std::string define(const std::string& text) {
    std::string name = w_.fresh("d");
    w_.line(fmt::format("const i32 {} = {};", name, text));
    return name;
  }

  /// Runs the body where the point is inside of the space.
  template <class Body> void inside(bool whole, const std::string& u, const std::string& v, Body&& body) {
    if (!whole)
      w_.open(fmt::format("if ({} < {} && {} >= 0 && {} < {})", u, w_.index_text(kernel_.outer[tiles_.axis]),
                          v, v, w_.index_text(kernel_.outer[last_])),
              true);
    body();
    if (!whole) w_.close();
  }

  /// Into registers, all of them, and from there into the tile. Where vectors begin anywhere those that begin
  /// each line are one more than those that a line has.
  void read(size_t t, bool whole) {
    const Expr e = tiles_.loads[t];
    const ir::KernelBuffer& b = kernel_.buffers[e->buffer];
    const bool anywhere = whole && lanes_anywhere(e) > 1;
    const int lanes = anywhere ? lanes_anywhere(e) : load_lanes(e);
    std::vector<std::string> held;
    for (const bool loads : {true, false})
      for (const int line : {size_ / lanes, 1}) {
        const bool last = line == 1 && anywhere;
        if (line == 1 && !anywhere && size_ > lanes) continue;
        if (loads) {
          held.push_back(w_.fresh("h"));
          w_.line(fmt::format("vec<{}, {}> {}[{}];", storage(e), lanes, held.back(),
                              (lines() * line + threads_ - 1) / threads_));
        }
        const std::string& mine = held[last ? 1 : 0];
        steps(lines() * line, [&](const std::string& j, const std::string& k) {
          const std::string row = define(fmt::format("{} / {}", k, line));
          const std::string v = bind(last_, fmt::format("{} - {}", row, before_));
          std::string first = last ? std::to_string(size_) : fmt::format("{} % {} * {}", k, line, lanes);
          if (anywhere) { // tiles begin at multiples of a vector
            const auto place = ir::affine_in(e->indices[0], kernel_.context->var(tiles_.axis).node());
            first +=
                fmt::format(" - (i32)({} & {})", w_.index_text(place->rest + SymInt(b.offset)), lanes - 1);
          }
          first = define(first);
          if (last) w_.open(fmt::format("if ({} < {})", first, size_), true);
          if (loads)
            load(e, whole, anywhere, lanes, fmt::format("{}[{}]", mine, j), first, v);
          else
            w_.line(fmt::format(
                "_Pragma(\"unroll\") for (i32 l = 0; l < {}; ++l) {}[{} * {} + {} + {} + l] = {}[{}][l];",
                lanes, names_[t], row, pitch(e), first, pad(e), mine, j));
          if (last) w_.close();
        });
      }
  }

  void load(Expr e, bool whole, bool anywhere, int lanes, const std::string& to, const std::string& first,
            const std::string& v) {
    const ir::KernelBuffer& b = kernel_.buffers[e->buffer];
    const std::string u = bind(tiles_.axis, first);
    inside(whole, u, v, [&] {
      const std::string at = w_.index_text(e->indices[0]), from = w_.buffer(e->buffer);
      w_.line(anywhere ? fmt::format("{} = load_inside<{}>({}, {}, {});", to, lanes, from, at,
                                     w_.index_text(b.numel))
                       : fmt::format("{} = load_lanes<{}, {}>({} + {});", to, lanes, lanes * size_of(b.dtype),
                                     from, at));
    });
  }

  void passes(bool whole) {
    for (size_t t = 0; t < names_.size(); ++t) read(t, whole);
    w_.line("__syncthreads();");
    const bool vector = lanes_ > 1 && (whole || !row_begin_);
    const int lanes = vector ? lanes_ : 1, line = size_ / lanes;
    steps(size_ * line, [&](const std::string&, const std::string& k) {
      const std::string row = define(fmt::format("{} / {}", k, line));
      const std::string u = bind(tiles_.axis, row);
      std::string first = fmt::format("{} % {} * {}", k, line, lanes);
      if (row_begin_) first += fmt::format(" - (i32)({} & {})", w_.index_text(*row_begin_), lanes_ - 1);
      first = define(first);
      const std::string v = bind(last_, first);
      inside(whole, u, v, [&] {
        for (size_t t = 0; t < names_.size(); ++t) {
          const int step = pitch(tiles_.loads[t]);
          const std::string at =
              fmt::format("({} + {}) * {} + {} + {}", first, before_, step, row, pad(tiles_.loads[t]));
          w_.set_tile(tiles_.loads[t],
                      vector ? fmt::format("load_strided<W>({} + {}, {}, W)", names_[t], at, step)
                             : fmt::format("{}[{}]", names_[t], at),
                      w_.current(), vector);
        }
        statements(vector);
      });
    });
    w_.line("__syncthreads();");
  }

  void statements(bool vector) {
    w_.point_scope = w_.current();
    if (vector) w_.set_lanes(&across_, "");
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
  const std::optional<SymInt> row_begin_; ///< as that of ThreadPlan, along the last dimension
  const bool anywhere_;
  const int before_; ///< lines of a tile before its first one, which some rows begin with
  LaneAnalysis across_;
  std::string u0_, v0_;            ///< where the tile begins
  std::vector<std::string> names_; ///< of the loads' tiles
};

} // namespace

SymInt emit_tiles(Writer& w, const ir::KernelProgram& kernel, const ThreadPlan& plan) {
  return TileEmitter(w, kernel, plan).run();
}

} // namespace tbx::codegen
