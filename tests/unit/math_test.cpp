// The prelude's functions compiled by the real toolchain, against long double, over all exponents.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/float_formats.h"
#include "codegen/build_module.h"
#include "codegen/writer.h"
#include "kernel_helper.h"
#include "tests/support/denormals_as_zero.h"

namespace tbx::test {
namespace {

using codegen::EmittedKernel;

/// y[i] = call(x[i]) over `n` elements, buffers x0, x1, y.
EmittedKernel unary_kernel(const std::string& name, const std::string& from, const std::string& to,
                           const std::string& call) {
  EmittedKernel k;
  k.function = "test_" + name;
  k.text =
      fmt::format("extern \"C\" i64 {0}(void* const* b, const i64* sizes, i64, i64, void*) {{\n"
                  "  const {1}* x = (const {1}*)b[0]; const {1}* z = (const {1}*)b[1]; {2}* y = ({2}*)b[2];\n"
                  "  for (i64 v = 0; v < sizes[0]; v += W) {{ {1}v a = ldv(x + v), c = ldv(z + v); (void)c; "
                  "stv(y + v, {3}); }}\n"
                  "  return 0;\n}}\n",
                  k.function, from, to, call);
  return k;
}

struct Function {
  const char* name;
  long double (*reference)(long double);
  double bound;
  bool normal = false; ///< in f32, 0 for what is no normal number
};

long double sigmoid(long double x) { return 1 / (1 + std::exp(-x)); }
long double softplus(long double x) { return std::max(x, 0.0L) + std::log1p(std::exp(-std::fabs(x))); }
#define F(f) [](long double x) -> long double { return std::f(x); }

const Function kFunctions[] = {
    {"exp", F(exp), 1.1}, {"expm1", F(expm1), 2},        {"log", F(log), 1},        {"log1p", F(log1p), 2},
    {"sin", F(sin), 1.5}, {"cos", F(cos), 1.5},          {"tan", F(tan), 3.5},      {"asin", F(asin), 2},
    {"acos", F(acos), 2}, {"atan", F(atan), 2},          {"sinh", F(sinh), 2},      {"cosh", F(cosh), 2},
    {"tanh", F(tanh), 2}, {"asinh", F(asinh), 4},        {"acosh", F(acosh), 4},    {"atanh", F(atanh), 4},
    {"erf", F(erf), 2},   {"sigmoid", sigmoid, 2, true}, {"softplus", softplus, 2},
};

/// Error of an f32 or f64 result in units of its last place; 0 for agreeing NaN and infinity.
template <class T> double ulps(T got, long double want) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got) ? 0 : INFINITY;
  constexpr int digits = std::numeric_limits<T>::digits;
  // A value that rounds to infinity is half a unit beyond the largest finite one.
  T rounded = static_cast<T>(want);
  if (std::isinf(rounded) || std::isinf(got)) return rounded == got ? 0 : INFINITY;
  if (want == 0) return got == 0 && std::signbit(got) == std::signbit(want) ? 0 : INFINITY;
  int e = std::max(std::ilogb(want), std::numeric_limits<T>::min_exponent - 1);
  return static_cast<double>(std::fabs(got - want) / std::ldexp(1.0L, e - digits + 1));
}

/// All exponents and signs, mantissas spread evenly, and the special values.
std::vector<float> sweep(int per_exponent) {
  std::vector<float> xs{0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1, -1, 0.5f, -0.5f};
  for (uint32_t e = 0; e < 512; ++e)
    for (int m = 0; m < per_exponent; ++m) {
      auto mantissa = static_cast<uint32_t>((uint64_t{1} << 23) * m / per_exponent);
      xs.push_back(std::bit_cast<float>(e << 23 | (mantissa ^ (mantissa >> 7 & 0x7f))));
    }
  // Where the interesting ranges are, densely.
  for (int i = -200000; i < 200000; ++i) xs.push_back(static_cast<float>(i) * 5.3e-4f);
  while (xs.size() % 16) xs.push_back(1);
  return xs;
}

