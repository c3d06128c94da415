// The nests of one kernel: outer points, phases, lane loops with their rests.
#include "codegen/loops.h"

#include <fmt/format.h>

#include <cctype>
#include <unordered_map>

#include "base/error.h"

namespace tbx::codegen {

using ir::Phase;
using ir::Stmt;
using ir::StmtKind;
using ir::SymInt;
using ir::SymInts;

LoopEmitter::LoopEmitter(const ir::KernelProgram& kernel, const Target& target)
    : kernel_(kernel), width_(target.cpu_lanes()), plan_(plan_loops(kernel, target)), w_(kernel, width_) {
  w_.byte_tables = true;
}

void LoopEmitter::open_points(const SymInts& extents) {
  ir::Context& c = *kernel_.context;
  // The variables live before the loop and count on; values that depend on them belong inside.
  int scope = w_.current() + 1;
  std::string points = w_.index_text(ir::product(extents));
  const int64_t per_task = plan_.points_per_task;
  std::string first = kernel_.sequential ? "0"
                      : per_task == 1    ? "begin"
                                         : fmt::format("begin * {}", per_task);
  std::string last = kernel_.sequential ? points
                     : per_task == 1    ? "end"
                                        : fmt::format("vmin(end * {}l, {})", per_task, points);
  tasks_ = kernel_.sequential ? SymInt(1) : ir::ceildiv(ir::product(extents), per_task);
  if (extents.empty()) {
    w_.open("");
    return;
  }
  w_.line(fmt::format("i64 p = {};", first));
  w_.line(fmt::format("const i64 pe = {};", last));
  std::string rest = "p";
  for (size_t k = extents.size(); k-- > 0;) {
    std::string name = fmt::format("i{}", k);
    std::string value = k == 0 ? rest : fmt::format("umod({}, {})", rest, w_.index_text(extents[k]));
    if (k > 0) rest = fmt::format("udiv({}, {})", rest, w_.index_text(extents[k]));
    w_.line(fmt::format("i64 {} = {};", name, value));
    w_.bind(c.var(static_cast<int>(k)), name, scope);
  }
  w_.open("for (; p < pe; ++p)");
}

void LoopEmitter::next_point(const SymInts& extents) {
  if (extents.empty()) return;
  std::string text = "++i0;";
  for (size_t k = 1; k < extents.size(); ++k)
    text = fmt::format("if (++i{0} == {1}) {{ i{0} = 0; {2} }}", k, w_.index_text(extents[k]), text);
  w_.line(text);
}

void LoopEmitter::emit_horizontal() {
  open_points(kernel_.outer);
  w_.point_scope = w_.current();
  emit_phases();
  next_point(kernel_.outer);
  w_.close();
}

void LoopEmitter::emit_vertical() {
  SymInts rows(kernel_.outer.begin(), kernel_.outer.end() - 1);
  const SymInt last = kernel_.outer.back(), variable = kernel_.context->var(static_cast<int>(rows.size()));
  if (plan_.beside >= 0) rows[static_cast<size_t>(plan_.beside)] = 1;
  LaneAnalysis lanes(variable.node(), width_);
  for (size_t b = 0; b < kernel_.buffers.size(); ++b)
    if (kernel_.buffers[b].access == ir::Access::row_local) lanes.set_varying_buffer(static_cast<int>(b));
  w_.vertical = true;
  auto body = [&](int) {
    w_.point_scope = w_.current();
    if (plan_.beside >= 0) return emit_beside();
    emit_phases();
  };
  std::vector<const Phase*> all;
  for (const Phase& phase : kernel_.phases) all.push_back(&phase);
  if (can_overlap(kernel_, all, variable, width_)) overlap_ = last.as_constant();
  if (plan_.tiles.axis >= 0) return emit_tiled(rows, lanes);
  int vectors = 1;
  if (plan_.beside >= 0)
    vectors = 1; // those beside each other are company enough
  else if (kernel_.phases.size() == 1 && kernel_.phases[0].inner.empty() && !kernel_.sequential)
    vectors = vectors_per_step(kernel_.phases[0], last);
  else if (!kernel_.sequential)
    vectors = vectors_per_reduction(last);
  if (plan_.block == 0) {
    open_points(rows);
    lane_loop(variable, lanes, "0", w_.index_text(last), last.as_constant(), vectors, body);
    next_point(rows);
    w_.close();
    return;
  }
  // Tasks are blocks of the last dimension, row after row.
  SymInt blocks = ir::ceildiv(last, plan_.block);
  std::string n = w_.index_text(last), num_blocks = w_.index_text(blocks);
  tasks_ = ir::product(rows) * blocks;
  int scope = w_.current() + 1;
  if (rows.empty()) {
    w_.line("i64 c = begin;");
  } else {
    w_.line(fmt::format("i64 p = udiv(begin, {0}), c = umod(begin, {0});", num_blocks));
    std::string rest = "p";
    for (size_t k = rows.size(); k-- > 0;) {
      std::string name = fmt::format("i{}", k);
      w_.line(k == 0 ? fmt::format("i64 i0 = {};", rest)
                     : fmt::format("i64 {} = umod({}, {});", name, rest, w_.index_text(rows[k])));
      if (k > 0) rest = fmt::format("udiv({}, {})", rest, w_.index_text(rows[k]));
      w_.bind(kernel_.context->var(static_cast<int>(k)), name, scope);
    }
  }
  w_.open("for (i64 t = begin; t < end; ++t)");
  w_.line(fmt::format("const i64 lo = c * {0}, hi = vmin(lo + {0}l, {1});", plan_.block, n));
  // The last block alone can have a rest, and none has when the extent is a multiple of the lanes of a step.
  auto extent = last.as_constant();
  const int64_t step = int64_t{width_} * vectors;
  bool even = extent ? *extent % step == 0 : known_divisor(last, nullptr, 1) % step == 0;
  lane_loop(variable, lanes, "lo", "hi", even ? std::optional<int64_t>(plan_.block) : std::nullopt, vectors,
            body);
  if (rows.empty()) {
    w_.line("++c;");
  } else {
    w_.line(fmt::format("if (++c < {}) continue;", num_blocks));
    w_.line("c = 0;");
    next_point(rows);
  }
  w_.close();
}

void LoopEmitter::emit_beside() {
  const Stmt& s = kernel_.phases[0].stmts[0];
  const SymInt u = kernel_.context->var(plan_.beside);
  const int64_t n = kernel_.outer[static_cast<size_t>(plan_.beside)].constant();
  const bool whole = w_.analysis() && !w_.is_tail();
  std::vector<std::string> names;
  std::string all;
  for (int64_t k = 0; whole && k < n; ++k) {
    names.push_back(w_.fresh("y"));
    w_.line(fmt::format("{}v {};", storage_of(kernel_.buffers[s.buffer].dtype), names.back()));
    all += ", " + names.back();
  }
  // Each in a scope of its own: indices at one of the points must not be taken for those of another.
  auto open_at = [&](int64_t k) {
    const int scope = w_.open("");
    const std::string here = w_.fresh("u");
    w_.line(fmt::format("const i64 {} = {};", here, k));
    w_.bind(u, here, scope);
  };
  for (int64_t k = 0; k < n; ++k) {
    open_at(k);
    w_.enter_phase(&kernel_.phases[0]);
    const Value value = w_.emit(s.value);
    if (whole)
      w_.line(fmt::format("{} = {};", names[static_cast<size_t>(k)], w_.stored_lanes(s, value)));
    else
      w_.store(s, value);
    w_.close();
  }
  if (whole) {
    open_at(0);
    w_.line(fmt::format("stb{}({} + {}{});", n, w_.buffer(s.buffer), w_.index_text(s.address), all));
    w_.close();
  }
  w_.unbind(u);
}

void LoopEmitter::emit_tiled(const SymInts& rows, LaneAnalysis& lanes) {
  ir::Context& c = *kernel_.context;
  const auto axis = static_cast<size_t>(plan_.tiles.axis);
  const SymInt last = kernel_.outer.back(), u = c.var(plan_.tiles.axis);
  SymInts points = rows;
  points[axis] = ir::ceildiv(rows[axis], width_);
  open_points(points);
  const std::string u0 = w_.fresh("u"), n = w_.fresh("n");
  w_.line(fmt::format("const i64 {} = i{} * W, {} = vmin(i64(W), {} - {});", u0, axis, n,
                      w_.index_text(rows[axis]), u0));
  lane_loop(c.var(static_cast<int>(rows.size())), lanes, "0", w_.index_text(last), last.as_constant(), 1,
            [&](int) {
              std::vector<std::string> names;
              for (ir::Expr e : plan_.tiles.loads) {
                names.push_back(w_.fresh("t"));
                const char* type = storage_of(kernel_.buffers[e->buffer].dtype);
                w_.line(fmt::format("alignas(64) {} {}[W * W];", type, names.back()));
              }
              // In a scope of its own: indices at the tile's first row must not be taken for those of other
              // rows.
              int scope = w_.open("");
              w_.bind(u, u0, scope);
              for (size_t k = 0; k < names.size(); ++k) {
                ir::Expr e = plan_.tiles.loads[k];
                SymInt stride = lanes.form(e->indices[0]).stride;
                std::string at = w_.buffer(e->buffer) + " + " + w_.index_text(e->indices[0]);
                w_.line(fmt::format("load_tile({}, {}, {}, {}, {});", names[k], at, w_.index_text(stride),
                                    w_.live(), n));
              }
              w_.close();
              const std::string j = w_.fresh("j"), here = w_.fresh("u");
              scope = w_.open(fmt::format("for (i64 {0} = 0; {0} < {1}; ++{0})", j, n));
              w_.line(fmt::format("const i64 {} = {} + {};", here, u0, j));
              w_.bind(u, here, scope);
              for (size_t k = 0; k < names.size(); ++k)
                w_.set_tile(plan_.tiles.loads[k], fmt::format("ldv({} + {} * W)", names[k], j), scope);
              w_.point_scope = scope;
              emit_phases();
              w_.close();
              w_.unbind(u);
            });
  next_point(points);
  w_.close();
}

namespace {

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    lines.push_back(text.substr(0, end + 1));
    text.remove_prefix(end + 1);
  }
  return lines;
}

