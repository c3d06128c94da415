// com.microsoft MatMulNBits: a product with a matrix of 2-, 4- or 8-bit integers that stays packed. Few rows
// are multiplied where the integers lie, at the speed of reading them; for many rows a piece of the matrix at
// a time becomes floats in the cache. Where the model is content with activations of 8 bits (accuracy_level
// 4) they are rounded as ONNX Runtime rounds them: by blocks, to 255 values.
//
// Few rows become integers, too, where the CPU multiplies them: with as many digits as adding floats keeps.
#include <fmt/format.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/rounding.h"
#include "base/strides.h"
#include "base/task_work.h"
#include "extern_kernels/direct/operands.h"
#include "extern_kernels/gemv/byte_rows.h"
#include "extern_kernels/gemv/quantized_panels.h"
#include "extern_kernels/reference/dense.h"

namespace tbx::extern_kernels {
namespace {

using gemv::kMaxPanel;
using gemv::kTileRows;
using gemv::QuantizedPanels;

constexpr int64_t kFewRows = 16;    ///< with more, floats that are made once are faster
constexpr int64_t kFewInBytes = 20; ///< the same for three digits; for one digit bytes are always faster
constexpr int64_t kAlignment = 16;  ///< floats
/// Rows of a and of the matrix that are done together: what is made of the matrix, and the sums, are 112 KB,
/// which stay in any second-level cache. Its size is not asked, for the order of the sums depends on it.
constexpr int64_t kManyRows = 192, kDepth = 256, kTile = 6;

/// Where a thread multiplies many rows: more than the stack of a caller may have left, and kept.
struct Room {
  alignas(64) float matrix[kDepth * kMaxPanel], sums[kManyRows * kMaxPanel];
  static Room& of_this_thread() {
    thread_local const std::unique_ptr<Room> room = std::make_unique<Room>();
    return *room;
  }
};

/// Zero points of [n, blocks] as floats; empty when there are none.
std::vector<float> zero_points(const TensorRef& t, int64_t n, int64_t blocks, int bits) {
  if (!t.data) return {};
  if (t.dtype != DType::u8) return to_dense<float>(t);
  const std::vector<uint8_t> packed = to_dense<uint8_t>(t);
  const int64_t column = (blocks * bits + 7) / 8;
  TBX_MODEL(static_cast<int64_t>(packed.size()) == n * column,
            "{} bytes of zero points for {} columns of {} blocks", packed.size(), n, blocks);
  std::vector<float> zeros(static_cast<size_t>(n * blocks));
  for (int64_t j = 0; j < n; ++j)
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t bit = b * bits;
      const int element = packed[j * column + bit / 8] >> (bit % 8) & ((1 << bits) - 1);
      zeros[j * blocks + b] = static_cast<float>(element);
    }
  return zeros;
}

TensorRef reference_of(const OperandInfo& info) {
  if (!info.constant) return {};
  return {const_cast<std::byte*>(info.constant->data), info.dtype, info.sizes, info.strides};
}

class MatMulNBits : public ExternKernel {
public:
  MatMulNBits(const PackedMatMulProblem& p, std::span<const OperandInfo> inputs)
      : p_(p), k_(p.k), n_(p.n), block_(p.block), bits_(p.bits), narrow_(p.rounds) {
    has_bias_ = inputs.size() > 4 && inputs[4].dtype != DType::undefined;
    auto known = [&](size_t i) {
      return i >= inputs.size() || inputs[i].dtype == DType::undefined ||
             (inputs[i].constant && !inputs[i].strides.empty());
    };
    if (known(1) && known(2) && known(3)) {
      panels_ = pack(reference_of(inputs[1]), reference_of(inputs[2]),
                     inputs.size() > 3 ? reference_of(inputs[3]) : TensorRef());
      for (size_t i : {1, 2}) drop_pages(*inputs[i].constant);
    }
  }

