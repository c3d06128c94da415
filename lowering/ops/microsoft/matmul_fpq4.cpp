// com.microsoft MatMulFpQ4: a product with a matrix [K, N] in one blob of 4-bit integers, as MLAS packs them:
// column by column, in blocks of 32 rows, each with its scale and, in one of the types, its zero point.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>

#include "lowering/ops/families.h"
#include "lowering/ops/products.h"

namespace tbx::lowering {
namespace {

constexpr int64_t kBlock = 32;

/// The matrix in f32. The low halves of a block's bytes are its first 16 rows, the high halves the others.
Tensor unpacked(const std::byte* from, int64_t k, int64_t n, bool has_zero) {
  Tensor t = Tensor::make(DType::f32, {k, n});
  auto to = t.as_mutable<float>();
  for (int64_t j = 0; j < n; ++j)
    for (int64_t first = 0; first < k; first += kBlock) {
      float scale;
      std::memcpy(&scale, from, sizeof scale);
      from += sizeof scale;
      const int zero = has_zero ? std::to_integer<int>(*from++) : 8;
      for (int64_t i = 0; i < std::min(kBlock, k - first); ++i) {
        const int byte = std::to_integer<int>(from[i % 16]), q = i < 16 ? byte & 15 : byte >> 4;
        to[(first + i) * n + j] = static_cast<float>(q - zero) * scale;
      }
      from += kBlock / 2;
    }
  return t;
}

std::vector<LoweredValue> matmul_fpq4(OpContext& ctx) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const TensorBox& a = ctx.in(0);
  TBX_MODEL(a.dtype() == DType::f32 && a.rank() >= 1, "A is {} of rank {}, expected float of rank 1 or more",
            name_of(a.dtype()), a.rank());
  const int64_t type = ctx.attr_int("blk_quant_type", 1);
  TBX_MODEL(type >= 0 && type <= 2, "blk_quant_type is {}, expected 0, 1 or 2", type);
  if (type == 2) throw_unsupported("blk_quant_type 2: only blocks of 32 rows (0 and 1) are read");
  const std::vector<int64_t> shape = ctx.ints_or_throw(2, "B_shape");
  TBX_MODEL(shape.size() == 2 && shape[0] >= 1 && shape[1] >= 1 && shape[0] <= kMost && shape[1] <= kMost,
            "B_shape has {} elements, expected two positive sizes", shape.size());
  const int64_t k = shape[0], n = shape[1], size = n * ((k + kBlock - 1) / kBlock) * (type == 1 ? 21 : 20);
  TBX_MODEL(ctx.dtype(1) == DType::u8, "B is of type {}, expected uint8", name_of(ctx.dtype(1)));
  const auto blob = ctx.constant_or_throw(1, "B");
  TBX_MODEL(blob->numel() == size, "B has {} bytes, expected {}", blob->numel(), size);
  const SymInt inner = a.sizes().back();
  TBX_MODEL(!inner.is_constant() || inner.is(k), "A has {} columns, B {} rows", inner.constant(), k);
  ctx.program.add_check(inner - SymInt(k), true, "MatMulFpQ4: the last dimension of A is not K");
  const TensorBox b = ctx.box(std::make_shared<const Tensor>(unpacked(blob->data, k, n, type == 1)));
  return {matmul_boxes(ctx, a, b, DType::f32)};
}

} // namespace

void register_matmul_fpq4(Registry& r) {
  r.add("MatMulFpQ4", since(1), matmul_fpq4, "com.microsoft");
  r.type_from(0, {"MatMulFpQ4"}, "com.microsoft");
}

} // namespace tbx::lowering