/// Words and the characters between them.
std::vector<std::string_view> tokens_of(std::string_view line) {
  auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  std::vector<std::string_view> tokens;
  for (size_t i = 0; i < line.size();) {
    size_t end = i + 1;
    while (is_word(line[i]) && end < line.size() && is_word(line[end])) ++end;
    tokens.push_back(line.substr(i, end - i));
    i = end;
  }
  return tokens;
}

/// Makes the loop that `header` opens the one that `first` opens: its variables get the first one's names.
bool same_loop(std::string_view first, std::string_view header,
               std::unordered_map<std::string_view, std::string_view>& names) {
  auto a = tokens_of(first), b = tokens_of(header);
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    if (!std::isalpha(static_cast<unsigned char>(a[i][0])) ||
        !std::isalpha(static_cast<unsigned char>(b[i][0])))
      return false;
    if (names.try_emplace(b[i], a[i]).first->second != a[i]) return false;
  }
  return true;
}

/// Equal statements of all texts beside each other, in the same loops; one text after the other where they
/// are built differently. Loops have bounds that no lane changes, so those of all texts are the same.
std::string interleaved(const std::vector<std::string>& texts) {
  std::string apart, text;
  std::vector<std::vector<std::string_view>> lines;
  for (const std::string& t : texts) {
    apart += "{\n" + t + "}\n";
    lines.push_back(lines_of(t));
    if (lines.back().size() != lines[0].size()) lines[0].clear();
  }
  if (lines[0].empty()) return apart;
  std::vector<std::unordered_map<std::string_view, std::string_view>> names(texts.size());
  auto last_char = [](std::string_view line) { return line.size() < 2 ? ' ' : line[line.size() - 2]; };
  for (size_t i = 0; i < lines[0].size(); ++i) {
    const std::string_view first = lines[0][i];
    const char end = last_char(first);
    const bool block = end == '{' || end == '}';
    for (size_t k = 0; k < lines.size(); ++k) {
      const std::string_view line = lines[k][i];
      const char own = last_char(line);
      if (own != end && (block || own == '{' || own == '}')) return apart;
      if (block && !same_loop(first, line, names[k])) return apart;
      if (block && k > 0) continue;
      for (std::string_view token : tokens_of(line)) {
        auto it = names[k].find(token);
        text += it == names[k].end() ? token : it->second;
      }
    }
  }
  return text;
}

} // namespace