  std::string description() const override { return "packed " + to_string(Problem(p_)); }
  int64_t packed_bytes() const override { return panels_ ? panels_->bytes() : 0; }
  bool reads(size_t input) const override { return !panels_ || input < 1 || input > 3; }

  int64_t workspace_bytes(std::span<const TensorRef> in, std::span<const TensorRef>) const override {
    return layout(in).end * 4;
  }

  void run(const RunArgs& args) const override {
    const TensorRef& a = args.inputs[0];
    const int64_t rows = a.sizes[0];
    if (rows == 0 || n_ == 0) return;
    std::optional<QuantizedPanels> made;
    if (!panels_)
      made = pack(args.inputs[1], args.inputs[2], args.inputs.size() > 3 ? args.inputs[3] : TensorRef());
    const QuantizedPanels& panels = panels_ ? *panels_ : *made;
    Layout l = layout(args.inputs);
    const auto* x = static_cast<const float*>(a.data);
    int64_t stride = k_;
    if (l.copies) {
      auto* copy = static_cast<float*>(args.workspace);
      stride = panels.padded_k();
      for (int64_t i = 0; i < rows; ++i) {
        const float* from = x + i * a.strides[0];
        if (a.strides[1] == 1)
          std::copy_n(from, k_, copy + i * stride);
        else
          for (int64_t j = 0; j < k_; ++j) copy[i * stride + j] = from[j * a.strides[1]];
        std::fill(copy + i * stride + k_, copy + (i + 1) * stride, 0.0f);
      }
      x = copy;
    }
    if (in_bytes(rows)) {
      const gemv::ByteRows of_bytes(x, rows, stride, stride, block_, bits_, digits(),
                                    static_cast<float*>(args.workspace) + l.bytes);
      if (of_bytes.made()) return rows_of_bytes(args, panels, of_bytes);
    }
    if (narrow_)
      for (int64_t i = 0; i < rows; ++i)
        gemv::round_to_bytes(static_cast<float*>(args.workspace) + i * stride, stride, block_);
    if (rows <= kFewRows)
      few_rows(args, panels, x, stride, static_cast<float*>(args.workspace) + l.totals);
    else
      many_rows(args, panels, x, stride);
  }

private:
  /// Where things lie in the workspace, in floats: a copy of `a`, sums over its blocks, `a` as bytes.
  struct Layout {
    bool copies;
    int64_t totals, bytes, end;
  };

  gemv::Digits digits() const { return narrow_ ? gemv::Digits::one : gemv::Digits::three; }
  bool in_bytes(int64_t rows) const {
    return (narrow_ || rows <= kFewInBytes) && gemv::ByteRows::usable(block_, bits_);
  }

  Layout layout(std::span<const TensorRef> in) const {
    const TensorRef& a = in[0];
    const int64_t rows = a.sizes[0], padded = round_up(k_, block_);
    Layout l;
    l.copies = narrow_ || padded != k_ || a.strides[1] != 1 || (rows > 1 && a.strides[0] != k_);
    l.totals = l.copies ? round_up(rows * padded, kAlignment) : 0;
    l.bytes = l.totals + (rows <= kFewRows ? round_up(rows * (padded / block_), kAlignment) : 0);
    l.end = l.bytes + (in_bytes(rows) ? gemv::ByteRows::bytes(rows, padded, block_, digits()) / 4 : 0);
    return l;
  }

