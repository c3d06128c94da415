// What is done with the sums of a product of 8-bit integers before they are stored.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "extern_kernels/bytes/tile.h"
#include "extern_kernels/bytes/tile_product.h"
#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels::bytes {

/// The result of a product, or an operand of its post-operations, row by row.
struct Walk {
  void* data = nullptr;
  DType dtype = DType::undefined;
  int64_t column_step = 0;
  std::vector<int64_t> steps; ///< through the dimensions of the rows, in elements
};

/// Post-operations in float32, as the plain loops do them: one after the other, each rounded. What is stored
/// as bytes is rounded to even and saturated; sums without post-operations are stored as they are.
class Epilogue {
public:
  /// Empty where these are done, else the reason why not.
  static std::string refusal(const std::vector<PostOp>& ops, std::span<const OperandInfo> inputs,
                             DType result);

  /// `operands`: of the operations that have one, in their order. The first `outer` dimensions of the rows
  /// are the same for all rows that are finished together.
  Epilogue(const std::vector<PostOp>& ops, const Walk& result, std::span<const Walk> operands, size_t outer);

  /// For `width` columns from `column` on of `count` rows. `rows`: where they begin, in elements,
  /// in the result and in each operand.
  void finish(const int32_t* sums, int count, int64_t column, int width, const int64_t* const* rows) const;

private:
  const std::vector<PostOp>& ops_;
  void finish_work(const int32_t* sums, int count, int64_t column, const int64_t* const* rows) const;

  size_t count_;              ///< of the operations that storing does not do
  bool scales_first_ = false; ///< a product with a row of floats and the sum with another one come first
  const Walk& result_;
  std::span<const Walk> operands_;
  std::optional<TileWork> work_; ///< behind scale and bias
};

} // namespace tbx::extern_kernels::bytes
