#include "base/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/float_formats.h"

namespace tbx {
namespace {

template <class T> Tensor of(DType dtype, std::initializer_list<T> values) {
  Tensor t = Tensor::make(dtype, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), t.as_mutable<T>().begin());
  return t;
}

TEST(Tensor, NumelIsChecked) {
  EXPECT_EQ(1, checked_numel({}));
  EXPECT_EQ(24, checked_numel(std::vector<int64_t>{2, 3, 4}));
  EXPECT_EQ(0, checked_numel(std::vector<int64_t>{int64_t{1} << 62, 0, 1}));
  EXPECT_THROW(checked_numel(std::vector<int64_t>{2, -1}), Error);
  EXPECT_THROW(checked_numel(std::vector<int64_t>{int64_t{1} << 32, int64_t{1} << 31}), Error);
}

TEST(Tensor, MakesAlignedZeroes) {
  Tensor t = Tensor::make(DType::f32, {3, 5});
  EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(t.data) % 64);
  EXPECT_EQ(15, t.numel());
  EXPECT_EQ(60, t.bytes());
  for (float v : t.as<float>()) EXPECT_EQ(0.0f, v);
  EXPECT_EQ(0, Tensor::make(DType::i64, {4, 0}).numel());
  EXPECT_EQ(1, Tensor::make(DType::i4, {}).bytes());
}

TEST(Tensor, SizesThatOverflowAreModelErrors) {
  for (auto& dims : {std::vector<int64_t>{int64_t{1} << 61}, std::vector<int64_t>{-3},
                     std::vector<int64_t>{int64_t{1} << 60}}) {
    try {
      Tensor::make(DType::f64, dims);
      ADD_FAILURE() << "allocated " << dims[0];
    } catch (const Error& e) {
      EXPECT_EQ(ErrorKind::model, e.kind()) << e.what();
    }
  }
}

TEST(Tensor, StringsAndInts) {
  Tensor s = Tensor::of_strings({2}, {"a", "b"});
  EXPECT_EQ(DType::string, s.dtype);
  EXPECT_EQ(2, s.numel());
  EXPECT_EQ("b", (*s.strings)[1]);
  Tensor i = Tensor::of_ints(std::vector<int64_t>{4, -5});
  EXPECT_EQ((std::vector<int64_t>{4, -5}), to_ints(i));
}

TEST(Tensor, ElementsOfEveryType) {
  EXPECT_EQ(-7, element_as_int(of<int8_t>(DType::i8, {-7}), 0));
  EXPECT_EQ(-2, element_as_int(of<int8_t>(DType::i2, {-2}), 0));
  EXPECT_EQ(200, element_as_int(of<uint8_t>(DType::u8, {200}), 0));
  EXPECT_EQ(1, element_as_int(of<uint8_t>(DType::boolean, {7}), 0));
  EXPECT_EQ(-300, element_as_int(of<int16_t>(DType::i16, {-300}), 0));
  EXPECT_EQ(65535, element_as_int(of<uint16_t>(DType::u16, {65535}), 0));
  EXPECT_EQ(4294967295, element_as_int(of<uint32_t>(DType::u32, {4294967295u}), 0));
  EXPECT_EQ(1.8446744073709552e19, element_as_double(of<uint64_t>(DType::u64, {~0ull}), 0));
  EXPECT_EQ(-3, element_as_int(of<float>(DType::f32, {-3.9f}), 0));
  auto half = static_cast<uint16_t>(encode_float(DType::f16, -1.5f));
  EXPECT_EQ(-1.5, element_as_double(of<uint16_t>(DType::f16, {half}), 0));
  EXPECT_EQ(0.5, element_as_double(of<uint8_t>(DType::f8e8m0, {126}), 0));
}

TEST(Tensor, FloatsThatDoNotFitSaturate) {
  Tensor t = of<double>(DType::f64, {1e300, -1e300, std::nan(""), 0x1p63});
  EXPECT_EQ((std::vector<int64_t>{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min(), 0,
                                  std::numeric_limits<int64_t>::max()}),
            to_ints(t));
}

TEST(Tensor, StringsHaveNoNumbers) {
  EXPECT_THROW(element_as_double(Tensor::of_strings({1}, {"1"}), 0), Error);
}

} // namespace
} // namespace tbx
