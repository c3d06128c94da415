#include "base/float_formats.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/denormals_as_zero.h"

namespace tbx {
namespace {

#include "float_formats_table.inc"

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr DType kByteFormats[] = {DType::f8e4m3fn, DType::f8e4m3fnuz, DType::f8e5m2, DType::f8e5m2fnuz};
constexpr DType kFormats[] = {DType::f16,    DType::bf16,       DType::f8e4m3fn, DType::f8e4m3fnuz,
                              DType::f8e5m2, DType::f8e5m2fnuz, DType::f4e2m1};
constexpr DType kAllFormats[] = {DType::f16,        DType::bf16,   DType::f8e4m3fn,
                                 DType::f8e4m3fnuz, DType::f8e5m2, DType::f8e5m2fnuz,
                                 DType::f4e2m1,     DType::f6e2m3, DType::f6e3m2};

float from_bits(uint32_t bits) { return std::bit_cast<float>(bits); }

TEST(FloatFormats, DecodesEveryBytePattern) {
  for (size_t f = 0; f < std::size(kByteFormats); ++f)
    for (uint32_t b = 0; b < 256; ++b) {
      float want = from_bits(uint32_t{kDecoded[f][b]} << 16), got = decode_float(kByteFormats[f], b);
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(got)) << name_of(kByteFormats[f]) << " " << b;
      } else {
        EXPECT_EQ(std::bit_cast<uint32_t>(want), std::bit_cast<uint32_t>(got))
            << name_of(kByteFormats[f]) << " " << b;
      }
    }
}

TEST(FloatFormats, EncodesTheTable) {
  for (const auto& row : kEncoded)
    for (size_t f = 0; f < std::size(kFormats); ++f)
      EXPECT_EQ(row[f + 1], encode_float(kFormats[f], from_bits(row[0]), false))
          << name_of(kFormats[f]) << " of " << from_bits(row[0]);
}

TEST(FloatFormats, EncodingADecodedPatternGivesItBack) {
  for (DType t : kAllFormats) {
    for (uint32_t b = 0; b < (1u << bits_of(t)); ++b) {
      float value = decode_float(t, b);
      if (!std::isnan(value)) {
        EXPECT_EQ(b, encode_float(t, value, false)) << name_of(t) << " " << b;
      } else {
        EXPECT_TRUE(std::isnan(decode_float(t, encode_float(t, value)))) << name_of(t);
      }
    }
  }
}

TEST(FloatFormats, HalvesGoToTheEvenNeighbour) {
  for (DType t : kAllFormats) {
    uint32_t sign = 1u << (bits_of(t) - 1);
    for (uint32_t b = 0; b + 1 < sign; ++b) {
      float low = decode_float(t, b), high = decode_float(t, b + 1);
      if (!std::isfinite(low) || !std::isfinite(high)) continue;
      float middle = low / 2 + high / 2;
      if (middle - low != high - middle) continue; // f32 itself rounds here
      EXPECT_EQ(b + b % 2, encode_float(t, middle)) << name_of(t) << " " << middle;
      EXPECT_EQ(b, encode_float(t, std::nextafter(middle, low))) << name_of(t) << " " << middle;
      EXPECT_EQ(b + 1, encode_float(t, std::nextafter(middle, high))) << name_of(t) << " " << middle;
    }
  }
}

// The tables of the ONNX Cast operator.
TEST(FloatFormats, SaturationOfTheEightBitFormats) {
  struct Case {
    DType type;
    uint32_t largest, positive_overflow, negative_overflow;
  };
  for (const Case& c : {Case{DType::f8e4m3fn, 0x7E, 0x7F, 0xFF},
                        {DType::f8e4m3fnuz, 0x7F, 0x80, 0x80},
                        {DType::f8e5m2, 0x7B, 0x7C, 0xFC},
                        {DType::f8e5m2fnuz, 0x7F, 0x80, 0x80}}) {
    for (float v : {1e6f, kInf}) {
      EXPECT_EQ(c.largest, encode_float(c.type, v, true)) << name_of(c.type);
      EXPECT_EQ(c.largest | 0x80, encode_float(c.type, -v, true)) << name_of(c.type);
      EXPECT_EQ(c.positive_overflow, encode_float(c.type, v, false)) << name_of(c.type);
      EXPECT_EQ(c.negative_overflow, encode_float(c.type, -v, false)) << name_of(c.type);
    }
    for (bool saturate : {false, true})
      EXPECT_TRUE(std::isnan(decode_float(c.type, encode_float(c.type, kNaN, saturate)))) << name_of(c.type);
  }
  EXPECT_EQ(0u, encode_float(DType::f8e4m3fnuz, -0.0f));
  EXPECT_EQ(0x80u, encode_float(DType::f8e4m3fn, -0.0f));
}

TEST(FloatFormats, WideFormatsOverflowToInfinity) {
  for (DType t : {DType::f16, DType::bf16})
    for (bool saturate : {false, true}) {
      EXPECT_EQ(kInf, decode_float(t, encode_float(t, kInf, saturate)));
      EXPECT_EQ(-kInf, decode_float(t, encode_float(t, -3.4e38f, saturate)));
    }
  EXPECT_EQ(6.0f, decode_float(DType::f4e2m1, encode_float(DType::f4e2m1, kInf, false)));
  EXPECT_EQ(7.5f, decode_float(DType::f6e2m3, encode_float(DType::f6e2m3, kInf, false)));
  EXPECT_EQ(28.0f, decode_float(DType::f6e3m2, encode_float(DType::f6e3m2, kInf, false)));
  EXPECT_EQ(0.125f, decode_float(DType::f6e2m3, 1));
  EXPECT_EQ(0.0625f, decode_float(DType::f6e3m2, 1));
}

