// Accumulators as text.
#include "codegen/reductions.h"

#include <fmt/format.h>

#include "base/error.h"

namespace tbx::codegen {

using ir::ReduceOp;
using ir::Stmt;
using ir::StmtKind;
using ir::SymInt;

namespace {

// f32 values summed before they are flushed into f64: few per accumulator, whose error grows with their
// number.
constexpr int64_t kCascadeAlong = 4096, kCascadeAcross = 256;

std::string combine(ReduceOp op, DType t, const std::string& a, const std::string& b) {
  const bool boolean = t == DType::boolean;
  switch (op) {
  case ReduceOp::sum: return boolean ? fmt::format("{} | {}", a, b) : fmt::format("{} + {}", a, b);
  case ReduceOp::prod: return boolean ? fmt::format("{} & {}", a, b) : fmt::format("{} * {}", a, b);
  case ReduceOp::max: return boolean ? fmt::format("{} | {}", a, b) : fmt::format("vmax({}, {})", a, b);
  case ReduceOp::min: return boolean ? fmt::format("{} & {}", a, b) : fmt::format("vmin({}, {})", a, b);
  case ReduceOp::any: return fmt::format("{} | {}", a, b);
  case ReduceOp::all: return fmt::format("{} & {}", a, b);
  default: break;
  }
  throw_internal_error("combining an arg reduction", __FILE__, __LINE__);
}

const char* across_lanes(ReduceOp op, DType t) {
  const bool boolean = t == DType::boolean;
  switch (op) {
  case ReduceOp::sum: return boolean ? "hany" : "hsum";
  case ReduceOp::prod: return boolean ? "hall" : "hprod";
  case ReduceOp::max: return boolean ? "hany" : "hmax";
  case ReduceOp::min: return boolean ? "hall" : "hmin";
  case ReduceOp::any: return "hany";
  case ReduceOp::all: return "hall";
  default: break;
  }
  throw_internal_error("lanes of an arg reduction", __FILE__, __LINE__);
}

const char* better(ReduceOp op) {
  switch (op) {
  case ReduceOp::argmax: return "max";
  case ReduceOp::argmin: return "min";
  case ReduceOp::argmax_last: return "max_last";
  default: return "min_last";
  }
}

} // namespace

std::string neutral(ReduceOp op, DType t) {
  auto of = [&](int64_t v) {
    return is_float(t) ? fmt::format("{}({})", tag_of(t), v) : Writer::literal(t, static_cast<uint64_t>(v));
  };
  const bool most = op == ReduceOp::max;
  switch (op) {
  case ReduceOp::prod:
  case ReduceOp::all: return of(1);
  case ReduceOp::max:
  case ReduceOp::min: {
    if (is_float(t)) return fmt::format("{}({}__builtin_inf())", tag_of(t), most ? "-" : "");
    if (t == DType::boolean) return of(!most);
    int bits = bits_of(t);
    uint64_t low = is_signed(t) ? ~uint64_t{0} << (bits - 1) : 0;
    uint64_t high = is_signed(t) ? ~low : ~uint64_t{0} >> (64 - bits);
    return Writer::literal(t, most ? low : high);
  }
  default: return of(0);
  }
}

bool is_arg(ReduceOp op) {
  return op == ReduceOp::argmax || op == ReduceOp::argmin || op == ReduceOp::argmax_last ||
         op == ReduceOp::argmin_last;
}

Reductions::Reductions(Writer& w, const ir::KernelProgram& kernel, const ir::Phase& phase, bool along,
                       int copies)
    : w_(w), kernel_(kernel), phase_(phase), along_(along), copies_(copies) {
  bool sums = false;
  for (const Stmt& s : phase.stmts)
    sums |= s.kind == StmtKind::reduce && s.reduce == ReduceOp::sum && s.value->dtype == DType::f32;
  if (sums) plan_cascade();
}

/// The innermost loops whose points together stay below the limit belong to one chunk.
void Reductions::plan_cascade() {
  int64_t limit = along_ ? kCascadeAlong : kCascadeAcross, inside = 1;
  for (int level = static_cast<int>(phase_.inner.size()) - 1; level >= 0; --level) {
    auto extent = phase_.inner[level].as_constant();
    if (!extent || *extent > limit / inside) {
      cascade_level_ = level;
      cascade_chunk_ = std::max<int64_t>(1, limit / inside);
      return;
    }
    inside *= std::max<int64_t>(1, *extent);
  }
}

void Reductions::declare() {
  narrow_ = w_.fits(position());
  for (const Stmt& s : phase_.stmts) {
    // Known before anybody asks whether a value that uses it varies.
    if (s.kind == StmtKind::let && w_.analysis() && w_.analysis()->varies(s.value))
      w_.analysis()->set_varying_local(s.number);
    if (s.kind != StmtKind::reduce && s.kind != StmtKind::scan) continue;
    Accumulator a{&s, along_, false, {}, {}, {}};
    // Across rows a sum of values that do not vary is one scalar for all lanes. A scan stores its running
    // value.
    if (!along_) a.vector = w_.analysis() && (s.kind == StmtKind::scan || w_.analysis()->varies(s.value));
    a.cascade = cascade_level_ >= 0 && s.kind == StmtKind::reduce && s.reduce == ReduceOp::sum &&
                s.value->dtype == DType::f32;
    DType t = s.value->dtype;
    std::string type = w_.type_of(t, a.vector);
    // An arg reduction starts at position 0 with the worst value: right too when nothing is better.
    ReduceOp op = s.reduce;
    if (is_arg(op))
      op = op == ReduceOp::argmax || op == ReduceOp::argmax_last ? ReduceOp::max : ReduceOp::min;
    std::string start = neutral(op, t);
    if (a.vector) start = fmt::format("v{}({})", t == DType::boolean ? "bool" : compute_of(t), start);
    for (int copy = 0; copy < copies_; ++copy) {
      a.names.push_back(w_.fresh("a"));
      w_.line(fmt::format("{} {} = {};", type, a.names.back(), start));
      if (!is_arg(s.reduce)) continue;
      a.positions.push_back(w_.fresh("a"));
      w_.line(fmt::format("{} {} = {{}};",
                          !a.vector ? "i64"
                          : narrow_ ? "i32v"
                                    : "i64v",
                          a.positions.back()));
    }
    if (a.cascade) {
      a.total = w_.fresh("a");
      w_.line(fmt::format("{} {} = {{}};", w_.type_of(DType::f64, a.vector), a.total));
    }
    accumulators_.emplace(&s, std::move(a));
  }
}

/// Row-major number of the inner point.
SymInt Reductions::position() const {
  SymInt at = 0;
  for (size_t k = 0; k < phase_.inner.size(); ++k)
    at = at * phase_.inner[k] + kernel_.context->rvar(static_cast<int>(k));
  return at;
}

void Reductions::update(const Stmt& s, int copy) {
  const Accumulator& a = accumulators_.at(&s);
  const std::string& name = a.names[copy];
  DType t = s.value->dtype;
  std::string x = a.vector ? w_.emit_vector(s.value).text : w_.emit(s.value).text;
  const bool tail = along_ && w_.is_tail();
  if (is_arg(s.reduce)) {
    const std::string& at = a.positions[copy];
    std::string here = w_.index_text(position());
    if (a.vector) {
      Value v = along_ ? w_.index_vector(position()) : w_.index(position());
      here = narrow_ ? w_.as_narrow(v).text : w_.as_vector(v, DType::i64).text;
    }
    std::string m = w_.fresh("m");
    w_.line(fmt::format("const {} {} = better_{}({}, {}){};", w_.type_of(DType::boolean, a.vector), m,
                        better(s.reduce), x, name, tail ? fmt::format(" & first({})", w_.live()) : ""));
    w_.line(fmt::format("{0} = sel({1}, {2}, {0});", name, m, x));
    w_.line(fmt::format("{0} = sel({1}, {2}, {0});", at, m, here));
    return;
  }
  std::string next = s.reduce == ReduceOp::sum && t != DType::boolean ? w_.added(name, s.value, a.vector)
                                                                      : combine(s.reduce, t, name, x);
  const bool repeatable = s.reduce != ReduceOp::sum && s.reduce != ReduceOp::prod;
  if (along_ && !overlap_.empty() && !repeatable) next = fmt::format("sel({}, {}, {})", overlap_, next, name);
  if (tail) next = fmt::format("sel(first({}), {}, {})", w_.live(), next, name);
  w_.line(fmt::format("{} = {};", name, next));
}

void Reductions::scan(const Stmt& s) {
  const Accumulator& a = accumulators_.at(&s);
  DType t = s.value->dtype;
  std::string x = a.vector ? w_.emit_vector(s.value).text : w_.emit(s.value).text;
  std::string step = fmt::format("{} = {};", a.names[0], combine(s.reduce, t, a.names[0], x));
  if (!s.exclusive) w_.line(step);
  w_.store(s, {a.names[0], w_.current(), a.vector});
  if (s.exclusive) w_.line(step);
}

std::string Reductions::joined(const Accumulator& a) {
  std::vector<std::string> parts = a.names;
  while (parts.size() > 1) {
    std::vector<std::string> half;
    for (size_t i = 0; i + 1 < parts.size(); i += 2)
      half.push_back(
          fmt::format("({})", combine(a.stmt->reduce, a.stmt->value->dtype, parts[i], parts[i + 1])));
    parts = std::move(half);
  }
  return parts[0];
}

void Reductions::flush() {
  for (const Stmt& s : phase_.stmts) {
    auto it = accumulators_.find(&s);
    if (it == accumulators_.end() || !it->second.cascade) continue;
    const Accumulator& a = it->second;
    w_.line(fmt::format("{} += {};", a.total,
                        a.vector ? fmt::format("CONVERT(f64v, {})", joined(a)) : joined(a)));
    for (const std::string& name : a.names)
      w_.line(fmt::format("{} = {}{{}};", name, w_.type_of(DType::f32, a.vector)));
  }
}

void Reductions::finish() {
  for (const Stmt& s : phase_.stmts) {
    if (s.kind != StmtKind::reduce) continue;
    const Accumulator& a = accumulators_.at(&s);
    DType t = s.value->dtype;
    bool vector = a.vector && !along_;
    std::string text, type = w_.type_of(is_arg(s.reduce) ? DType::i64 : t, vector);
    if (is_arg(s.reduce)) {
      text = a.positions[0];
      if (along_) {
        bool last = s.reduce == ReduceOp::argmax_last || s.reduce == ReduceOp::argmin_last;
        bool most = s.reduce == ReduceOp::argmax || s.reduce == ReduceOp::argmax_last;
        text = fmt::format("arg_{}({}, {}, {})", most ? "max" : "min", a.names[0], text, last);
      }
      if (vector && narrow_) text = fmt::format("CONVERT(i64v, {})", text);
    } else if (join_threads_) {
      const DType wide = a.cascade ? DType::f64 : t;
      text = fmt::format("column_{}({})", std::string(across_lanes(s.reduce, wide)).substr(1),
                         a.cascade ? a.total : joined(a));
      if (a.cascade) text = vector ? fmt::format("CONVERT(f32v, {})", text) : fmt::format("(f32){}", text);
    } else if (a.cascade) {
      text = along_   ? fmt::format("(f32)hsum({})", a.total)
             : vector ? fmt::format("CONVERT(f32v, {})", a.total)
                      : "(f32)" + a.total;
    } else {
      text = joined(a);
      if (along_) text = fmt::format("{}({})", across_lanes(s.reduce, t), text);
    }
    Value v = w_.define(w_.current(), type, text, vector);
    w_.set_accumulator(s.number, v);
    if (vector) w_.analysis()->set_varying_accumulator(s.number);
  }
}

} // namespace tbx::codegen
