// A matrix of 2-, 4- or 8-bit integers with a scale (and zero point) per block of rows, cut into panels of
// columns: products with few rows read it once, in order, and never write it out as floats.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace tbx::extern_kernels::gemv {

constexpr int kPanelVectors = 4; ///< columns of a panel, in the vectors of this machine
constexpr int kMaxPanel = 64;    ///< columns of the widest panel
constexpr int kTileRows = 4;     ///< rows that share each element read

/// What the panels are made from: [n, blocks, block * bits / 8] bytes, the first of the elements of a byte in
/// its lowest bits; per block and column one scale and, if given, one zero point, both [n, blocks].
struct QuantizedMatrix {
  int64_t k = 0, n = 0, block = 0; ///< block: a multiple of 16
  int bits = 0;
  const uint8_t* data = nullptr;
  const float* scales = nullptr;
  const float* zeros = nullptr; ///< null: the middle of the integers' range everywhere
  int64_t blocks() const { return (k + block - 1) / block; }
};

class QuantizedPanels {
public:
  /// Copies everything. Runs on all threads of the current arena.
  explicit QuantizedPanels(const QuantizedMatrix& m);

  int width() const { return width_; }
  int64_t k() const { return k_; }
  int64_t n() const { return n_; }
  int64_t blocks() const { return blocks_; }
  int64_t padded_k() const { return blocks_ * block_; }
  int64_t count() const { return (n_ + width_ - 1) / width_; }
  int64_t bytes() const { return count() * panel_bytes_; }
  bool has_zeros() const { return has_zeros_; }

  /// sums[i * width + j] = sum over l of x[i * stride + l] * matrix[l, panel * width + j] for i < rows, which
  /// is at most kTileRows. x has padded_k elements per row, those from k on are 0. With zero points, totals[i
  /// * blocks + b] is the sum of row i of x over block b.
  void multiply(int64_t panel, const float* x, int64_t stride, const float* totals, int rows,
                float* sums) const;
  /// Rows [first, end) of the panel as floats, those beyond n being 0; `first` is a multiple of 16.
  void expand(int64_t panel, int64_t first, int64_t end, float* to) const;
  /// The memory of these rows of the panel, of the next panel where it has no more.
  std::span<const std::byte> part(int64_t panel, int64_t first, int64_t end) const;
  /// sums[i * width + j] += sum over l < depth of x[i * stride + l] * matrix[l * width + j] for i < rows,
  /// with what `expand` gave.
  static void add(const float* matrix, const float* x, int64_t stride, int64_t rows, int64_t depth,
                  float* sums);

  /// Where a panel lies and how: for the kernels.
  struct View {
    const std::byte* data;
    int64_t k, blocks, block;
    bool has_zeros;
  };
  View view(int64_t panel) const;

private:
  int64_t k_, n_, block_, blocks_, panel_bytes_;
  int bits_, width_;
  bool has_zeros_;
  std::shared_ptr<void> memory_;
};

} // namespace tbx::extern_kernels::gemv