  std::optional<QuantizedPanels> pack(const TensorRef& data, const TensorRef& scales,
                                      const TensorRef& zeros) const {
    gemv::QuantizedMatrix m{k_, n_, block_, bits_};
    const int64_t blocks = m.blocks();
    const std::vector<uint8_t> bytes =
        is_row_major(data.sizes, data.strides) ? std::vector<uint8_t>() : to_dense<uint8_t>(data);
    const std::vector<float> scale = to_dense<float>(scales);
    const std::vector<float> zero = zero_points(zeros, n_, blocks, bits_);
    TBX_MODEL(data.numel() == n_ * blocks * (block_ / 8 * bits_),
              "{} bytes of integers for {} x {} in blocks of {}", data.numel(), n_, k_, block_);
    TBX_MODEL(static_cast<int64_t>(scale.size()) == n_ * blocks, "{} scales for {} columns of {} blocks",
              scale.size(), n_, blocks);
    TBX_MODEL(zero.empty() || zero.size() == scale.size(), "{} zero points for {} scales", zero.size(),
              scale.size());
    m.data = bytes.empty() ? static_cast<const uint8_t*>(data.data) : bytes.data();
    m.scales = scale.data();
    m.zeros = zero.empty() ? nullptr : zero.data();
    return QuantizedPanels(m);
  }

  void few_rows(const RunArgs& args, const QuantizedPanels& panels, const float* x, int64_t stride,
                float* totals) const {
    const int64_t rows = args.inputs[0].sizes[0], blocks = panels.blocks();
    if (panels.has_zeros())
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t b = 0; b < blocks; ++b) {
          const float* from = x + i * stride + b * block_;
          float sum = 0;
          for (int64_t j = 0; j < block_; ++j) sum += from[j];
          totals[i * blocks + b] = sum;
        }
    each_panel(args, panels, kTileRows, [&](int64_t p, int64_t first, int count, float* sums) {
      panels.multiply(p, x + first * stride, stride, totals + first * blocks, count, sums);
    });
  }

  void rows_of_bytes(const RunArgs& args, const QuantizedPanels& panels, const gemv::ByteRows& x) const {
    each_panel(args, panels, x.tile_rows(), [&](int64_t p, int64_t first, int count, float* sums) {
      x.multiply(panels, p, first, count, sums);
    });
  }

  /// Stores what `multiply(panel, first row, rows, sums)` gives for tiles of `most` rows at most.
  template <class Multiply>
  void each_panel(const RunArgs& args, const QuantizedPanels& panels, int64_t most,
                  const Multiply& multiply) const {
    const int64_t rows = args.inputs[0].sizes[0], tiles = (rows + most - 1) / most;
    auto some = [&](int64_t begin, int64_t end, int64_t first_tile, int64_t last_tile) {
      for (int64_t p = begin; p < end; ++p) {
        const int64_t first = p * panels.width(), here = std::min<int64_t>(panels.width(), n_ - first);
        for (int64_t t = first_tile; t < last_tile; ++t) {
          alignas(64) float sums[gemv::kMostTileRows * kMaxPanel];
          const int64_t i = rows * t / tiles;
          const int count = static_cast<int>(rows * (t + 1) / tiles - i);
          multiply(p, i, count, sums);
          for (int64_t r = 0; r < count; ++r) store(args, i + r, first, here, sums + r * panels.width());
        }
      }
    };
    const int64_t count = panels.count(), threads = tbb::this_task_arena::max_concurrency();
    if (threads == 1 || panels.bytes() * rows < kTaskWork.matrix_bytes) return some(0, count, 0, tiles);
    // One long run of memory per thread; of few panels each has some rows.
    const int64_t chunks = std::min(count, threads),
                  parts = std::clamp((threads + chunks - 1) / chunks, int64_t{1}, tiles);
    tbb::parallel_for(
        int64_t{0}, chunks * parts,
        [&](int64_t i) {
          const int64_t c = i / parts, part = i % parts;
          some(count * c / chunks, count * (c + 1) / chunks, tiles * part / parts,
               tiles * (part + 1) / parts);
        },
        tbb::static_partitioner());
  }