void run(codegen::Module& module, const std::string& name, const void* x, const void* z, void* y, size_t n) {
  const void* buffers[] = {x, z, y};
  auto size = static_cast<int64_t>(n);
  ASSERT_EQ(module.find("test_" + name)(const_cast<void* const*>(buffers), &size, 0, 1, nullptr), 0);
}

TEST(Math, FloatFunctionsKeepTheirBounds) {
  if (!codegen::have_compiler()) GTEST_SKIP();
  std::vector<float> xs = sweep(300), ys(xs.size());
  std::vector<EmittedKernel> kernels;
  for (const Function& f : kFunctions)
    kernels.push_back(unary_kernel(f.name, "f32", "f32", fmt::format("m_{}(a)", f.name)));
  std::vector<std::shared_ptr<codegen::Module>> modules;
  for (Isa isa : runnable_isas()) modules.push_back(codegen::build_module(kernels, isa));
  for (const Function& f : kFunctions) {
    std::vector<long double> want;
    for (float x : xs) want.push_back(f.reference(x));
    for (size_t m = 0; m < modules.size(); ++m) {
      run(*modules[m], f.name, xs.data(), xs.data(), ys.data(), xs.size());
      double worst = 0;
      size_t at = 0;
      for (size_t i = 0; i < xs.size(); ++i) {
        const bool subnormal = std::fabs(want[i]) < std::numeric_limits<float>::min();
        if (double u = ulps(ys[i], f.normal && subnormal ? 0 : want[i]); u > worst) worst = u, at = i;
      }
      EXPECT_LE(worst, f.bound) << f.name << "(" << xs[at] << ") = " << ys[at] << ", want " << want[at]
                                << " on " << name_of(runnable_isas()[m]);
      RecordProperty(fmt::format("{}_{}", f.name, name_of(runnable_isas()[m])), fmt::format("{:.2f}", worst));
    }
  }
}

TEST(Math, DoubleFunctionsKeepTheirBounds) {
  if (!codegen::have_compiler()) GTEST_SKIP();
  std::vector<double> xs{0.0, -0.0, INFINITY, -INFINITY, NAN, 1, -1}, ys;
  for (uint64_t e = 0; e < 4096; ++e)
    for (uint64_t m = 0; m < 8; ++m) xs.push_back(std::bit_cast<double>(e << 52 | m * 0x1fffe7d7a9e11));
  for (int i = -8000; i < 8000; ++i) xs.push_back(i * 0.0053);
  while (xs.size() % 16) xs.push_back(1);
  ys.resize(xs.size());
  std::vector<EmittedKernel> kernels;
  for (const Function& f : kFunctions)
    kernels.push_back(unary_kernel(f.name, "f64", "f64", fmt::format("m_{}(a)", f.name)));
  auto module = codegen::build_module(kernels, host_isa());
  for (const Function& f : kFunctions) {
    run(*module, f.name, xs.data(), xs.data(), ys.data(), xs.size());
    for (size_t i = 0; i < xs.size(); ++i)
      ASSERT_LE(ulps(ys[i], f.reference(xs[i])), 4) << f.name << "(" << xs[i] << ") = " << ys[i];
  }
}