bool LoopEmitter::takes_single_elements(LaneAnalysis& lanes) const {
  if (width_ > 8 || plan_.shape != LoopShape::vertical || plan_.tiles.axis >= 0 || kernel_.sequential)
    return false;
  bool one_by_one = false;
  auto touches = [&](int buffer, SymInt address) {
    const LaneForm::Kind kind = lanes.form(address).kind;
    one_by_one |=
        kind == LaneForm::varying || (kind == LaneForm::affine && size_of(kernel_.buffers[buffer].dtype) < 4);
  };
  for (const ir::KernelBuffer& b : kernel_.buffers)
    if (b.access == ir::Access::row_local) return false;
  for (const Phase& phase : kernel_.phases) {
    if (!phase.inner.empty()) return false;
    for (const Stmt& s : phase.stmts) {
      if (s.buffer < 0 || s.mode != ir::StoreMode::set) return false;
      ir::visit_accesses(s, touches);
    }
  }
  return one_by_one;
}

void LoopEmitter::lane_loop(SymInt variable, LaneAnalysis& lanes, const std::string& lo,
                            const std::string& hi, std::optional<int64_t> extent, int unroll,
                            const std::function<void(int)>& body) {
  const std::string v = w_.fresh("v");
  const int64_t step = int64_t{width_} * unroll;
  auto run = [&](const std::string& live, int copy, const std::string& name) {
    w_.bind(variable, name, w_.current());
    w_.set_lanes(&lanes, live);
    body(copy);
    w_.set_lanes(nullptr, "");
    w_.unbind(variable);
  };
  auto overlapping = [&](const std::string& begin) {
    // The last vector reaches back over lanes that were done before, instead of a rest of its own.
    w_.open(fmt::format("for ({1}; {0} < {2}; {0} += W)", v, begin, hi));
    std::string here = w_.fresh("v");
    w_.line(fmt::format("const i64 {} = vmin({}, {}l);", here, v, *overlap_ - width_));
    overlap_mask_ = fmt::format("(iota<i32v>() >= (i32)({} - {}))", v, here);
    run("", 0, here);
    overlap_mask_.clear();
    w_.close();
  };
  if (overlap_ && unroll == 1) return overlapping(fmt::format("i64 {} = {}", v, lo));
  w_.line(fmt::format("i64 {} = {};", v, lo));
  if (!extent || *extent >= step) {
    w_.open(unroll == 1 ? fmt::format("for (; {0} + W <= {1}; {0} += W)", v, hi)
                        : fmt::format("for (; {0} + {2} * W <= {1}; {0} += {2} * W)", v, hi, unroll));
    if (unroll == 1) {
      run("", 0, v);
    } else {
      std::vector<std::string> texts;
      for (int copy = 0; copy < unroll; ++copy) {
        w_.open("");
        std::string here = w_.fresh("v");
        w_.line(fmt::format("const i64 {} = {} + {} * W;", here, v, copy));
        run("", copy, here);
        texts.push_back(w_.take());
      }
      w_.insert(interleaved(texts));
    }
    w_.close();
  }
  if (overlap_ && plan_.shape == LoopShape::vertical) {
    if (!extent || *extent % step != 0) overlapping("");
    return;
  }
  if (unroll > 1 && (!extent || *extent % step >= width_)) {
    w_.open(fmt::format("for (; {0} + W <= {1}; {0} += W)", v, hi));
    run("", 0, v);
    w_.close();
  }
  if (!extent && takes_single_elements(lanes)) {
    w_.open(fmt::format("for (; {0} < {1} && {1} - {0} <= W / 4; ++{0})", v, hi));
    w_.bind(variable, v, w_.current());
    body(0);
    w_.unbind(variable);
    w_.close();
  }
  if (!extent || *extent % width_ != 0) {
    w_.open(extent ? "" : fmt::format("if ({} < {})", v, hi));
    std::string live = extent ? std::to_string(*extent % width_) : w_.fresh("n");
    if (!extent) w_.line(fmt::format("const i64 {} = {} - {};", live, hi, v));
    run(live, 0, v);
    w_.close();
  }
}

