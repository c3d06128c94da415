#include "tools/difference.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/dtype.h"
#include "base/float_formats.h"

namespace tbx::tools {
namespace {

double spread(const OwnedTensor& t) {
  double sum = 0, squares = 0;
  int64_t n = 0;
  for (int64_t i = 0; i < t.numel(); ++i) {
    double v = element(t.bytes.data(), t.type, i);
    if (!std::isfinite(v)) continue;
    sum += v;
    squares += v * v;
    ++n;
  }
  double mean = n ? sum / static_cast<double>(n) : 0;
  return n ? std::sqrt(std::max(0.0, squares / static_cast<double>(n) - mean * mean)) : 0;
}

/// Place of a float among all floats of its type: neighbours differ by one, -0 and 0 are the same.
int64_t place(double v, DType type) {
  auto ordered = [](auto bits, auto sign) {
    auto magnitude = static_cast<int64_t>(bits & ~sign);
    return bits & sign ? -magnitude : magnitude;
  };
  if (type == DType::f64) return ordered(std::bit_cast<uint64_t>(v), uint64_t{1} << 63);
  if (type == DType::f32) return ordered(std::bit_cast<uint32_t>(static_cast<float>(v)), uint32_t{1} << 31);
  return ordered(uint32_t{encode_float(type, static_cast<float>(v))}, uint32_t{1} << 15);
}

bool is_compared_float(int32_t type) {
  const auto t = static_cast<DType>(type);
  return t == DType::f64 || t == DType::f32 || t == DType::f16 || t == DType::bf16;
}

uint64_t ulps(double a, double b, DType type) {
  if (!is_compared_float(static_cast<int32_t>(type))) return 0;
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<uint64_t>::max();
  int64_t x = place(a, type), y = place(b, type);
  return x < y ? static_cast<uint64_t>(y) - static_cast<uint64_t>(x)
               : static_cast<uint64_t>(x) - static_cast<uint64_t>(y);
}

} // namespace

Difference difference(const OwnedTensor& got, const OwnedTensor& want, const Tolerance& tolerance,
                      bool by_value) {
  Difference d;
  d.value = got.name;
  d.shape = got.dims;
  d.wanted_shape = want.dims;
  d.type = got.type;
  d.wanted_type = want.type;
  d.bad = true;
  if (got.dims != want.dims) return d.what = "shape", d;
  by_value = by_value && is_compared_float(got.type) && is_compared_float(want.type);
  if (got.type != want.type && !by_value) return d.what = "type", d;
  d.bad = false;
  if (got.type == OwnedTensor::kString) {
    for (size_t i = 0; i < got.strings.size(); ++i)
      if (got.strings[i] != want.strings[i] && d.differing++ == 0) d.worst = static_cast<int64_t>(i);
    d.bad = d.differing > 0;
    d.what = "strings";
    return d;
  }
  double atol = tolerance.atol >= 0 ? tolerance.atol : tolerance.spread * spread(want);
  const bool shorter = element_size(got.type) <= element_size(want.type);
  const auto type = static_cast<DType>(shorter ? got.type : want.type);
  double error = 0, norm = 0;
  for (int64_t i = 0; i < got.numel(); ++i) {
    double a = element(got.bytes.data(), got.type, i), b = element(want.bytes.data(), want.type, i);
    if (std::isfinite(a) && std::isfinite(b)) error += (a - b) * (a - b), norm += b * b;
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    double abs = std::fabs(a - b), rel = abs / std::max(std::fabs(b), 1e-30);
    if (!(abs <= atol + tolerance.rtol * std::fabs(b))) {
      d.bad = true;
      ++d.differing;
    }
    if (d.worst < 0 || !(abs <= d.max_abs)) {
      d.max_abs = abs;
      d.worst = i;
      d.got = a;
      d.want = b;
    }
    if (!(rel <= d.max_rel)) d.max_rel = rel;
    d.max_ulp = std::max(d.max_ulp, ulps(a, b, type));
  }
  d.rel_l2 = std::sqrt(error / std::max(norm, 1e-300));
  return d;
}

Json to_json(const Difference& d) {
  Json row{{"value", d.value}};
  if (!d.node.empty()) row["node"] = d.node;
  row.update({{"shape", d.shape}, {"ok", !d.bad}, {"max_abs", d.max_abs}, {"max_rel", d.max_rel}});
  row["rel_l2"] = d.rel_l2;
  row["max_ulp"] = d.max_ulp;
  if (d.bad) row["differs_in"] = d.what;
  if (d.bad && d.what == "shape") row["expected_shape"] = d.wanted_shape;
  if (d.bad && d.what == "type") {
    row["type"] = name_of(static_cast<DType>(d.type));
    row["expected_type"] = name_of(static_cast<DType>(d.wanted_type));
  }
  if (d.worst >= 0) {
    row["worst_index"] = d.worst;
    row["got"] = d.got;
    row["expected"] = d.want;
    row["differing"] = d.differing;
  }
  return row;
}

std::string measures(const Difference& d) {
  auto name = [](int32_t type) { return name_of(static_cast<DType>(type)); };
  if (d.what == "type") return fmt::format("type {} instead of {}", name(d.type), name(d.wanted_type));
  if (d.what == "shape")
    return fmt::format("shape {} instead of {}", shape_text(d.shape), shape_text(d.wanted_shape));
  if (d.what == "strings") return fmt::format("{} strings differ", d.differing);
  return fmt::format("rel L2 {:.3g}  max abs {:.3g}  max rel {:.3g}  max ulp {}", d.rel_l2, d.max_abs,
                     d.max_rel, d.max_ulp);
}

std::string explain(const Difference& d) {
  std::string where = d.node.empty() ? d.value : fmt::format("{}, computed by {},", d.value, d.node);
  if (d.what == "type" || d.what == "shape") return fmt::format("{}: {}", where, measures(d));
  if (d.what == "strings")
    return fmt::format("{} [{}] at element {}: other text", where, shape_text(d.shape), d.worst);
  return fmt::format("{} [{}] at element {}: {:.9g} instead of {:.9g} (the worst of {} that differ)", where,
                     shape_text(d.shape), d.worst, d.got, d.want, d.differing);
}

} // namespace tbx::tools
