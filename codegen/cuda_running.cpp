// A block loads all of its tile before it adds the first element, so that all of that is on its way at once,
// and holds it in registers until it knows what is before the tile: memory is read once and written once.
#include "codegen/cuda_running.h"

#include <fmt/format.h>

#include <type_traits>

#include "codegen/reductions.h"

namespace tbx::codegen {

using ir::Stmt;
using ir::SymInt;
using ir::SymInts;

namespace {

const char* function_of(ir::ReduceOp op) {
  return op == ir::ReduceOp::sum    ? "sum_of()"
         : op == ir::ReduceOp::prod ? "prod_of()"
         : op == ir::ReduceOp::max  ? "max_of()"
                                    : "min_of()";
}

class RunningEmitter {
public:
  RunningEmitter(Writer& w, const ir::KernelProgram& kernel, const ThreadPlan& plan)
      : w_(w), kernel_(kernel), plan_(*plan.running), s_(kernel.phases[0].stmts[0]),
        axis_(kernel.context->rvar(0)), length_(kernel.phases[0].inner[0]),
        last_(static_cast<int>(kernel.outer.size()) - 1), vector_(plan_.lanes > 1),
        lanes_((plan_.along ? axis_ : kernel.context->var(last_)).node(), plan_.lanes,
               plan_.row_begin ? 1 : plan_.lanes),
        value_type_(w.type_of(s_.value->dtype, vector_)),
        total_type_(w.type_of(s_.value->dtype, vector_ && !plan_.along)), combine_(function_of(s_.reduce)) {
    const std::string none = neutral(s_.reduce, s_.value->dtype);
    none_ = fmt::format("{}({})", total_type_, none);
    if (plan_.narrow)
      held_type_ = std::string(storage_of(kernel.buffers[s_.value->buffer].dtype)) + (vector_ ? "v" : "");
    else
      held_type_ = value_type_;
    nothing_ = plan_.narrow ? held_type_ + "(0)" : fmt::format("{}({})", value_type_, none);
    // The axis is slow: where others are beside it, the tile before this one was begun long ago.
    points_.push_back(plan_.tiles(length_));
    points_.insert(points_.end(), kernel.outer.begin(), kernel.outer.end());
    if (!plan_.along) points_.back() = plan_.chunks(kernel.outer.back());
    lines_ = ir::product(std::span(points_).subspan(1));
  }

  RunningLoops run() {
    w_.enter_phase(&kernel_.phases[0]);
    w_.line("u64* const state = (u64*)scratch;");
    w_.line("if (begin > end) return clear_state(state, begin - end);");
    w_.line(fmt::format("using scan = scan_tile<{}, {}, {}, {}>;", RunPlan::kThreads / Gpu::kWarp,
                        plan_.width, plan_.fan, total_type_));
    tiles_ = w_.index_text(points_[0]), n_ = w_.index_text(length_);
    w_.point_scope = w_.open("for (i64 p = begin + blockIdx.x; p < end; p += gridDim.x)");
    find_tile();
    find_points();
    add_up();
    w_.close();
    return {ir::product(points_), state_bytes()};
  }

private:
  static constexpr int64_t kHead = 2; ///< words before those of the tiles; the first counts tiles

  SymInt state_bytes() const {
    const int64_t words =
        int64_t{plan_.width} * (plan_.along ? 1 : plan_.lanes) * ((size_of(s_.value->dtype) + 3) / 4);
    const SymInt tiles = points_[0], fan = plan_.fan;
    const SymInt published = tiles + ir::ceildiv(tiles, fan) + ir::ceildiv(tiles, fan * fan);
    // A single tile has none before it.
    const SymInt some = ir::min(ir::max(tiles - SymInt(1), SymInt(0)), SymInt(1));
    return some * (lines_ * published * SymInt(words) + SymInt(kHead)) * SymInt(8);
  }

  /// The tile of the block, which line of tiles it is in, and the outer variables.
  void find_tile() {
    std::string p = w_.fresh("p");
    w_.line(fmt::format("const i64 {} = {} > 1 ? next_tile(state) : p;", p, tiles_));
    line_ = w_.fresh("q"), tile_ = w_.fresh("t");
    const std::string lines = w_.index_text(lines_);
    w_.line(fmt::format("const i64 {} = udiv({}, {}), {} = umod({}, {});", tile_, p, lines, line_, p, lines));
    p = line_;
    for (int k = last_; k >= 0; --k) {
      const std::string extent = w_.index_text(points_[static_cast<size_t>(k) + 1]), name = w_.fresh("q");
      w_.line(k == 0 ? fmt::format("const i64 {} = {};", name, p)
                     : fmt::format("const i64 {} = umod({}, {});", name, p, extent));
      if (k > 0) p = fmt::format("udiv({}, {})", p, extent);
      if (plan_.along || k < last_)
        w_.bind(kernel_.context->var(k), name, w_.current());
      else
        chunk_ = name;
    }
  }