void LoopEmitter::emit_phases() {
  for (size_t k = 0; k < kernel_.phases.size(); ++k) {
    const Phase& phase = kernel_.phases[k];
    w_.enter_phase(&phase);
    bool vector = plan_.shape == LoopShape::horizontal && plan_.vector_phase[k];
    if (!phase.inner.empty()) {
      emit_phase(phase, vector);
    } else {
      Reductions none(w_, kernel_, phase, false, 1);
      none.declare();
      emit_stmts(phase, none, 0);
      none.finish();
    }
  }
}

int LoopEmitter::vectors_per_step(const Phase& phase, SymInt extent) const {
  std::vector<ir::Expr> values;
  bool reduces = false;
  for (const Stmt& s : phase.stmts) {
    values.push_back(s.value);
    if (s.kind == StmtKind::reduce && is_arg(s.reduce)) return 1;
    reduces |= s.kind == StmtKind::reduce;
  }
  ir::ExprCounts counts = ir::count(values);
  constexpr int kInstructions = 30, kLong = 60; // of an expensive operation; of a chain worth company
  const bool heavy = kInstructions * counts.expensive + counts.ops > kLong;
  if (!heavy && (!reduces || counts.expensive > 0 || counts.ops > 8)) return 1;
  // Many statements are company for each other, and several copies of them text that compilers take long
  // over.
  constexpr size_t kCompany = 8;
  if (phase.stmts.size() >= kCompany) return 1;
  int vectors = 4;
  auto e = extent.as_constant();
  if (!heavy) return !e || *e >= int64_t{8} * width_ ? vectors : 1;
  while (e && vectors > 1 && *e < int64_t{vectors} * width_) vectors /= 2;
  return vectors;
}

