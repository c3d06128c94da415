// Known values under arithmetic, comparison, logic, conversion and reduction.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "graph/node_attributes.h"
#include "lowering/known_rules.h"

namespace tbx::lowering::known {
namespace {

constexpr int64_t kMaxDenominator = int64_t{1} << 20;

} // namespace

bool fits(const Element& e, DType type) {
  if (!e || is_float(type)) return e.has_value();
  // Sizes fit the type they are computed in; below 0 unsigned ones would wrap.
  const bool wraps = is_integer(type) && !is_signed(type);
  if (!e->is_constant()) return !wraps || ir::provably_nonnegative(*e);
  int bits = std::min(bits_of(type), 64);
  int64_t v = e->constant();
  if (type == DType::boolean) return v == 0 || v == 1;
  if (bits == 64) return !wraps || v >= 0;
  return is_signed(type) ? v >= -(int64_t{1} << (bits - 1)) && v < (int64_t{1} << (bits - 1))
                         : v >= 0 && v < (int64_t{1} << bits);
}

bool is_tame(SymInt v) {
  constexpr int64_t kLimit = int64_t{1} << 31;
  return !v.is_constant() || (-kLimit < v.constant() && v.constant() < kLimit);
}

/// Truth values are 0 and 1; where nothing can be proven they are expressions that are one or the other at
/// run time.
static Element positive(SymInt v) {
  if (ir::provably_positive(v)) return SymInt(1);
  if (ir::provably_nonnegative(-v)) return SymInt(0);
  return ir::min(ir::max(v, 0), 1);
}

Element equal(SymInt a, SymInt b) {
  if (ir::provably_equal(a, b)) return SymInt(1);
  if (ir::provably_positive(a - b) || ir::provably_positive(b - a)) return SymInt(0);
  return SymInt(1) - *positive(ir::max(a - b, b - a));
}

bool align(KnownTensor& a, KnownTensor& b) {
  int64_t common = std::lcm(a.denominator, b.denominator);
  if (common > kMaxDenominator) return false;
  for (KnownTensor* k : {&a, &b}) {
    if (k->denominator == common) continue;
    for (SymInt& v : k->values) {
      if (!is_tame(v)) return false;
      v *= common / k->denominator;
    }
    k->denominator = common;
  }
  return true;
}

namespace {

Element truncated_div(SymInt a, SymInt b) {
  if (a.is_constant() && b.is_constant()) {
    if (b.is(0) || b.is(-1)) return b.is(0) ? Element{} : Element{-a};
    return a.constant() / b.constant();
  }
  if (ir::provably_positive(-b)) return truncated_div(-a, -b);
  if (!ir::provably_nonnegative(b)) return std::nullopt;
  if (!ir::provably_positive(b)) b = ir::max(b, 1); // a division by zero has no result to preserve
  if (ir::provably_nonnegative(a)) return ir::floordiv(a, b);
  if (ir::provably_nonnegative(-a)) return -ir::floordiv(-a, b);
  return std::nullopt;
}

Element floor_mod(SymInt a, SymInt b) {
  if (!ir::provably_nonnegative(b)) return std::nullopt;
  return ir::mod(a, ir::provably_positive(b) ? b : ir::max(b, 1));
}

Element less(SymInt a, SymInt b) { return positive(b - a); }
Element less_equal(SymInt a, SymInt b) { return positive(b - a + SymInt(1)); }
Element power(SymInt a, SymInt b) {
  if (!b.is_constant() || b.constant() < 0 || b.constant() > 8) return std::nullopt;
  SymInt out = 1;
  for (int64_t i = 0; i < b.constant(); ++i) {
    if (!is_tame(out)) return std::nullopt;
    out *= a;
  }
  return out;
}

Known elementwise(const KnownTensor& a, const KnownTensor& b, DType dtype, int64_t denominator,
                  const std::function<Element(SymInt, SymInt)>& fn) {
  auto dims = broadcast_dims(a.dims, b.dims);
  if (!dims || denominator > kMaxDenominator) return std::nullopt;
  KnownTensor out{dtype, *dims, {}, denominator};
  bool ok = for_each_index(*dims, [&](std::span<const int64_t> at) {
    SymInt x = a.values[broadcast_position(at, a.dims)], y = b.values[broadcast_position(at, b.dims)];
    if (!is_tame(x) || !is_tame(y)) return false;
    Element e = fn(x, y);
    if (!fits(e, dtype)) return false;
    out.values.push_back(*e);
    return true;
  });
  return ok ? Known(std::move(out)) : std::nullopt;
}

Known map_elements(const KnownTensor& x, DType dtype, const std::function<Element(SymInt)>& fn) {
  KnownTensor out{dtype, x.dims, {}, 1};
  for (SymInt v : x.values) {
    if (!is_tame(v)) return std::nullopt;
    Element e = fn(v);
    if (!fits(e, dtype)) return std::nullopt;
    out.values.push_back(*e);
  }
  return out;
}

Rule comparison_rule(const std::function<Element(SymInt, SymInt)>& fn) {
  return [=](const Args& args) -> Known {
    if (args.in.size() != 2) return std::nullopt;
    KnownTensor a = args[0], b = args[1];
    if (!align(a, b)) return std::nullopt;
    return elementwise(a, b, DType::boolean, 1, fn);
  };
}

Rule same_denominator(const std::function<Element(SymInt)>& fn) {
  return [=](const Args& a) -> Known {
    Known k = map_elements(a[0], a[0].dtype, fn);
    if (k) k->denominator = a[0].denominator;
    return k;
  };
}

/// Add, Sub, Min, Max with any number of operands.
Rule fold_rule(const std::function<Element(SymInt, SymInt)>& fn) {
  return [=](const Args& args) -> Known {
    KnownTensor sum = args[0];
    for (size_t i = 1; i < args.in.size(); ++i) {
      KnownTensor next = args[i];
      if (!align(sum, next)) return std::nullopt;
      Known k = elementwise(sum, next, sum.dtype, sum.denominator, fn);
      if (!k) return std::nullopt;
      sum = std::move(*k);
    }
    return sum;
  };
}

Known mul_rule(const Args& a) {
  return elementwise(a[0], a[1], a[0].dtype, a[0].denominator * a[1].denominator,
                     [](SymInt x, SymInt y) -> Element { return x * y; });
}

Known div_rule(const Args& args) {
  const KnownTensor &a = args[0], &b = args[1];
  if (!is_float(a.dtype)) return elementwise(a, b, a.dtype, 1, truncated_div);
  auto divisor = as_constants(b);
  // A float quotient stays a rational when the divisor is one constant.
  if (divisor && divisor->size() == 1 && divisor->front() > 0 && divisor->front() <= kMaxDenominator) {
    int64_t denominator = a.denominator * divisor->front();
    return elementwise(a, b, a.dtype, denominator, [](SymInt x, SymInt) -> Element { return x; });
  }
  KnownTensor x = a, y = b;
  if (!align(x, y)) return std::nullopt;
  return elementwise(x, y, a.dtype, 1, [](SymInt p, SymInt q) -> Element {
    if (p == q && ir::provably_positive(q)) return SymInt(1);
    return ir::provably_positive(q) && ir::provably_divisible(p, q) ? Element(ir::floordiv(p, q))
                                                                    : std::nullopt;
  });
}

Known mod_rule(const Args& a) {
  bool truncate = a.node.attr_int("fmod", 0) != 0;
  if (is_float(a[0].dtype)) return std::nullopt;
  return elementwise(a[0], a[1], a[0].dtype, 1, [&](SymInt x, SymInt y) -> Element {
    if (truncate && !ir::provably_nonnegative(x)) return std::nullopt;
    return floor_mod(x, y);
  });
}

Known pow_rule(const Args& a) {
  if (a[0].denominator != 1 || a[1].denominator != 1) return std::nullopt;
  return elementwise(a[0], a[1], a[0].dtype, 1, power);
}

Known floor_rule(const Args& a) {
  int64_t d = a[0].denominator;
  return map_elements(a[0], a[0].dtype, [&](SymInt v) -> Element { return ir::floordiv(v, d); });
}

Known ceil_rule(const Args& a) {
  int64_t d = a[0].denominator;
  return map_elements(a[0], a[0].dtype, [&](SymInt v) -> Element { return ir::ceildiv(v, d); });
}

Known cast_to(const KnownTensor& x, DType to) {
  if (to == DType::boolean)
    return map_elements(x, to, [](SymInt v) -> Element {
      Element zero = equal(v, 0);
      return zero ? Element(SymInt(1) - *zero) : std::nullopt;
    });
  if (to == DType::f32 || to == DType::f64) {
    KnownTensor out = x;
    out.dtype = to;
    return out;
  }
  if (!is_integer(to) || bits_of(to) < 8) return std::nullopt;
  int64_t d = x.denominator;
  if (d == 1 && std::all_of(x.values.begin(), x.values.end(), [&](SymInt v) { return fits(v, to); })) {
    KnownTensor out = x; // large values, too: ends of slices
    out.dtype = to;
    return out;
  }
  return map_elements(x, to, [&](SymInt v) -> Element { return truncated_div(v, d); });
}

Known cast_rule(const Args& a) {
  const auto* type = find_attribute<int64_t>(a.node.node, "to");
  return type ? cast_to(a[0], static_cast<DType>(*type)) : std::nullopt;
}

Known where_rule(const Args& args) {
  KnownTensor x = args[1], y = args[2];
  if (!align(x, y)) return std::nullopt;
  auto dims = broadcast_dims(x.dims, y.dims);
  if (dims) dims = broadcast_dims(*dims, args[0].dims);
  if (!dims) return std::nullopt;
  KnownTensor out{x.dtype, *dims, {}, x.denominator};
  bool ok = for_each_index(*dims, [&](std::span<const int64_t> at) {
    SymInt yes = args[0].values[broadcast_position(at, args[0].dims)];
    SymInt a = x.values[broadcast_position(at, x.dims)], b = y.values[broadcast_position(at, y.dims)];
    if (!yes.is_constant() && (!is_tame(a) || !is_tame(b))) return false;
    out.values.push_back(yes.is(1) || a == b ? a : yes.is(0) ? b : b + yes * (a - b));
    return true;
  });
  return ok ? Known(std::move(out)) : std::nullopt;
}

Known not_rule(const Args& a) {
  return map_elements(a[0], DType::boolean, [](SymInt v) -> Element { return SymInt(1) - v; });
}

Rule reduce_rule(const std::function<Element(SymInt, SymInt)>& fn, int opset_of_input,
                 std::optional<int64_t> empty) {
  return [=](const Args& args) -> Known {
    const KnownTensor& x = args[0];
    auto axes = args.axes(opset_of_input);
    if (!axes || x.denominator != 1) return std::nullopt;
    bool keep = args.node.attr_int("keepdims", 1) != 0;
    std::vector<char> reduced(x.dims.size(), 0);
    if (axes->empty()) {
      if (args.node.attr_int("noop_with_empty_axes", 0)) return x;
      std::fill(reduced.begin(), reduced.end(), 1);
    }
    for (int64_t a : *axes) {
      auto axis = args.wrap(a, x.dims.size());
      if (!axis) return std::nullopt;
      reduced[*axis] = 1;
    }
    KnownTensor out{x.dtype, {}, {}, 1};
    std::vector<int64_t> kept;
    for (size_t d = 0; d < x.dims.size(); ++d) {
      kept.push_back(reduced[d] ? 1 : x.dims[d]);
      if (!reduced[d] || keep) out.dims.push_back(kept.back());
    }
    std::vector<Element> sums(numel_of(kept));
    bool ok = for_each_index(x.dims, [&](std::span<const int64_t> at) {
      Element& sum = sums[broadcast_position(at, kept)];
      SymInt v = x.values[broadcast_position(at, x.dims)];
      if (!is_tame(v) || (sum && !is_tame(*sum))) return false;
      sum = sum ? fn(*sum, v) : Element(v);
      return sum.has_value();
    });
    for (Element& e : sums) {
      if (!e && empty) e = *empty;
      if (!ok || !fits(e, x.dtype)) return std::nullopt;
      out.values.push_back(*e);
    }
    return out;
  };
}

} // namespace

void add_arithmetic_rules(Rules& rules) {
  auto plus = [](SymInt a, SymInt b) -> Element { return a + b; };
  auto times = [](SymInt a, SymInt b) -> Element { return a * b; };
  auto smaller = [](SymInt a, SymInt b) -> Element { return ir::min(a, b); };
  auto larger = [](SymInt a, SymInt b) -> Element { return ir::max(a, b); };
  rules["Cast"] = cast_rule;
  rules["CastLike"] = [](const Args& a) { return cast_to(a[0], a.node.dtype(1)); };
  rules["Neg"] = same_denominator([](SymInt v) -> Element { return -v; });
  rules["Abs"] = same_denominator([](SymInt v) -> Element { return ir::max(v, -v); });
  rules["Floor"] = floor_rule;
  rules["Ceil"] = ceil_rule;
  rules["Add"] = rules["Sum"] = fold_rule(plus);
  rules["Sub"] = fold_rule([](SymInt a, SymInt b) -> Element { return a - b; });
  rules["Min"] = fold_rule(smaller);
  rules["Max"] = fold_rule(larger);
  rules["Mul"] = mul_rule;
  rules["Div"] = div_rule;
  rules["Mod"] = mod_rule;
  rules["Pow"] = pow_rule;
  rules["Equal"] = comparison_rule(equal);
  rules["Less"] = comparison_rule(less);
  rules["LessOrEqual"] = comparison_rule(less_equal);
  rules["Greater"] = comparison_rule([](SymInt a, SymInt b) { return less(b, a); });
  rules["GreaterOrEqual"] = comparison_rule([](SymInt a, SymInt b) { return less_equal(b, a); });
  rules["And"] = comparison_rule(times);
  rules["Or"] = comparison_rule(larger);
  rules["Xor"] = comparison_rule([](SymInt a, SymInt b) -> Element { return a + b - SymInt(2) * a * b; });
  rules["Not"] = not_rule;
  rules["Where"] = where_rule;
  rules["ReduceSum"] = reduce_rule(plus, 13, 0);
  rules["ReduceProd"] = reduce_rule(times, 18, 1);
  rules["ReduceMin"] = reduce_rule(smaller, 18, std::nullopt);
  rules["ReduceMax"] = reduce_rule(larger, 18, std::nullopt);
}

} // namespace tbx::lowering::known