  /// Some columns of a row, with their bias.
  void store(const RunArgs& args, int64_t row, int64_t first, int64_t count, const float* sums) const {
    const TensorRef& y = args.outputs[0];
    float* to = static_cast<float*>(y.data) + row * y.strides[0] + first * y.strides[1];
    const TensorRef* bias = has_bias_ ? &args.inputs[4] : nullptr;
    const int64_t step = bias ? bias->strides.back() : 0;
    const float* added = bias ? static_cast<const float*>(bias->data) + first * step : nullptr;
    if (y.strides[1] == 1 && !added)
      std::copy_n(sums, count, to);
    else if (y.strides[1] == 1 && step == 1)
      for (int64_t j = 0; j < count; ++j) to[j] = sums[j] + added[j];
    else
      for (int64_t j = 0; j < count; ++j) to[j * y.strides[1]] = sums[j] + (added ? added[j * step] : 0);
  }

  void many_rows(const RunArgs& args, const QuantizedPanels& panels, const float* x, int64_t stride) const {
    const int64_t rows = args.inputs[0].sizes[0], blocks = (rows + kManyRows - 1) / kManyRows;
    direct::in_pieces(panels.count() * blocks, 2.0 * static_cast<double>(rows) * k_ * n_,
                      [&](int64_t begin, int64_t end) {
                        for (int64_t i = begin; i < end; ++i) {
                          const int64_t first = i % blocks * kManyRows;
                          const int64_t count = std::min(kManyRows, rows - first);
                          panel_of_rows(args, panels, i / blocks, x + first * stride, stride, first, count);
                        }
                      });
  }

  /// `count` rows times a panel.
  void panel_of_rows(const RunArgs& args, const QuantizedPanels& panels, int64_t panel, const float* x,
                     int64_t stride, int64_t first, int64_t count) const {
    auto& [matrix, sums] = Room::of_this_thread();
    const int64_t width = panels.width();
    std::fill_n(sums, count * width, 0.0f);
    for (int64_t begin = 0; begin < k_; begin += kDepth) {
      const int64_t depth = std::min(kDepth, k_ - begin);
      panels.expand(panel, begin, begin + depth, matrix);
      // What comes next arrives meanwhile, a part for each tile.
      const std::span<const std::byte> next = panels.part(panel, begin + depth, begin + 2 * kDepth);
      const int64_t tiles = (count + kTile - 1) / kTile, each = static_cast<int64_t>(next.size()) / tiles + 1;
      for (int64_t t = 0; t < tiles; ++t) {
        for (int64_t at = t * each; at < std::min<int64_t>((t + 1) * each, next.size()); at += 64)
          __builtin_prefetch(next.data() + at, 0, 2);
        QuantizedPanels::add(matrix, x + t * kTile * stride + begin, stride,
                             std::min(kTile, count - t * kTile), depth, sums + t * kTile * width);
      }
    }
    const int64_t column = panel * width;
    for (int64_t i = 0; i < count; ++i)
      store(args, first + i, column, std::min(width, n_ - column), sums + i * width);
  }

  PackedMatMulProblem p_;
  int64_t k_, n_, block_;
  int bits_;
  bool narrow_, has_bias_;
  std::optional<QuantizedPanels> panels_;
};

} // namespace

std::string supports_matmul_nbits(const Problem& problem, std::span<const OperandInfo> inputs,
                                  std::span<const OperandInfo> outputs, const Target&) {
  if (std::get<PackedMatMulProblem>(problem).work != RowWork{} || inputs.size() > 5)
    return "work before or behind the product";
  if (inputs[0].dtype != DType::f32 || outputs[0].dtype != DType::f32)
    return fmt::format("a product of {} that gives {}", name_of(inputs[0].dtype), name_of(outputs[0].dtype));
  return {};
}

std::unique_ptr<ExternKernel> make_matmul_nbits(const Problem& problem, std::span<const OperandInfo> inputs,
                                                std::span<const OperandInfo>) {
  return std::make_unique<MatMulNBits>(std::get<PackedMatMulProblem>(problem), inputs);
}

} // namespace tbx::extern_kernels
