// Value expressions as text: one definition per node, in the outermost scope that knows its operands.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <optional>
#include <utility>

#include "base/error.h"
#include "codegen/writer.h"

namespace tbx::codegen {

using ir::Expr;
using ir::Op;

std::string Writer::type_of(DType t, bool vector) const {
  if (t == DType::boolean) return vector ? "i32v" : "bool";
  return std::string(compute_of(t)) + (vector ? "v" : "");
}

static std::string float_literal(double v, bool single) {
  if (std::isnan(v)) return single ? "__builtin_nanf(\"\")" : "__builtin_nan(\"\")";
  if (std::isinf(v)) return fmt::format("({}__builtin_inf{}())", v < 0 ? "-" : "", single ? "f" : "");
  std::string s = single ? fmt::format("{}", static_cast<float>(v)) : fmt::format("{}", v);
  if (s.find_first_of(".e") == std::string::npos) s += ".0";
  if (single) s += "f";
  return std::signbit(v) ? "(" + s + ")" : s;
}

std::string Writer::literal(DType t, uint64_t bits) {
  t = compute_type(t);
  auto v = static_cast<int64_t>(bits);
  switch (t) {
  case DType::boolean: return v ? "true" : "false";
  case DType::f32:
  case DType::f64: return float_literal(std::bit_cast<double>(bits), t == DType::f32);
  case DType::u64: return fmt::format("{}ul", bits);
  case DType::u32: return fmt::format("{}u", static_cast<uint32_t>(bits));
  case DType::i64:
    if (v == INT64_MIN) return "(-9223372036854775807l - 1)";
    return v < 0 ? fmt::format("({}l)", v) : fmt::format("{}l", v);
  default:
    return fmt::format("{}({})", compute_of(t), v == INT32_MIN ? "-2147483647 - 1" : std::to_string(v));
  }
}

Value Writer::as_vector(const Value& v, DType compute) {
  if (v.vector && !v.narrow) return v;
  const char* type = compute == DType::boolean ? "bool" : compute_of(compute);
  std::string text =
      v.narrow ? fmt::format("CONVERT(i64v, {})", v.text) : fmt::format("v{}({})", type, v.text);
  bool is_literal = !v.text.starts_with('x') && !v.text.starts_with('a');
  if (is_literal) return {text, v.scope, true};
  auto& known = scopes_[v.scope].vectors;
  auto it = known.find(text);
  if (it == known.end()) it = known.emplace(text, define(v.scope, type_of(compute, true), text, true)).first;
  return it->second;
}

Value Writer::as_narrow(const Value& v) {
  if (v.narrow) return v;
  std::string text =
      v.vector ? fmt::format("CONVERT(i32v, {})", v.text) : fmt::format("vi32((i32){})", v.text);
  bool is_literal = !v.text.starts_with('x');
  if (is_literal) return {text, v.scope, true, true};
  auto& known = scopes_[v.scope].vectors;
  auto it = known.find(text);
  if (it == known.end()) {
    Value n = define(v.scope, "i32v", text, true);
    n.narrow = true;
    it = known.emplace(text, n).first;
  }
  return it->second;
}

Value Writer::emit(Expr root) {
  auto find = [&](Expr e) -> const Value* {
    for (int s = current(); s >= 0; --s)
      if (auto it = scopes_[s].values.find(e); it != scopes_[s].values.end()) return &it->second;
    return nullptr;
  };
  if (const Value* v = find(root)) return *v;
  const std::unordered_set<Expr> wanted = beside_tables(root);
  Value last;
  // Operands first: by the time a node is written its operands are known, whatever the depth of the
  // expression.
  ir::visit(root, [&](Expr e) {
    if (const Value* v = find(e)) {
      last = *v;
      return;
    }
    if (!wanted.empty() && !wanted.contains(e)) return;
    last = operation(e);
    scopes_[last.scope].values[e] = last;
  });
  return last;
}

const std::optional<ByteTable>& Writer::table_of(Expr e) {
  auto it = tables_.find(e);
  if (it == tables_.end()) it = tables_.emplace(e, byte_tables ? byte_table(e) : std::nullopt).first;
  return it->second;
}

std::unordered_set<Expr> Writer::beside_tables(Expr root) {
  bool any = holds_;
  if (byte_tables) ir::visit(root, [&](Expr e) { any |= size_of(e->dtype) == 1 && table_of(e); });
  if (!any) return {};
  std::unordered_set<Expr> wanted{root};
  std::vector<Expr> left{root};
  auto is_known = [&](Expr e) {
    for (int s = current(); s >= 0; --s)
      if (scopes_[s].values.contains(e)) return true;
    return false;
  };
  auto want = [&](Expr e) {
    if (wanted.insert(e).second && !(holds_ && is_known(e))) left.push_back(e);
  };
  while (!left.empty()) {
    Expr e = left.back();
    left.pop_back();
    if (const auto& table = table_of(e)) {
      want(table->source);
      continue;
    }
    for (int i = 0; i < e->num_args; ++i) want(e->args[i]);
    if (!e->indices.empty()) ir::visit(e, [&](Expr inside) { wanted.insert(inside); });
  }
  return wanted;
}

Value Writer::looked_up(Expr e, const ByteTable& table) {
  std::string& name = table_names_[e];
  if (name.empty()) {
    name = fresh("t");
    std::string values;
    for (uint8_t value : table.values) values += fmt::format("{}{}", values.empty() ? "" : ",", value);
    line_in(0, fmt::format("alignas(64) static constexpr u8 {}[256] = {{{}}};", name, values));
  }
  const Value at = emit(table.source);
  const std::string result = type_of(e->dtype, at.vector);
  const std::string text = at.vector
                               ? fmt::format("BITS({}, lookup({}, BITS(u8v, {})))", result, name, at.text)
                               : fmt::format("({}){}[(u8){}]", result, name, at.text);
  return define(at.scope, result, text, at.vector);
}

Value Writer::operation(Expr e) {
  if (const auto& table = table_of(e)) return looked_up(e, *table);
  switch (e->op) {
  case Op::constant: return {literal(e->dtype, e->bits), 0, false};
  case Op::index:
    return analysis_ && analysis_->varies(e->indices[0]) ? index_vector(e->indices[0]) : index(e->indices[0]);
  case Op::load: return load(e);
  case Op::accumulator: return accumulators_.at(e->number);
  case Op::local: return locals_.at(e->number);
  default: break;
  }
  std::vector<Value> values;
  bool vector = false;
  int scope = 0;
  for (int i = 0; i < e->num_args; ++i) {
    values.push_back(emit(e->args[i]));
    vector |= values.back().vector;
    scope = std::max(scope, values.back().scope);
  }
  // i64 operands that are known to fit take i32 lanes; then so does an i64 result that fits.
  bool narrow = vector;
  bool any_i64 = false;
  for (int i = 0; i < e->num_args; ++i) {
    if (e->args[i]->dtype != DType::i64) continue;
    any_i64 = true;
    narrow &= values[i].vector ? values[i].narrow : fits(e->args[i]);
  }
  narrow &= any_i64 && e->op != Op::random && e->op != Op::bitcast && (e->dtype != DType::i64 || fits(e));
  std::vector<std::string> args;
  for (int i = 0; i < e->num_args; ++i) {
    DType t = e->args[i]->dtype;
    args.push_back(!vector                     ? values[i].text
                   : narrow && t == DType::i64 ? as_narrow(values[i]).text
                                               : as_vector(values[i], t).text);
  }
  DType type = e->args[0]->dtype;
  if (narrow && type == DType::i64) type = DType::i32;
  bool narrow_result = narrow && e->dtype == DType::i64;
  if (narrow_result && e->op == Op::cast && type == DType::i32) return {args[0], scope, true, true};
  const DType source = compute_type(e->args[0]->dtype);
  if (vector && e->op == Op::cast && e->dtype == DType::i64 && values[0].vector && is_integer(source) &&
      (source == DType::i32 || size_of(source) < 4)) {
    Value wide{args[0], scope, true};
    if (source != DType::i32) wide = define(scope, "i32v", fmt::format("widen({})", args[0]), true);
    wide.narrow = true;
    return wide;
  }
  if (is_fused(e))
    if (const std::string text = fused(e, values, scope, vector); !text.empty())
      return define(scope, type_of(e->dtype, vector), text, vector);
  Value v =
      define(scope, narrow_result ? "i32v" : type_of(e->dtype, vector), apply(e, type, args, vector), vector);
  v.narrow = narrow_result;
  return v;
}

std::string Writer::fused(Expr e, const std::vector<Value>& values, int scope, bool vector) {
  auto text = [&](Expr x) {
    const Value v = emit(x);
    return vector ? as_vector(v, DType::f32).text : v.text;
  };
  if (e->op == Op::div && values[0].scope > values[1].scope && !values[1].vector) {
    const int outer = values[1].scope;
    auto once = [&](const std::string& what) {
      auto& known = scopes_[outer].vectors;
      auto it = known.find(what);
      if (it == known.end()) it = known.emplace(what, define(outer, "f32", what, false)).first;
      return it->second.text;
    };
    const std::string scale = once(fmt::format("divisor_scale({})", values[1].text));
    return fmt::format("divided({}, {}, {})", text(e->args[0]),
                       once(fmt::format("1 / ({} * {})", values[1].text, scale)), scale);
  }
  if (e->op != Op::add && e->op != Op::sub) return "";
  // A product that was computed further out costs nothing here.
  for (int i : {0, 1}) {
    Expr product = e->args[i];
    if (product->op != Op::mul || values[i].scope != scope) continue;
    const char* sign = e->op == Op::sub && i == 1 ? "-" : "";
    const char* other = e->op == Op::sub && i == 0 ? "-" : "";
    return fmt::format("mul_add({}{}, {}, {}{})", sign, text(product->args[0]), text(product->args[1]), other,
                       text(e->args[1 - i]));
  }
  return "";
}

std::string Writer::added(const std::string& sum, Expr e, bool vector) {
  const Value v = vector ? emit_vector(e) : emit(e);
  if (is_fused(e) && e->op == Op::mul && v.scope == current()) {
    auto text = [&](Expr x) { return vector ? emit_vector(x).text : emit(x).text; };
    return fmt::format("mul_add({}, {}, {})", text(e->args[0]), text(e->args[1]), sum);
  }
  return fmt::format("{} + {}", sum, v.text);
}

std::string Writer::converted(DType from, DType to, const std::string& x, bool vector) const {
  from = compute_type(from), to = compute_type(to);
  if (from == to) return x;
  if (to == DType::boolean)
    return vector ? fmt::format("ne({}, {}{{}})", x, type_of(from, true)) : fmt::format("{} != 0", x);
  if (from == DType::boolean)
    return vector ? fmt::format("CONVERT({}, -{})", type_of(to, true), x)
                  : fmt::format("({}){}", compute_of(to), x);
  if (is_float(from) && is_integer(to)) return fmt::format("sat_{}({})", compute_of(to), x);
  // Small integers go through i32, for which there are instructions.
  const bool small = vector && is_integer(from) && size_of(from) < 4;
  if (small && is_integer(to) && size_of(to) == size_of(from))
    return fmt::format("BITS({}, {})", type_of(to, true), x);
  std::string source = small ? fmt::format("widen({})", x) : x;
  if (small && to == DType::i32) return source;
  if (vector && is_integer(from) && is_integer(to) && size_of(to) < 4)
    return fmt::format("NARROW({}, {})", compute_of(to),
                       size_of(from) == 8   ? fmt::format("CONVERT(i32v, {})", source)
                       : from == DType::u32 ? fmt::format("BITS(i32v, {})", source)
                                            : source);
  return vector ? fmt::format("CONVERT({}, {})", type_of(to, true), source)
                : fmt::format("({}){}", compute_of(to), x);
}

/// Name of the prelude function of an operation that is plain function call; nullptr for the others.
static const char* function_of(Op op, bool floating) {
  switch (op) {
  case Op::abs: return "vabs";
  case Op::sign: return "sgn";
  case Op::ceil: return "vceil";
  case Op::floor: return "vfloor";
  case Op::round_even: return "vround";
  case Op::trunc: return "vtrunc";
  case Op::sqrt: return "vsqrt";
  case Op::rsqrt: return "rsqrt";
  case Op::reciprocal: return "recip";
  case Op::exp: return "m_exp";
  case Op::expm1: return "m_expm1";
  case Op::log: return "m_log";
  case Op::log1p: return "m_log1p";
  case Op::sin: return "m_sin";
  case Op::cos: return "m_cos";
  case Op::tan: return "m_tan";
  case Op::asin: return "m_asin";
  case Op::acos: return "m_acos";
  case Op::atan: return "m_atan";
  case Op::sinh: return "m_sinh";
  case Op::cosh: return "m_cosh";
  case Op::tanh: return "m_tanh";
  case Op::asinh: return "m_asinh";
  case Op::acosh: return "m_acosh";
  case Op::atanh: return "m_atanh";
  case Op::erf: return "m_erf";
  case Op::sigmoid: return "m_sigmoid";
  case Op::softplus: return "m_softplus";
  case Op::is_nan: return "isnan";
  case Op::is_inf: return "isinf";
  case Op::logical_not: return "vnot";
  case Op::popcount: return "popcnt";
  case Op::floor_mod: return floating ? "m_floormod" : "floormod";
  case Op::fmod: return floating ? "m_fmod" : "irem";
  case Op::pow: return "m_pow";
  case Op::min: return "vmin";
  case Op::max: return "vmax";
  case Op::atan2: return "m_atan2";
  case Op::shift_left: return "shl";
  case Op::shift_right: return "shr";
  case Op::random: return "philox";
  case Op::where: return "sel";
  default: return nullptr;
  }
}

static std::string boolean_text(Op op, const std::vector<std::string>& a, bool vector) {
  const char* no = vector ? "~" : "!";
  switch (op) {
  case Op::logical_and:
  case Op::bitwise_and:
  case Op::mul:
  case Op::min: return fmt::format("{} & {}", a[0], a[1]);
  case Op::logical_or:
  case Op::bitwise_or:
  case Op::add:
  case Op::max: return fmt::format("{} | {}", a[0], a[1]);
  case Op::logical_xor:
  case Op::bitwise_xor:
  case Op::not_equal: return fmt::format("{} ^ {}", a[0], a[1]);
  case Op::equal: return fmt::format("{}({} ^ {})", no, a[0], a[1]);
  case Op::less: return fmt::format("{}{} & {}", no, a[0], a[1]);
  case Op::less_equal: return fmt::format("{}{} | {}", no, a[0], a[1]);
  case Op::greater: return fmt::format("{} & {}{}", a[0], no, a[1]);
  case Op::greater_equal: return fmt::format("{} | {}{}", a[0], no, a[1]);
  case Op::logical_not:
  case Op::bitwise_not: return no + a[0];
  default: throw_unsupported("operation {} on booleans in generated code", ir::name_of(op));
  }
}

/// The number that bounds `e`, a min or max, on its side.
static std::optional<double> bound_of(Expr e, Op op) {
  if (e->op != op) return std::nullopt;
  for (int i : {0, 1})
    if (e->args[i]->op == Op::constant && !std::isnan(e->args[i]->as_double()))
      return e->args[i]->as_double();
  return std::nullopt;
}

/// Do clamps keep the float within the range of a type of 8 bits, if it is not NaN?
static bool is_clamped_to(Expr e, DType byte) {
  const double low = byte == DType::i8 ? -128 : 0, high = low + 255;
  auto inside = [&](std::optional<double> bound) { return bound && *bound >= low && *bound <= high; };
  for (auto [outer, inner] : {std::pair{Op::min, Op::max}, std::pair{Op::max, Op::min}})
    if (inside(bound_of(e, outer)))
      for (int i : {0, 1})
        if (inside(bound_of(e->args[i], inner))) return true;
  return false;
}

std::string Writer::apply(Expr e, DType t, const std::vector<std::string>& a, bool vector) const {
  const bool floats = vector && !by_value && t == DType::f32; // of a CPU
  // The conversion makes INT_MIN of NaN, whose lowest byte is the 0 that it has to be.
  if (e->op == Op::cast && floats && is_byte(e->dtype) && is_clamped_to(e->args[0], e->dtype))
    return fmt::format("NARROW({}, CONVERT(i32v, {}))", compute_of(e->dtype), a[0]);
  if (e->op == Op::cast) return converted(t, e->dtype, a[0], vector);
  // One instruction, which gives its second operand where that is NaN.
  if (floats && (bound_of(e, Op::min) || bound_of(e, Op::max))) {
    const int number = e->args[0]->op == Op::constant ? 0 : 1;
    return fmt::format("{}({}, {})", e->op == Op::min ? "smaller" : "larger", a[number], a[1 - number]);
  }
  if (e->op == Op::bitcast) {
    bool boolean = t == DType::boolean || e->dtype == DType::boolean;
    return boolean ? converted(t, e->dtype, a[0], vector)
                   : fmt::format("BITS({}, {})", type_of(e->dtype, vector), a[0]);
  }
  if (e->op == Op::round_to) {
    bool f8 = e->format == DType::f8e4m3fn || e->format == DType::f8e5m2 || e->format == DType::f8e4m3fnuz ||
              e->format == DType::f8e5m2fnuz || e->format == DType::f8e8m0;
    const char* format = tag_of(e->format);
    return fmt::format("dec_{0}(enc_{0}({1}{2}))", format, a[0], f8 ? (e->bits ? ", true" : ", false") : "");
  }
  if (t == DType::boolean && e->op != Op::where) return boolean_text(e->op, a, vector);
  bool floating = is_float(t);
  if (!floating) {
    switch (e->op) { // what integers make trivial
    case Op::ceil:
    case Op::floor:
    case Op::round_even:
    case Op::trunc: return a[0];
    case Op::is_nan:
    case Op::is_inf: return vector ? "i32v{}" : "false";
    default: break;
    }
  }
  if (const char* f = function_of(e->op, floating)) {
    std::string list = a[0];
    for (size_t i = 1; i < a.size(); ++i) list += ", " + a[i];
    return fmt::format("{}({})", f, list);
  }
  switch (e->op) {
  case Op::neg: return "-" + a[0];
  case Op::bitwise_not: return "~" + a[0];
  case Op::add: return fmt::format("{} + {}", a[0], a[1]);
  case Op::sub: return fmt::format("{} - {}", a[0], a[1]);
  case Op::mul: return fmt::format("{} * {}", a[0], a[1]);
  case Op::div:
    return floating ? fmt::format("{} / {}", a[0], a[1]) : fmt::format("idiv({}, {})", a[0], a[1]);
  case Op::equal: return fmt::format("eq({}, {})", a[0], a[1]);
  case Op::not_equal: return fmt::format("ne({}, {})", a[0], a[1]);
  case Op::less: return fmt::format("lt({}, {})", a[0], a[1]);
  case Op::less_equal: return fmt::format("le({}, {})", a[0], a[1]);
  case Op::greater: return fmt::format("lt({}, {})", a[1], a[0]);
  case Op::greater_equal: return fmt::format("le({}, {})", a[1], a[0]);
  case Op::bitwise_and: return fmt::format("{} & {}", a[0], a[1]);
  case Op::bitwise_or: return fmt::format("{} | {}", a[0], a[1]);
  case Op::bitwise_xor: return fmt::format("{} ^ {}", a[0], a[1]);
  default: throw_unsupported("operation {} in generated code", ir::name_of(e->op));
  }
}

} // namespace tbx::codegen
