// A constant matrix, or a stack of them, packed for blocked products.
#pragma once

#include <memory>

#include "extern_kernels/kernel.h"
#include "extern_kernels/product/tile.h"

namespace tbx::extern_kernels::product {

class Weights {
public:
  /// Packs a constant of known strides, f32, f16 or bf16, on all threads of the arena.
  explicit Weights(const OperandInfo& b);

  int64_t matrices() const { return matrices_; }
  int64_t depth() const { return depth_; }
  int64_t columns() const { return columns_; }
  int64_t panels() const { return panels_; }
  int64_t bytes() const { return matrices_ * matrix_size() * static_cast<int64_t>(sizeof(float)); }

  /// How the columns of a panel, which begin at the panel's number times the usual width, are multiplied.
  const Tile& tile(int64_t panel) const { return panel + 1 == panels_ ? last_ : tiles_.usual; }
  const Tile& usual() const { return tiles_.usual; }
  /// Row `l` of panel `p` of matrix `i`: [panel, depth, column of the panel], zeros behind the last column.
  const float* row(int64_t i, int64_t p, int64_t l) const {
    return data() + i * matrix_size() + p * depth_ * tiles_.usual.columns + l * tile(p).columns;
  }

private:
  int64_t matrix_size() const { return depth_ * ((panels_ - 1) * tiles_.usual.columns + last_.columns); }
  float* data() const { return static_cast<float*>(memory_.get()); }

  const Tiles& tiles_;
  Tile last_;
  int64_t matrices_ = 0, depth_ = 0, columns_ = 0, panels_ = 0;
  std::shared_ptr<void> memory_;
};

} // namespace tbx::extern_kernels::product