  /// The first point of the thread, and whether all points of the tile are inside of the space.
  void find_points() {
    const std::string from = w_.fresh("r");
    first_ = w_.fresh("r"), whole_ = w_.fresh("w");
    std::string apart;
    if (plan_.row_begin) { // rows begin anywhere: what is before them, up to a vector, is in the first tile
      apart = w_.index_text(*plan_.row_begin);
      if (plan_.backwards) apart = fmt::format("W - umod({} + {}, W)", apart, n_);
      apart = fmt::format(" - umod({}, W)", apart);
    }
    w_.line(fmt::format("const i64 {} = {} * {}{};", from, tile_, plan_.points(), apart));
    w_.line(fmt::format("const i64 {} = {} + ((i64)threadIdx.x / 32 * {} + threadIdx.x % 32 / {}) * {};",
                        first_, from, plan_.steps * plan_.rows(), plan_.width, lanes_along()));
    std::string whole = fmt::format("{} >= 0 && {} + {} <= {}", from, from, plan_.points(), n_);
    if (!plan_.along) {
      column_ = w_.fresh("c");
      w_.line(fmt::format("const i64 {} = ({} * {} + threadIdx.x % {}) * {};", column_, chunk_, plan_.width,
                          plan_.width, plan_.lanes));
      whole += fmt::format(" && ({} + 1) * {} <= {}", chunk_, plan_.width * plan_.lanes,
                           w_.index_text(kernel_.outer.back()));
    }
    w_.line(fmt::format("const bool {} = {};", whole_, whole));
  }

  void add_up() {
    const std::string x = w_.fresh("x"), all = w_.fresh("a");
    prefix_ = w_.fresh("a");
    w_.line(fmt::format("{} {}[{}];", plan_.narrow ? fmt::format("packed<{}>", held_type_) : held_type_, x,
                        plan_.steps));
    each_step(x, [&](const std::string& at, bool vector) { load(at, vector); });
    // What is added up of the tile, to know what is before the others.
    std::string totals, earlier;
    if (plan_.along) {
      totals = w_.fresh("a");
      w_.line(fmt::format("{} {}[{}];", total_type_, totals, plan_.steps));
      unrolled([&](const std::string& j) {
        const std::string v = element(x, j, false);
        w_.line(fmt::format("{}[{}] = run_along({}, {});", totals, j, v, combine_));
      });
      w_.line(fmt::format("const {} {} = scan::run({}, {}, true, {});", total_type_, all, totals, none_,
                          combine_));
    } else if (plan_.narrow) {
      const std::string carry = w_.fresh("a");
      earlier = w_.fresh("a");
      w_.line(fmt::format("{} {} = {}, {};", total_type_, carry, none_, earlier));
      unrolled([&](const std::string& j) {
        const std::string v = element(x, j, false);
        w_.line(fmt::format("{0} = {1}({0}, scan::total({2}, {1}));", carry, combine_, v));
      });
      w_.line(fmt::format("const {} {} = scan::join_warps({}, {}, {}, {});", total_type_, all, carry, earlier,
                          none_, combine_));
    } else {
      w_.line(fmt::format("const {} {} = scan::run({}, {}, {}, {});", total_type_, all, x, none_,
                          s_.exclusive, combine_));
    }
    w_.line(fmt::format("{} {} = {};", total_type_, prefix_, none_));
    w_.line(
        fmt::format("if ({0} > 1) {1} = scan::before(state + {2} + {3} * scan::line_words({0}), {4}, {0}, "
                    "{5}, {6}, {7});",
                    tiles_, prefix_, kHead, line_, tile_, all, none_, combine_));
    if (!earlier.empty()) w_.line(fmt::format("{0} = {1}({0}, {2});", prefix_, combine_, earlier));
    each_step(
        x, [&](const std::string& at, bool vector) { store(at, vector); },
        [&](const std::string& j) {
          if (!plan_.along && !plan_.narrow) return fmt::format("{}({}, {}[{}])", combine_, prefix_, x, j);
          const std::string v = element(x, j, true);
          if (!plan_.along)
            return fmt::format("scan::step({}, {}, {}, {}, {})", v, prefix_, none_, s_.exclusive, combine_);
          w_.line(fmt::format("run_along({}, {});", v, combine_));
          return fmt::format("behind({0}({1}, {2}[{3}]), {4}, {5}, {0})", combine_, prefix_, totals, j, v,
                             s_.exclusive);
        });
  }

  /// A variable with the values of a step of the thread.
  std::string element(const std::string& x, const std::string& j, bool again) {
    std::string v = w_.fresh("v");
    std::string text = fmt::format("{}[{}]", x, j);
    if (plan_.narrow) {
      if (vector_) w_.set_lanes(&lanes_, "");
      w_.set_tile(s_.value, text + (again ? ".get((u32)(end >> 62))" : ".get(0)"), w_.current(), vector_);
      text = w_.emit(s_.value).text;
      w_.forget_tiles();
      w_.set_lanes(nullptr, "");
    }
    w_.line(fmt::format("{} {} = {};", value_type_, v, text));
    return v;
  }

