// Cast between strings and numbers. Text of a number: as printf's %.8g, "NaN", "INF", "-INF", bool as 1 and
// 0.
#include <cerrno>
#include <cmath>
#include <cstdlib>

#include "base/budget.h"
#include "base/float_formats.h"
#include "runtime/value_op.h"

namespace tbx::runtime {
namespace {

std::string text_of(const Tensor& t, int64_t i) {
  check_stop_often();
  if (t.dtype == DType::u64) return fmt::format_int(t.as<uint64_t>()[i]).str();
  if (!is_float(t.dtype)) return fmt::format_int(element_as_int(t, i)).str();
  double v = element_as_double(t, i);
  if (std::isnan(v)) return "NaN";
  if (std::isinf(v)) return v > 0 ? "INF" : "-INF";
  char text[32];
  std::snprintf(text, sizeof text, "%.8g", v);
  return text;
}

bool only_blanks(const char* p) {
  while (*p == ' ' || (*p >= '\t' && *p <= '\r')) ++p;
  return *p == 0;
}

double real_of(const std::string& s) {
  char* end = nullptr;
  double v = std::strtod(s.c_str(), &end);
  TBX_MODEL(end != s.c_str() && only_blanks(end) && s.find('\0') == std::string::npos, "'{}' is no number",
            s);
  return v;
}

/// The bits of an integer type of 64 bits; decimal fractions are cut.
uint64_t integer_of(const std::string& s, bool is_unsigned) {
  char* end = nullptr;
  errno = 0;
  uint64_t v = is_unsigned ? std::strtoull(s.c_str(), &end, 10)
                           : static_cast<uint64_t>(std::strtoll(s.c_str(), &end, 10));
  if (end != s.c_str() && only_blanks(end) && errno == 0) return v;
  double d = real_of(s);
  bool fits = is_unsigned ? d > -1 && d < 0x1p64 : d >= -0x1p63 && d < 0x1p63;
  TBX_MODEL(fits, "'{}' does not fit into 64 bits", s);
  return is_unsigned ? static_cast<uint64_t>(d) : static_cast<uint64_t>(static_cast<int64_t>(d));
}

template <class T> void store(Tensor& t, int64_t i, T v) { t.as_mutable<T>()[i] = v; }

void parse(const std::string& s, Tensor& out, int64_t i) {
  check_stop_often();
  switch (out.dtype) {
  case DType::f32: return store(out, i, static_cast<float>(real_of(s)));
  case DType::f64: return store(out, i, real_of(s));
  case DType::boolean: return store<uint8_t>(out, i, real_of(s) != 0);
  default: break;
  }
  if (is_low_precision_float(out.dtype)) {
    uint32_t bits = encode_float(out.dtype, static_cast<float>(real_of(s)));
    return size_of(out.dtype) == 2 ? store(out, i, static_cast<uint16_t>(bits))
                                   : store(out, i, static_cast<uint8_t>(bits));
  }
  if (!is_integer(out.dtype)) throw_unsupported("strings cannot become {}", name_of(out.dtype));
  uint64_t v = integer_of(s, !is_signed(out.dtype));
  switch (size_of(out.dtype)) {
  case 1: return store(out, i, static_cast<uint8_t>(v));
  case 2: return store(out, i, static_cast<uint16_t>(v));
  case 4: return store(out, i, static_cast<uint32_t>(v));
  default: return store(out, i, v);
  }
}

void cast(const ValueCall& call, DType to) {
  const Tensor& x = call.tensor(0);
  int64_t n = x.numel();
  if (to == DType::string) {
    if (x.dtype == DType::string) {
      call.outputs[0] = call.take(0);
      return;
    }
    if (is_complex(x.dtype)) throw_unsupported("{} cannot become strings", name_of(x.dtype));
    auto& out = call.make_strings(0, x.dims);
    for (int64_t i = 0; i < n; ++i) out[i] = text_of(x, i);
    return;
  }
  if (x.dtype != DType::string)
    throw_unsupported("a conversion from {} to {} at run time", name_of(x.dtype), name_of(to));
  Tensor& out = call.make(0, to, x.dims);
  for (int64_t i = 0; i < n; ++i) parse((*x.strings)[i], out, i);
}

} // namespace

ValueFunction make_value_cast(const ValueNode& node) {
  const DType to = node.data_type("to");
  return [to](const ValueCall& call) { cast(call, to); };
}

ValueFunction make_value_cast_like(const ValueNode&) {
  return [](const ValueCall& call) { cast(call, call.tensor(1).dtype); };
}

} // namespace tbx::runtime
