// Weights that the library has packed: what they were is given up, and made again where it is needed.
#include <gtest/gtest.h>

#include <cstring>

#include "extern_kernels/onednn/byte_layout.h"
#include "extern_kernels/onednn/common.h"

namespace tbx::extern_kernels::onednn {
namespace {

using dnnl::memory;

std::shared_ptr<const Tensor> numbered(DType type, int64_t rows, int64_t columns) {
  Tensor t = Tensor::make(type, {rows, columns});
  for (int64_t i = 0; i < t.numel(); ++i) switch (type) {
    case DType::f32: t.as_mutable<float>()[i] = static_cast<float>(i) * 0.37f - 11; break;
    case DType::i8: t.as_mutable<int8_t>()[i] = static_cast<int8_t>(i * 7); break;
    default: t.as_mutable<uint16_t>()[i] = static_cast<uint16_t>(0x3c00 + i % 512); break;
    }
  return std::make_shared<const Tensor>(std::move(t));
}

memory::desc matrix(int64_t rows, int64_t columns, memory::format_tag tag,
                    memory::data_type type = memory::data_type::f32) {
  return memory::desc({rows, columns}, type, tag);
}

/// Elements of a layout in their plain order, through a reorder of its own.
std::vector<float> plain_elements(const memory& m, int64_t rows, int64_t columns) {
  std::vector<float> elements(static_cast<size_t>(rows * columns));
  memory to(matrix(rows, columns, memory::format_tag::ab), cpu_engine(), elements.data());
  memory from = m;
  dnnl::reorder(from, to).execute(this_thread_stream(), from, to);
  this_thread_stream().wait();
  return elements;
}

TEST(PackedWeights, AreGivenUpAndMadeAgain) {
  for (auto [rows, columns] : {std::pair<int64_t, int64_t>{1, 1}, {7, 5}, {64, 48}, {129, 77}})
    for (auto held : {memory::format_tag::ab, memory::format_tag::ba}) {
      auto weights = numbered(DType::f32, rows, columns);
      const std::vector<float> bits(weights->as<float>().begin(), weights->as<float>().end());
      const std::weak_ptr<const Tensor> alive = weights;
      memory::desc plain = matrix(rows, columns, held);
      const std::vector<float> wanted =
          plain_elements(memory(plain, cpu_engine(), const_cast<std::byte*>(weights->data)), rows, columns);
      PackedWeights packed(plain, std::move(weights));
      const memory first = packed.get(matrix(rows, columns, memory::format_tag::BA16a16b));
      EXPECT_TRUE(alive.expired()) << "packed: nobody else has them";
      EXPECT_EQ(plain_elements(first, rows, columns), wanted);
      const memory second = packed.get(matrix(rows, columns, memory::format_tag::BA16a64b));
      EXPECT_EQ(plain_elements(second, rows, columns), wanted) << "of the first layout";
      const auto original = packed.original();
      EXPECT_EQ(std::vector<float>(original->as<float>().begin(), original->as<float>().end()), bits);
      EXPECT_EQ(plain_elements(packed.get(plain), rows, columns), wanted) << "as they were";
      packed.get(matrix(rows, columns, memory::format_tag::BA16a32b));
      EXPECT_EQ(plain_elements(packed.get(plain), rows, columns), wanted) << "whose address somebody has";
    }
}

TEST(PackedWeights, ThatAreReadAsTheyAreStay) {
  auto weights = numbered(DType::f32, 7, 5);
  const std::weak_ptr<const Tensor> alive = weights;
  PackedWeights packed(matrix(7, 5, memory::format_tag::ab), std::move(weights));
  const memory plain = packed.get(matrix(7, 5, memory::format_tag::ab));
  packed.get(matrix(7, 5, memory::format_tag::BA16a16b));
  ASSERT_FALSE(alive.expired());
  EXPECT_EQ(plain.get_data_handle(), alive.lock()->data);
}

/// The weights of a convolution of u8 with `out` channels, as the library wants them.
memory::desc wanted_of_conv(const memory::dims& weights, int64_t group, bool has_zero) {
  constexpr auto kAny = memory::format_tag::any;
  const bool grouped = weights.size() == 5;
  const int64_t in = weights[weights.size() - 3] * group, out = weights[weights.size() - 4] * group;
  const int64_t taps = weights.back(), points = 12;
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (has_zero) attr.set_zero_points_mask(DNNL_ARG_SRC, 0);
  attr.set_scales_mask(DNNL_ARG_WEIGHTS, grouped ? 3 : 1);
  const memory::desc image({1, in, points, points}, memory::data_type::u8, memory::format_tag::nhwc),
      result({1, out, points, points}, memory::data_type::u8, memory::format_tag::nhwc);
  const dnnl::convolution_forward::primitive_desc descriptor(
      cpu_engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct, image,
      memory::desc(weights, memory::data_type::s8, kAny), result, {1, 1}, {0, 0}, {taps / 2, taps / 2},
      {taps / 2, taps / 2}, attr);
  return descriptor.weights_desc();
}

memory::desc row_major(const memory::dims& dims) {
  memory::dims strides(dims.size(), 1);
  for (size_t d = dims.size() - 1; d-- > 0;) strides[d] = strides[d + 1] * dims[d + 1];
  return memory::desc(dims, memory::data_type::s8, strides);
}

TEST(ByteLayout, IsWhatTheLibraryMakes) {
  struct Case {
    memory::dims weights;
    int64_t group;
  };
  int own = 0;
  for (const Case& c : std::vector<Case>{{{64, 64, 1, 1}, 1},
                                         {{96, 40, 1, 1}, 1},
                                         {{64, 3, 7, 7}, 1},
                                         {{100, 67, 1, 1}, 1},
                                         {{33, 130, 3, 3}, 1},
                                         {{2048, 512, 1, 1}, 1},
                                         {{4, 16, 16, 3, 3}, 4},
                                         {{48, 1, 1, 3, 3}, 48}})
    for (bool has_zero : {false, true}) {
      const memory::desc plain = row_major(c.weights), wanted = wanted_of_conv(c.weights, c.group, has_zero);
      std::vector<int8_t> weights(plain.get_size());
      for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<int8_t>(i * 131 + i / 251);
      std::vector<int8_t> by_library(wanted.get_size()), ours(wanted.get_size(), 77);
      memory from(plain, cpu_engine(), weights.data()), to(wanted, cpu_engine(), by_library.data());
      dnnl::reorder(from, to).execute(this_thread_stream(), from, to);
      this_thread_stream().wait();
      const auto layout = ByteLayout::of(plain, wanted, has_zero);
      ASSERT_TRUE(layout.has_value());
      if (layout->packs()) {
        layout->pack(reinterpret_cast<const std::byte*>(weights.data()),
                     reinterpret_cast<std::byte*>(ours.data()));
        EXPECT_EQ(ours, by_library) << "channels " << c.weights[0] << " zero " << has_zero;
        ++own;
      }
      std::vector<int8_t> again(weights.size());
      layout->unpack(reinterpret_cast<const std::byte*>(by_library.data()),
                     reinterpret_cast<std::byte*>(again.data()));
      EXPECT_EQ(again, weights);
    }
  if (inexact_bytes().empty()) {
    // With AMX other sums lie behind those with a zero point.
    EXPECT_GT(own, has_tiles(DType::i8) ? 5 : 6) << "the library still packs most of them";
  }
}

TEST(PackedWeights, OfBytesAreGivenUpAndMadeAgain) {
  for (auto held : {memory::format_tag::ab, memory::format_tag::ba}) {
    auto bytes = numbered(DType::i8, 67, 48);
    const std::vector<int8_t> bits(bytes->as<int8_t>().begin(), bytes->as<int8_t>().end());
    const std::weak_ptr<const Tensor> alive = bytes;
    const memory::desc plain = matrix(67, 48, held, memory::data_type::s8);
    PackedWeights packed(plain, std::move(bytes));
    packed.get(matrix(67, 48, memory::format_tag::BA16a16b, memory::data_type::s8));
    EXPECT_TRUE(alive.expired()) << "packed: nobody else has them";
    packed.get(matrix(67, 48, memory::format_tag::BA16a64b4a, memory::data_type::s8));
    const auto original = packed.original();
    EXPECT_EQ(std::vector<int8_t>(original->as<int8_t>().begin(), original->as<int8_t>().end()), bits);
  }
}

TEST(PackedWeights, ThatLayoutsDoNotGiveBackStay) {
  auto halves = numbered(DType::f16, 64, 48);
  const std::weak_ptr<const Tensor> alive_halves = halves;
  PackedWeights of_halves(matrix(64, 48, memory::format_tag::ab, memory::data_type::f16), std::move(halves));
  of_halves.get(matrix(64, 48, memory::format_tag::BA16a16b));
  EXPECT_FALSE(alive_halves.expired());
}

} // namespace
} // namespace tbx::extern_kernels::onednn
