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
  int64_t panels() const { return (columns_ + tile_.columns - 1) / tile_.columns; }
  int64_t bytes() const { return matrices_ * matrix_size() * static_cast<int64_t>(sizeof(float)); }
  const Tile& tile() const { return tile_; }

  /// Matrix `i`: [panel, depth, column of the panel], zeros behind the last column.
  const float* matrix(int64_t i) const { return data() + i * matrix_size(); }

private:
  int64_t matrix_size() const { return panels() * depth_ * tile_.columns; }
  float* data() const { return static_cast<float*>(memory_.get()); }

  const Tile& tile_;
  int64_t matrices_ = 0, depth_ = 0, columns_ = 0;
  std::shared_ptr<void> memory_;
};

} // namespace tbx::extern_kernels::product
