// Index expressions as text: scalars at lane 0, and vectors of i64 where lanes are no simple ramp.
#include <fmt/format.h>

#include "base/error.h"
#include "codegen/writer.h"

namespace tbx::codegen {

using ir::SymInt;
using ir::SymKind;
using ir::SymNode;

std::string Writer::symbol(const SymNode& n) {
  auto [it, fresh] = symbols_.try_emplace(&n);
  if (fresh) {
    it->second = fmt::format("s{}", size_args.size());
    if (!by_value) line_in(0, fmt::format("const i64 {} = sizes[{}];", it->second, size_args.size()));
    size_args.push_back(SymInt(&n));
  }
  return it->second;
}

namespace {

/// A sum of this many sizes is an argument of the kernel.
constexpr int kTermsOfArgument = 3;

/// Sizes alone, and nothing that a size of 0 would divide by.
bool is_of_sizes(SymInt e) {
  if (e.is_constant()) return true;
  const SymNode& n = *e.node();
  if (n.varies || n.has_indirect || n.depth > 8) return false;
  if (n.kind == SymKind::floordiv || n.kind == SymKind::mod) return false;
  for (auto& [c, t] : n.terms)
    if (!is_of_sizes(SymInt(t))) return false;
  for (SymInt x : n.args)
    if (!is_of_sizes(x)) return false;
  return true;
}

} // namespace

/// The part of a sum that follows from sizes, where it is long enough for an argument: the runtime computes
/// it once for the sizes of a run. Pieces of a Concat of many dynamic sizes, which differ in nothing but such
/// a sum, are then one kernel, and its text does not grow with their number.
SymInt Writer::part_of_sizes(const SymNode& n) {
  SymInt part = 0;
  int terms = 0;
  for (auto& [c, t] : n.terms)
    if (is_of_sizes(SymInt(t))) {
      part += SymInt(c) * SymInt(t);
      ++terms;
    }
  return terms < kTermsOfArgument ? SymInt(0) : part;
}

/// Checked only where a mask holds, so nobody else may reuse it.
bool Writer::is_conditional(SymInt e) const { return mask_ && ir::has_indirect(e); }

Value Writer::index(SymInt e) {
  if (e.is_constant()) return {literal(DType::i64, static_cast<uint64_t>(e.constant())), 0, false};
  if (is_conditional(e)) return index_node(*e.node());
  for (int s = current(); s >= 0; --s)
    if (auto it = scopes_[s].indices.find(e.node()); it != scopes_[s].indices.end()) return it->second;
  Value v = index_node(*e.node());
  scopes_[v.scope].indices[e.node()] = v;
  return v;
}

Value Writer::index_node(const SymNode& n) {
  int scope = 0;
  auto arg = [&](SymInt x) {
    Value v = index(x);
    scope = std::max(scope, v.scope);
    return v.text;
  };
  auto call = [&](const char* f) {
    std::string a = arg(n.args[0]), b = arg(n.args[1]);
    return define(scope, "i64", fmt::format("{}({}, {})", f, a, b), false);
  };
  switch (n.kind) {
  case SymKind::symbol: return {symbol(n), 0, false};
  case SymKind::var:
  case SymKind::rvar: {
    auto it = variables_.find(&n);
    TBX_INTERNAL(it != variables_.end());
    return {it->second.name, it->second.scope, false};
  }
  case SymKind::indirect: return indirect(n, false);
  case SymKind::add: {
    std::string text;
    const SymInt sizes = part_of_sizes(n);
    if (!sizes.is_constant()) {
      if (sizes.node() == &n) return {symbol(n), 0, false};
      text = symbol(*sizes.node());
    }
    for (auto& [c, t] : n.terms) {
      if (!sizes.is_constant() && is_of_sizes(SymInt(t))) continue;
      std::string term = arg(SymInt(t));
      if (!text.empty())
        text += c < 0 ? " - " : " + ";
      else if (c < 0)
        text += "-";
      uint64_t magnitude = c < 0 ? 0 - static_cast<uint64_t>(c) : static_cast<uint64_t>(c);
      text += magnitude == 1 ? term : fmt::format("{}l * {}", magnitude, term);
    }
    if (n.constant) text += fmt::format(" + {}", literal(DType::i64, static_cast<uint64_t>(n.constant)));
    return define(scope, "i64", text, false);
  }
  case SymKind::mul: {
    std::string text;
    for (SymInt x : n.args) text += (text.empty() ? "" : " * ") + arg(x);
    return define(scope, "i64", text, false);
  }
  case SymKind::floordiv:
  case SymKind::mod: {
    bool nonnegative = ir::bounds_of(n.args[0], extents()).lo >= 0;
    if (n.kind == SymKind::floordiv) return call(nonnegative ? "udiv" : "fdiv");
    return call(nonnegative ? "umod" : "fmodi");
  }
  case SymKind::min: return call("vmin");
  case SymKind::max: return call("vmax");
  }
  throw_internal_error("unknown index kind", __FILE__, __LINE__);
}

bool Writer::fits(SymInt e) {
  auto within = [&](SymInt x) {
    ir::Bounds b = ir::bounds_of(x, extents());
    return b.lo >= INT32_MIN && b.hi <= INT32_MAX;
  };
  if (!within(e)) return false;
  if (e.is_constant()) return true;
  if (auto it = fits_.find(e.node()); it != fits_.end()) return it->second;
  // Sums and products may wrap on the way; what is divided or compared may not.
  bool ok = true;
  const SymNode& n = *e.node();
  switch (n.kind) {
  case SymKind::add:
    for (auto& [c, t] : n.terms) ok &= c >= INT32_MIN && c <= INT32_MAX && fits(SymInt(t));
    break;
  case SymKind::mul:
  case SymKind::floordiv:
  case SymKind::mod:
  case SymKind::min:
  case SymKind::max:
    for (SymInt x : n.args) ok &= fits(x);
    break;
  default: break;
  }
  return fits_[e.node()] = ok;
}

Value Writer::index_vector(SymInt e) {
  const bool narrow = fits(e);
  if (!analysis_ || !analysis_->varies(e)) {
    Value v = index(e);
    return narrow ? as_narrow(v) : as_vector(v, DType::i64);
  }
  if (is_conditional(e)) return index_vector_node(*e.node(), narrow);
  for (int s = current(); s >= 0; --s)
    if (auto it = scopes_[s].index_vectors.find(e.node()); it != scopes_[s].index_vectors.end())
      return it->second;
  Value v = index_vector_node(*e.node(), narrow);
  scopes_[v.scope].index_vectors[e.node()] = v;
  return v;
}

Value Writer::index_vector_node(const SymNode& n, bool narrow) {
  const char* lane = narrow ? "i32" : "i64";
  auto done = [&](int scope, const std::string& text) {
    Value v = define(scope, fmt::format("{}v", lane), text, true);
    v.narrow = narrow;
    return v;
  };
  LaneForm form = analysis_->form(SymInt(&n));
  if (form.kind == LaneForm::affine) {
    Value base = index(SymInt(&n)), stride = index(form.stride);
    std::string ramp = fmt::format("iota<{}v>()", lane);
    if (!form.stride.is(1)) ramp += fmt::format(" * ({}){}", lane, stride.text);
    return done(std::max(base.scope, stride.scope),
                fmt::format("v{0}(({0}){1}) + {2}", lane, base.text, ramp));
  }
  int scope = 0;
  auto arg = [&](SymInt x) {
    Value v = index_vector(x);
    // Parts of a narrow index are narrow; a wide one may have narrow parts.
    if (!narrow) v = as_vector(v, DType::i64);
    scope = std::max(scope, v.scope);
    return v.text;
  };
  auto call = [&](const char* f) {
    std::string a = arg(n.args[0]), b = arg(n.args[1]);
    return done(scope, fmt::format("{}({}, {})", f, a, b));
  };
  switch (n.kind) {
  case SymKind::indirect: return indirect(n, true);
  case SymKind::add: {
    // Uniform terms are summed as scalars, outside if they can be.
    SymInt uniform = n.constant;
    std::string text;
    for (auto& [c, t] : n.terms) {
      if (!analysis_->varies(SymInt(t))) {
        uniform += SymInt(c) * SymInt(t);
        continue;
      }
      std::string term = arg(SymInt(t));
      if (!text.empty()) text += " + ";
      text += c == 1 ? term
                     : fmt::format("{} * {}",
                                   literal(narrow ? DType::i32 : DType::i64, static_cast<uint64_t>(c)), term);
    }
    if (!uniform.is(0)) {
      Value u = index(uniform);
      scope = std::max(scope, u.scope);
      text += fmt::format(" + ({}){}", lane, u.text);
    }
    return done(scope, text);
  }
  case SymKind::mul: {
    std::string text;
    for (SymInt x : n.args) text += (text.empty() ? "" : " * ") + arg(x);
    return done(scope, text);
  }
  case SymKind::floordiv: return call("fdiv");
  case SymKind::mod: return call("fmodi");
  case SymKind::min: return call("vmin");
  case SymKind::max: return call("vmax");
  default: throw_internal_error("a varying index of uniform kind", __FILE__, __LINE__);
  }
}

/// What to do when a check fails: says which index it was, as the model has it. What may count from the end
/// is where(i < 0, i + extent, i).
std::string Writer::failure(const SymNode& n, size_t number, const std::string& index,
                            const std::string& extent, const std::string& lanes) const {
  const bool counted = n.value->op == ir::Op::where;
  return fmt::format(fmt::runtime(on_failure), number, index, extent, counted, lanes);
}

Value Writer::indirect(const SymNode& n, bool vector) {
  Value value = emit(n.value);
  Value extent = index(n.args[0]);
  Value mask = mask_ ? emit(mask_) : Value{};
  int scope = std::max(value.scope, std::max(extent.scope, mask.scope));
  scope = hazard_scope(scope);
  check_origins.push_back(n.origin);
  const auto number = check_origins.size();
  if (!vector) {
    TBX_INTERNAL(!value.vector);
    // A mask of lanes cannot guard a scalar: some lane must be live.
    std::string live = !mask_ ? "" : mask.vector ? fmt::format(" && any({})", mask.text) : " && " + mask.text;
    line_in(scope, fmt::format("if (unlikely((u64){} >= (u64){}{})) {}", value.text, extent.text, live,
                               failure(n, number, value.text, extent.text, "")));
    return {value.text, scope, false};
  }
  std::string live;
  if (mask_) live = " & " + as_vector(mask, DType::boolean).text;
  if (is_tail()) {
    live += fmt::format(" & first({})", live_);
    scope = current();
  }
  // Once checked, values lie below the extent: its bounds count, whatever its parts are, as in min(N, 20).
  const bool fit = fits(SymInt(&n));
  if (!value.narrow || !fit) value = as_vector(value, DType::i64);
  const char* lane = value.narrow ? "u32" : "u64";
  const std::string bad =
      fmt::format("le(v{0}(({0}){2}), ({0}v){1}){3}", lane, value.text, extent.text, live);
  line_in(scope, fmt::format("if (unlikely(any({}))) {}", bad,
                             failure(n, number, value.text, extent.text, ", " + bad)));
  if (!fit || value.narrow) return {value.text, scope, true, value.narrow};
  value = define(scope, "i32v", fmt::format("CONVERT(i32v, {})", value.text), true);
  value.narrow = true;
  return value;
}

} // namespace tbx::codegen