/// Vertical kernels that reduce: several vectors in one pass over the reduced elements, which then come in
/// longer pieces of memory and share the loops.
int LoopEmitter::vectors_per_reduction(SymInt extent) const {
  std::vector<ir::Expr> values;
  for (const ir::KernelBuffer& b : kernel_.buffers)
    if (b.access == ir::Access::row_local) return 1; // one place for all vectors
  for (const Phase& phase : kernel_.phases)
    for (const Stmt& s : phase.stmts) values.push_back(s.value);
  constexpr int kLightOps = 12, kOps = 40;
  ir::ExprCounts counts = ir::count(values);
  int vectors = counts.expensive > 0 || counts.ops > kOps ? 1 : counts.ops > kLightOps ? 2 : 4;
  auto e = extent.as_constant();
  while (e && vectors > 1 && *e < int64_t{vectors} * width_) vectors /= 2;
  return vectors;
}

void LoopEmitter::emit_phase(const Phase& phase, bool vector) {
  Reductions reductions(w_, kernel_, phase, vector, vector ? vectors_per_step(phase, phase.inner.back()) : 1);
  reductions.declare();
  std::string nonempty;
  for (SymInt e : phase.inner)
    if (!ir::provably_positive(e))
      nonempty += (nonempty.empty() ? "" : " && ") + fmt::format("{} > 0", w_.index_text(e));
  if (!nonempty.empty()) w_.open(fmt::format("if ({})", nonempty), true);
  emit_loops(phase, 0, vector, reductions);
  if (!nonempty.empty()) w_.close();
  reductions.finish();
}