TEST(FloatFormats, PowersOfTwo) {
  constexpr DType t = DType::f8e8m0;
  for (uint32_t b = 0; b < 255; ++b) {
    EXPECT_EQ(std::ldexp(1.0f, static_cast<int>(b) - 127), decode_float(t, b));
    EXPECT_EQ(b, encode_float(t, decode_float(t, b)));
  }
  EXPECT_TRUE(std::isnan(decode_float(t, 255)));
  EXPECT_EQ(0xFFu, encode_float(t, kNaN));
  EXPECT_EQ(0xFEu, encode_float(t, kInf, true));
  EXPECT_EQ(0xFFu, encode_float(t, kInf, false));
  EXPECT_EQ(0u, encode_float(t, 0.0f));
  EXPECT_EQ(128u, encode_float(t, 1.5f));
  EXPECT_EQ(127u, encode_float(t, 1.49f));
  EXPECT_EQ(1u, encode_float(t, 1.5f * 0x1p-127f));
  EXPECT_EQ(0u, encode_float(t, 1.4f * 0x1p-127f));
}

#if defined(__x86_64__)
__attribute__((target("f16c"))) uint16_t f16_in_hardware(float v) {
  typedef float V4 __attribute__((vector_size(16)));
  typedef short S8 __attribute__((vector_size(16)));
  S8 r = __builtin_ia32_vcvtps2ph(V4{v, 0, 0, 0}, 0);
  return static_cast<uint16_t>(r[0]);
}

TEST(FloatFormats, HalfPrecisionAgreesWithTheProcessor) {
  if (!__builtin_cpu_supports("f16c")) GTEST_SKIP() << "no F16C";
  uint32_t state = 1;
  for (int i = 0; i < 300000; ++i) {
    state = state * 1664525 + 1013904223;
    // Exponents around those of f16.
    float v = from_bits((state & 0x807FFFFF) | (100 + (state >> 23) % 48) << 23);
    ASSERT_EQ(f16_in_hardware(v), encode_float(DType::f16, v)) << v;
  }
}
#endif

TEST(FloatFormats, ManyHalvesAreRoundedAsOne) {
  std::vector<float> values{0.0f, -0.0f, kInf, -kInf, kNaN, -kNaN, 65504.0f, 65519.99f, 65520.0f, 3.4e38f};
  uint32_t state = 7;
  for (int i = 0; i < 200000; ++i) {
    state = state * 1664525 + 1013904223;
    values.push_back(from_bits(state));
    values.push_back(from_bits((state & 0x807FFFFF) | (98 + (state >> 23) % 48) << 23));            // of f16
    values.push_back(from_bits(((state & 0x807FE000) | (98 + (state >> 23) % 48) << 23) + 0x1000)); // halfway
  }
  for (DType t : {DType::f16, DType::bf16}) {
    std::vector<uint16_t> bits(values.size());
    encode_halves(t, values.data(), static_cast<int64_t>(values.size()), bits.data());
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(bits[i], encode_float(t, values[i])) << values[i];
  }
}

/// Bit by bit, NaNs with what they carry included.
TEST(FloatFormats, ManyHalvesAreWidenedAsOne) {
  std::vector<uint16_t> all(0x10000);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i * 40503); // each once
  for (DType t : {DType::f16, DType::bf16})
    for (int64_t first : {0, 1, 3})
      for (int64_t count :
           {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{8}, int64_t{9}, int64_t{0x10000} - first}) {
        std::vector<float> wide(static_cast<size_t>(count) + 1, 7);
        decode_halves(t, all.data() + first, count, wide.data());
        for (int64_t i = 0; i < count; ++i) {
          const uint32_t bits = all[first + i], mantissa = t == DType::f16 ? bits & 0x3ff : bits & 0x7f;
          const uint32_t exponent = t == DType::f16 ? bits >> 10 & 0x1f : bits >> 7 & 0xff;
          const bool is_nan = exponent == (t == DType::f16 ? 0x1fu : 0xffu) && mantissa != 0;
          uint32_t want = std::bit_cast<uint32_t>(decode_float(t, bits));
          if (is_nan) want = (bits >> 15) << 31 | 0x7f800000u | mantissa << (t == DType::f16 ? 13 : 16);
          ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), want) << bits;
        }
        EXPECT_EQ(wide[count], 7) << "nothing behind the last";
      }
}

/// Denormal halves are normal numbers of f32, and none that is denormal there takes part: they take many
/// processors long, and a caller may have told its own to take them for 0.
TEST(FloatFormats, HalvesAreWidenedWithoutDenormals) {
  std::vector<uint16_t> denormals;
  for (uint16_t bits = 0; bits < 0x400; ++bits)
    for (const int sign : {0, 0x8000}) denormals.push_back(static_cast<uint16_t>(bits | sign));
  std::vector<float> want(denormals.size()), got(denormals.size());
  for (size_t i = 0; i < want.size(); ++i) want[i] = decode_float(DType::f16, denormals[i]);
  {
    const test::DenormalsAsZero here;
    decode_halves(DType::f16, denormals.data(), 1021, got.data());
    decode_halves(DType::f16, denormals.data() + 1021, std::ssize(denormals) - 1021, got.data() + 1021);
  }
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i])) << denormals[i];
}

} // namespace
} // namespace tbx