  template <class Body> void unrolled(Body&& body) {
    const std::string j = w_.fresh("j");
    w_.open(fmt::format("_Pragma(\"unroll\") for (i32 {0} = 0; {0} < {1}; ++{0})", j, plan_.steps), true);
    body(j);
    w_.close();
  }

  /// All of a thread's steps; where the tile is whole, without a look at where each is. `access(at, vector)`
  /// loads or stores what is `at`: of `x`, or what `result` makes of it.
  template <class Access, class Result = std::nullptr_t>
  void each_step(const std::string& x, Access&& access, Result&& result = nullptr) {
    for (const bool whole : {true, false}) {
      w_.open(whole ? fmt::format("if ({})", whole_) : "else", true);
      unrolled([&](const std::string& j) {
        const std::string r = w_.fresh("r"), y = w_.fresh("y");
        constexpr bool loads = std::is_same_v<std::decay_t<Result>, std::nullptr_t>;
        w_.line(fmt::format("const i64 {} = {} + {} * {};", r, first_, j, plan_.rows() * lanes_along()));
        if constexpr (loads) {
          w_.line(whole ? fmt::format("{} {};", held_type_, y)
                        : fmt::format("{} {} = {};", held_type_, y, nothing_));
        } else {
          const std::string text = result(j);
          w_.line(fmt::format("const {} {} = {};", value_type_, y, text));
        }
        if (whole)
          point(r, y, access, vector_);
        else
          some_points(r, y, access);
        if (loads)
          w_.line(plan_.narrow ? fmt::format("{}[{}].put({});", x, j, y)
                               : fmt::format("{}[{}] = {};", x, j, y));
      });
      w_.close();
    }
  }

  /// Those of a step that are inside of the space; a part of a vector along the axis element by element.
  template <class Access> void some_points(const std::string& r, const std::string& at, Access&& access) {
    auto inside = [&](const std::string& first, int lanes) {
      return plan_.along ? fmt::format("if ({0} >= 0 && {0} + {1} <= {2})", first, lanes, n_)
                         : fmt::format("if ({} < {} && {} < {})", first, n_, column_,
                                       w_.index_text(kernel_.outer.back()));
    };
    w_.open(inside(r, plan_.lanes), true);
    point(r, at, access, vector_);
    w_.close();
    if (!plan_.along || !vector_) return;
    const std::string l = w_.fresh("l"), one = w_.fresh("r");
    w_.open(fmt::format(
                "else if ({0} + W > 0 && {0} < {1}) _Pragma(\"unroll\") for (i32 {2} = 0; {2} < W; ++{2})", r,
                n_, l),
            true);
    w_.line(fmt::format("const i64 {} = {} + {};", one, r, l));
    w_.open(inside(one, 1), true);
    point(one, fmt::format("{}[{}]", at, l), access, false);
    w_.close();
    w_.close();
  }

  /// In the order in which values are added.
  template <class Access>
  void point(const std::string& r, const std::string& at, Access&& access, bool vector) {
    w_.bind(axis_, plan_.backwards ? fmt::format("({} - {} - {})", n_, vector ? plan_.lanes : 1, r) : r,
            w_.current());
    if (!plan_.along) w_.bind(kernel_.context->var(last_), column_, w_.current());
    if (vector) w_.set_lanes(&lanes_, "");
    access(at, vector);
    w_.set_lanes(nullptr, "");
  }

  std::string in_order(const std::string& text, bool vector) const {
    return plan_.backwards && vector ? fmt::format("flipped({})", text) : text;
  }

  void load(const std::string& at, bool vector) {
    std::string text;
    if (plan_.narrow) {
      text = w_.stored(s_.value);
    } else {
      const Value v = w_.emit(s_.value);
      text = vector ? w_.as_vector(v, s_.value->dtype).text : v.text;
    }
    w_.line(fmt::format("{} = {};", at, in_order(text, vector)));
  }

  void store(const std::string& at, bool vector) {
    w_.store(s_, {in_order(at, vector), w_.current(), vector});
  }

  int lanes_along() const { return plan_.along ? plan_.lanes : 1; }

  Writer& w_;
  const ir::KernelProgram& kernel_;
  const RunPlan& plan_;
  const Stmt& s_;
  const SymInt axis_, length_;
  const int last_;
  const bool vector_;
  LaneAnalysis lanes_;
  const std::string value_type_, total_type_; ///< of what a thread has in a step, and of its total
  const std::string combine_;
  std::string none_, held_type_, nothing_; ///< what changes no total; what a thread holds, and of no point
  SymInts points_;                         ///< tiles of the axis, and the lines of tiles beside each other
  SymInt lines_;
  // Names of the text.
  std::string tiles_, n_, tile_, line_, chunk_, first_, column_, whole_, prefix_;
};

} // namespace

RunningLoops emit_running(Writer& w, const ir::KernelProgram& kernel, const ThreadPlan& plan) {
  return RunningEmitter(w, kernel, plan).run();
}

} // namespace tbx::codegen