void LoopEmitter::emit_loops(const Phase& phase, size_t level, bool vector, Reductions& reductions) {
  const SymInt extent = phase.inner[level], variable = kernel_.context->rvar(static_cast<int>(level));
  const std::string n = w_.index_text(extent);
  const bool innermost = level + 1 == phase.inner.size();
  auto loop = [&](const std::string& lo, const std::string& hi, std::optional<int64_t> constant) {
    if (innermost && vector) {
      LaneAnalysis lanes(variable.node(), width_);
      overlap_ = can_overlap(kernel_, {&phase}, variable, width_) ? extent.as_constant() : std::nullopt;
      lane_loop(variable, lanes, lo, hi, constant, vectors_per_step(phase, extent), [&](int copy) {
        reductions.set_overlap(overlap_mask_);
        emit_stmts(phase, reductions, copy);
      });
      overlap_.reset();
      return;
    }
    std::string r = w_.fresh("r");
    int scope = w_.open(fmt::format("for (i64 {0} = {1}; {0} < {2}; ++{0})", r, lo, hi));
    w_.bind(variable, r, scope);
    if (innermost)
      emit_stmts(phase, reductions, 0);
    else
      emit_loops(phase, level + 1, vector, reductions);
    w_.close();
    w_.unbind(variable);
  };
  if (reductions.cascade_level() != static_cast<int>(level)) {
    loop("0", n, extent.as_constant());
    return;
  }
  std::string c = w_.fresh("c"), ce = w_.fresh("c");
  w_.open(fmt::format("for (i64 {0} = 0; {0} < {1}; {0} += {2})", c, n, reductions.cascade_chunk()));
  w_.line(fmt::format("const i64 {} = vmin({} + {}l, {});", ce, c, reductions.cascade_chunk(), n));
  auto constant = extent.as_constant();
  bool even = constant && *constant % reductions.cascade_chunk() == 0;
  loop(c, ce, even ? std::optional<int64_t>(reductions.cascade_chunk()) : std::nullopt);
  reductions.flush();
  w_.close();
}

void LoopEmitter::emit_stmts(const Phase& phase, Reductions& reductions, int copy) {
  for (const Stmt& s : phase.stmts) {
    switch (s.kind) {
    case StmtKind::store: w_.store(s, w_.emit(s.value)); break;
    case StmtKind::reduce: reductions.update(s, copy); break;
    case StmtKind::scan: reductions.scan(s); break;
    case StmtKind::let: {
      Value v = w_.emit(s.value);
      if (v.narrow) v = w_.as_vector(v, s.value->dtype);
      if (v.vector) w_.analysis()->set_varying_local(s.number);
      w_.set_local(s.number, v);
      break;
    }
    }
  }
}

EmittedKernel LoopEmitter::emit() {
  w_.line("if (begin >= end) return 0;");
  if (kernel_.sequential && !ir::provably_positive(ir::product(kernel_.outer)))
    w_.line(fmt::format("if ({} <= 0) return 0;", w_.index_text(ir::product(kernel_.outer))));
  if (plan_.shape == LoopShape::vertical)
    emit_vertical();
  else
    emit_horizontal();
  w_.line("return 0;");

  EmittedKernel out;
  out.text = w_.finish();
  out.size_args = w_.size_args;
  out.check_origins = w_.check_origins;
  out.tasks = tasks_;
  out.scratch_bytes = w_.scratch_bytes;
  // Place for what runtime/abi.h says of a failed check.
  if (!w_.check_origins.empty()) out.scratch_bytes = ir::max(out.scratch_bytes, SymInt(int64_t{16}));
  out.cost_per_task = plan_.cost_per_task;
  return out;
}

} // namespace tbx::codegen