TEST(Math, TwoArguments) {
  if (!codegen::have_compiler()) GTEST_SKIP();
  std::vector<float> xs, zs;
  const float special[] = {0.0f,  -0.0f,  1,     -1,     2,        -2,        3,   -3,   0.5f,
                           -0.5f, 1e-40f, 1e30f, -1e30f, INFINITY, -INFINITY, NAN, 2.5f, 16777216.0f};
  for (float x : special)
    for (float z : special) xs.push_back(x), zs.push_back(z);
  std::mt19937 rng(5);
  for (int i = 0; i < 100000; ++i) {
    float x = std::bit_cast<float>(static_cast<uint32_t>(rng())),
          z = static_cast<float>(static_cast<int>(rng() % 4000) - 2000) / 64;
    if (i % 2)
      x = std::ldexp(static_cast<float>(rng() % 65536) / 65536 - 0.25f, static_cast<int>(rng() % 20) - 10);
    if (i % 3 == 0) z = std::round(z);
    xs.push_back(x), zs.push_back(z);
  }
  while (xs.size() % 16) xs.push_back(1), zs.push_back(1);
  std::vector<float> ys(xs.size());
  struct Binary {
    const char* name;
    long double (*reference)(long double, long double);
    double bound;
  };
  const Binary functions[] = {
      {"pow", [](long double x, long double y) -> long double { return std::pow(x, y); }, 1},
      {"fmod", [](long double x, long double y) -> long double { return std::fmod(x, y); }, 0},
      {"atan2", [](long double x, long double y) -> long double { return std::atan2(x, y); }, 4},
  };
  for (Isa isa : runnable_isas()) {
    std::vector<EmittedKernel> kernels;
    for (const Binary& f : functions)
      kernels.push_back(unary_kernel(f.name, "f32", "f32", fmt::format("m_{}(a, c)", f.name)));
    auto module = codegen::build_module(kernels, isa);
    for (const Binary& f : functions) {
      run(*module, f.name, xs.data(), zs.data(), ys.data(), xs.size());
      for (size_t i = 0; i < xs.size(); ++i)
        ASSERT_LE(ulps(ys[i], f.reference(xs[i], zs[i])), f.bound)
            << f.name << "(" << xs[i] << ", " << zs[i] << ") = " << ys[i] << ", want "
            << f.reference(xs[i], zs[i]) << " on " << name_of(isa);
    }
  }
}

TEST(Math, Rounding) {
  if (!codegen::have_compiler()) GTEST_SKIP();
  std::vector<float> xs = sweep(50), ys(xs.size());
  for (int i = -100; i < 100; ++i) xs.push_back(static_cast<float>(i) / 2);
  while (xs.size() % 16) xs.push_back(1);
  ys.resize(xs.size());
  struct Rounder {
    const char* name;
    float (*reference)(float);
  };
  const Rounder functions[] = {{"vround", [](float x) { return std::nearbyint(x); }},
                               {"vfloor", [](float x) { return std::floor(x); }},
                               {"vceil", [](float x) { return std::ceil(x); }},
                               {"vtrunc", [](float x) { return std::trunc(x); }},
                               {"vsqrt", [](float x) { return std::sqrt(x); }}};
  for (Isa isa : runnable_isas()) {
    std::vector<EmittedKernel> kernels;
    for (const Rounder& f : functions) {
      kernels.push_back(unary_kernel(f.name, "f32", "f32", fmt::format("{}(a)", f.name)));
      kernels.push_back(unary_kernel(fmt::format("{}_f64", f.name), "f32", "f32",
                                     fmt::format("CONVERT(f32v, {}(CONVERT(f64v, a)))", f.name)));
    }
    auto module = codegen::build_module(kernels, isa);
    for (const Rounder& f : functions)
      for (const char* suffix : {"", "_f64"}) {
        run(*module, std::string(f.name) + suffix, xs.data(), xs.data(), ys.data(), xs.size());
        for (size_t i = 0; i < xs.size(); ++i) {
          float want = f.reference(xs[i]);
          ASSERT_TRUE((std::isnan(want) && std::isnan(ys[i])) ||
                      std::bit_cast<uint32_t>(want) == std::bit_cast<uint32_t>(ys[i]))
              << f.name << suffix << "(" << xs[i] << ") = " << ys[i] << " on " << name_of(isa);
        }
      }
  }
}

