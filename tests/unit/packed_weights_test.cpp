// Weights that the library has packed: what they were is given up, and made again where it is needed.
#include <gtest/gtest.h>

#include <cstring>

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

TEST(PackedWeights, ThatLayoutsDoNotGiveBackStay) {
  auto bytes = numbered(DType::i8, 64, 48);
  const std::weak_ptr<const Tensor> alive_bytes = bytes;
  PackedWeights of_bytes(matrix(64, 48, memory::format_tag::ab, memory::data_type::s8), std::move(bytes));
  of_bytes.get(matrix(64, 48, memory::format_tag::BA16a16b, memory::data_type::s8));
  EXPECT_FALSE(alive_bytes.expired());
  auto halves = numbered(DType::f16, 64, 48);
  const std::weak_ptr<const Tensor> alive_halves = halves;
  PackedWeights of_halves(matrix(64, 48, memory::format_tag::ab, memory::data_type::f16), std::move(halves));
  of_halves.get(matrix(64, 48, memory::format_tag::BA16a16b));
  EXPECT_FALSE(alive_halves.expired());
}

} // namespace
} // namespace tbx::extern_kernels::onednn