TEST(Math, NarrowFloatFormats) {
  if (!codegen::have_compiler()) GTEST_SKIP();
  const DType formats[] = {DType::f16,    DType::bf16,       DType::f8e4m3fn, DType::f8e4m3fnuz,
                           DType::f8e5m2, DType::f8e5m2fnuz, DType::f4e2m1,   DType::f8e8m0,
                           DType::f6e2m3, DType::f6e3m2};
  for (Isa isa : runnable_isas()) {
    std::vector<EmittedKernel> kernels;
    for (DType t : formats) {
      const char* bits = size_of(t) == 2 ? "u16" : "u8";
      kernels.push_back(unary_kernel(fmt::format("dec{}", static_cast<int>(t)), bits, "f32",
                                     fmt::format("dec_{}(a)", codegen::tag_of(t))));
      kernels.push_back(unary_kernel(fmt::format("enc{}", static_cast<int>(t)), "f32", bits,
                                     fmt::format("enc_{}(a)", codegen::tag_of(t))));
      if (size_of(t) == 1 && bits_of(t) == 8)
        kernels.push_back(unary_kernel(fmt::format("inf{}", static_cast<int>(t)), "f32", bits,
                                       fmt::format("enc_{}(a, false)", codegen::tag_of(t))));
    }
    auto module = codegen::build_module(kernels, isa);
    for (DType t : formats) {
      const bool two = size_of(t) == 2;
      const uint32_t codes = two ? 65536 : 256;
      std::vector<uint16_t> codes16;
      std::vector<uint8_t> codes8;
      for (uint32_t c = 0; c < codes; ++c)
        codes16.push_back(static_cast<uint16_t>(c)), codes8.push_back(static_cast<uint8_t>(c));
      std::vector<float> values(codes);
      const void* in = two ? static_cast<const void*>(codes16.data()) : codes8.data();
      run(*module, fmt::format("dec{}", static_cast<int>(t)), in, in, values.data(), codes);
      std::vector<float> without_denormals(codes);
      {
        const DenormalsAsZero here;
        run(*module, fmt::format("dec{}", static_cast<int>(t)), in, in, without_denormals.data(), codes);
      }
      ASSERT_EQ(std::memcmp(values.data(), without_denormals.data(), codes * sizeof(float)), 0)
          << name_of(t) << " on " << name_of(isa) << ": computed with denormals of f32";
      uint32_t valid = 1u << bits_of(t);
      std::vector<float> xs;
      for (uint32_t c = 0; c < valid; ++c) {
        float want = decode_float(t, c);
        ASSERT_TRUE((std::isnan(want) && std::isnan(values[c])) ||
                    std::bit_cast<uint32_t>(want) == std::bit_cast<uint32_t>(values[c]))
            << name_of(t) << " code " << c << ": " << values[c] << ", want " << want << " on "
            << name_of(isa);
        // Each value, its neighbours, and the middle to the next value with its neighbours.
        float next = decode_float(t, c + 1 < valid ? c + 1 : c),
              middle = static_cast<float>((double(want) + next) / 2);
        for (float x : {want, middle})
          for (float y : {x, std::nextafter(x, INFINITY), std::nextafter(x, -INFINITY)}) xs.push_back(y);
      }
      for (float x : sweep(20)) xs.push_back(x);
      while (xs.size() % 16) xs.push_back(1);
      for (bool saturate : {true, false}) {
        if (!saturate && bits_of(t) != 8) continue;
        std::vector<uint16_t> got16(xs.size());
        std::vector<uint8_t> got8(xs.size());
        void* out = two ? static_cast<void*>(got16.data()) : got8.data();
        run(*module, fmt::format("{}{}", saturate ? "enc" : "inf", static_cast<int>(t)), xs.data(), xs.data(),
            out, xs.size());
        for (size_t i = 0; i < xs.size(); ++i) {
          uint32_t want = encode_float(t, xs[i], saturate), got = two ? got16[i] : got8[i];
          if (std::isnan(xs[i]) && std::isnan(decode_float(t, want)) && std::isnan(decode_float(t, got)))
            continue;
          ASSERT_EQ(want, got) << name_of(t) << " of " << xs[i] << " (" << std::bit_cast<uint32_t>(xs[i])
                               << ") on " << name_of(isa) << (saturate ? "" : " without saturation");
        }
      }
    }
  }
}

} // namespace
} // namespace tbx::test
