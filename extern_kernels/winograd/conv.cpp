// Convolutions of 3 x 3 elements by Winograd's transforms: a tile of 2 x 2 results takes 16 products of
// channels instead of 36, one of 4 x 4 results 36 instead of 144. Each task transforms the input of some
// tiles, multiplies all of them by the transformed weights and transforms the sums back, with bias and
// post-operations: nothing that is transformed goes further than the cache of a core.
#include <fmt/format.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>

#include "base/rounding.h"
#include "extern_kernels/direct/operands.h"
#include "extern_kernels/scratch.h"
#include "extern_kernels/winograd/choice.h"
#include "extern_kernels/winograd/cut.h"
#include "extern_kernels/winograd/loops.h"
#include "extern_kernels/winograd/tiles.h"
#include "extern_kernels/winograd/transform.h"
#include "extern_kernels/winograd/weights.h"

namespace tbx::extern_kernels {
namespace winograd {
namespace {

using direct::Memory;

constexpr size_t kMostOps = 8;

class WinogradConv : public ExternKernel {
public:
  WinogradConv(const ConvProblem& p, int tile, const OperandInfo& weights)
      : p_(p), tile_(tile), products_(products_of(tile)), weights_(weights, tile), loops_(loops(tile)) {}

  std::string description() const override {
    return fmt::format("own Winograd F({0}x{0}, 3x3) {1}", tile_, to_string(Problem(p_)));
  }

  int64_t packed_bytes() const override { return weights_.bytes(); }
  bool reads(size_t input) const override { return input != 1; }

  void run(const RunArgs& args) const override {
    const TensorRef& y = args.outputs[0];
    if (y.numel() == 0) return;
    const Run run(*this, args);
    tbb::parallel_for(int64_t{0}, run.cut.blocks() * run.cut.parts, [&](int64_t i) {
      const int64_t part = i % run.cut.parts;
      run.task(i / run.cut.parts, run.cut.panels * part / run.cut.parts,
               run.cut.panels * (part + 1) / run.cut.parts);
    });
  }

private:
  /// One call of run().
  struct Run {
    const WinogradConv& kernel;
    const RunArgs& args;
    const TensorRef &x, &y;
    TileLine rows, columns;
    std::vector<float> bias; ///< none: empty
    Cut cut;
    int64_t line, product_step, sums_step;

    Run(const WinogradConv& k, const RunArgs& a)
        : kernel(k), args(a), x(a.inputs[0]), y(a.outputs[0]), rows(y.sizes[2], k.p_.dilations[0], k.tile_),
          columns(y.sizes[3], k.p_.dilations[1], k.tile_) {
      // Whole lines, and an odd number of them from row to row: powers of two would meet in one set of the
      // cache.
      line = (ceil_div(kernel.weights_.in_channels(), kLine) | 1) * kLine;
      if (kernel.p_.has_bias) bias = to_dense<float>(args.inputs[2]);
      const int64_t panels = kernel.weights_.panels(), size = sizeof(float);
      cut = cut_tasks(y.sizes[0] * rows.count() * columns.count(), panels,
                      kernel.products_ * (line + panels * kPanel) * size, kernel.weights_.bytes(),
                      tbb::this_task_arena::max_concurrency(), kernel.caches_);
      product_step = cut.block * line + kLine;
      sums_step = most_panels() * cut.block * kPanel + kLine;
    }

    int64_t channels_of(int64_t panel) const {
      return std::min<int64_t>(kPanel, kernel.weights_.out_channels() - panel * kPanel);
    }
    int64_t most_panels() const { return ceil_div(cut.panels, cut.parts); }

    /// The tiles of a block, with panels from `begin` to `end`.
    void task(int64_t block, int64_t begin, int64_t end) const {
      const int64_t first = block * cut.block, count = std::min(cut.block, cut.tiles - first);
      Parts parts;
      Memory counted(nullptr);
      take(counted, parts);
      const Scratch scratch(counted.used());
      Memory memory(scratch.data());
      take(memory, parts);
      std::fill_n(parts.zeros, line, 0.0f);
      for (int64_t t = 0; t < count; ++t) {
        const float* pixels[36];
        find_pixels(place(first + t), parts, pixels);
        kernel.loops_.transform_input(pixels, kernel.weights_.in_channels(), parts.input + t * line,
                                      product_step);
      }
      multiply(parts, count, begin, end);
      TileOp ops[kMostOps];
      for (int64_t t = 0; t < count; ++t) write(parts, place(first + t), t, begin, end, ops);
    }

  private:
    struct Parts {
      float *zeros, *pixels, *input, *sums, *tile;
    };
    void take(Memory& memory, Parts& p) const {
      p.zeros = memory.take<float>(line);
      p.pixels = memory.take<float>(kernel.products_ * kernel.weights_.in_channels());
      p.input = memory.take<float>(kernel.products_ * product_step);
      p.sums = memory.take<float>(kernel.products_ * sums_step);
      p.tile = memory.take<float>(kResults * kPanel);
    }

    struct Place {
      int64_t image, row, column; ///< of the first result
    };
    Place place(int64_t tile) const {
      const int64_t across = columns.count(), down = rows.count();
      return {tile / across / down, rows.first(tile / across % down), columns.first(tile % across)};
    }

    /// Channels of the pixels that a tile takes; those that do not lie side by side are copied.
    void find_pixels(const Place& at, const Parts& parts, const float** pixels) const {
      const ConvProblem& p = kernel.p_;
      const int span = span_of(kernel.tile_);
      const float* image = static_cast<const float*>(x.data) + at.image * x.strides[0];
      for (int i = 0; i < span; ++i) {
        const int64_t row = at.row - p.pads_begin[0] + i * p.dilations[0];
        for (int j = 0; j < span; ++j) {
          const int64_t column = at.column - p.pads_begin[1] + j * p.dilations[1];
          const bool inside = row >= 0 && row < x.sizes[2] && column >= 0 && column < x.sizes[3];
          const float*& pixel = pixels[i * span + j];
          pixel = inside ? image + row * x.strides[2] + column * x.strides[3] : parts.zeros;
          if (!inside || x.strides[1] == 1) continue;
          float* copy = parts.pixels + (i * span + j) * kernel.weights_.in_channels();
          for (int64_t c = 0; c < kernel.weights_.in_channels(); ++c) copy[c] = pixel[c * x.strides[1]];
          pixel = copy;
        }
      }
    }

    static FetchLines fetch_nothing(const float* here) { return {here, here, 0}; }

    /// What is fetched beside part `c` of the `cuts` products of a panel: the next panel of the task. All of
    /// a task's panels are more than a core's own cache.
    FetchLines fetch_next(int64_t product, int64_t panel, int64_t begin, int64_t end, int64_t c,
                          int64_t cuts) const {
      if (++panel == end) ++product, panel = begin;
      if (product == kernel.products_ || c > 1) return fetch_nothing(kernel.weights_.transformed());
      static_assert(kPanel == 2 * FetchLines::kFloats); // as many lines as two for each term
      const int64_t half = kernel.weights_.in_channels() * FetchLines::kFloats;
      const float* next = panel_of(product, panel);
      if (cuts == 1) return {next, next + half};
      return {next + c * half, next + c * half};
    }

    const float* panel_of(int64_t product, int64_t panel) const {
      return kernel.weights_.transformed() + (product * cut.panels + panel) * kernel.weights_.panel_size();
    }

    void multiply(const Parts& parts, int64_t count, int64_t begin, int64_t end) const {
      const int64_t depth = kernel.weights_.in_channels(), cuts = ceil_div(count, kRows);
      for (int64_t product = 0; product < kernel.products_; ++product)
        for (int64_t panel = begin; panel < end; ++panel)
          for (int64_t c = 0; c < cuts; ++c) {
            const int64_t first = count * c / cuts, last = count * (c + 1) / cuts;
            kernel.loops_.multiply(
                parts.input + product * product_step + first * line, line, static_cast<int>(last - first),
                depth, panel_of(product, panel), channels_of(panel),
                parts.sums + product * sums_step + ((panel - begin) * cut.block + first) * kPanel, false,
                fetch_next(product, panel, begin, end, c, cuts));
          }
    }

    /// `ops`: room for the post-operations.
    void write(const Parts& parts, const Place& at, int64_t tile, int64_t begin, int64_t end,
               TileOp* ops) const {
      const int m = kernel.tile_;
      const std::vector<PostOp>& post_ops = kernel.p_.post_ops;
      TileOutput out;
      float* results[kResults];
      for (size_t k = 0; k < post_ops.size(); ++k) {
        ops[k].kind = post_ops[k].kind;
        ops[k].alpha = post_ops[k].alpha;
        ops[k].beta = post_ops[k].beta;
      }
      for (int i = 0; i < m * m; ++i) {
        const int64_t row = at.row + i / m * kernel.p_.dilations[0],
                      column = at.column + i % m * kernel.p_.dilations[1];
        const bool inside = row < y.sizes[2] && column < y.sizes[3];
        auto find = [&](const TensorRef& t) {
          auto step = [&](int d) { return t.sizes[d] == 1 ? 0 : t.strides[d]; };
          return static_cast<float*>(t.data) + at.image * step(0) + row * step(2) + column * step(3);
        };
        results[i] = inside ? find(y) : nullptr;
        for (size_t k = 0; k < post_ops.size(); ++k)
          if (post_ops[k].operand >= 0) {
            const TensorRef& t = args.inputs[post_ops[k].operand];
            ops[k].channel_step = t.sizes[1] == 1 ? 0 : t.strides[1];
            ops[k].operand[i] = inside ? find(t) : nullptr;
          }
      }
      out.ops = {ops, post_ops.size()};
      out.sums_step = sums_step;
      for (int64_t panel = begin; panel < end; ++panel) {
        out.first = panel * kPanel;
        out.channels = channels_of(panel);
        out.sums = parts.sums + ((panel - begin) * cut.block + tile) * kPanel;
        out.bias = bias.empty() ? nullptr : bias.data() + out.first;
        for (int i = 0; i < m * m; ++i)
          out.results[i] =
              results[i] ? (y.strides[1] == 1 ? results[i] + out.first : parts.tile + i * kPanel) : nullptr;
        if (!kernel.loops_.transform_output(out)) write_plain(parts, at, panel, out);
        for (int i = 0; y.strides[1] != 1 && i < m * m; ++i)
          for (int64_t c = 0; results[i] && c < out.channels; ++c)
            results[i][(out.first + c) * y.strides[1]] = parts.tile[i * kPanel + c];
      }
    }

    /// A tile that an infinity or a NaN reaches, or sums that overflow: the transforms would carry it to
    /// results whose own pixels are finite. Such tiles are computed element by element of the kernel.
    void write_plain(const Parts& parts, const Place& at, int64_t panel, TileOutput out) const {
      const int64_t m = kernel.tile_, span = span_of(kernel.tile_);
      const int64_t depth = kernel.weights_.in_channels();
      const float* weights = kernel.weights_.plain() + panel * 9 * depth * kPanel;
      std::vector<float> taken(static_cast<size_t>(m * m * depth));
      float sums[kResults * kPanel];
      const float* pixels[36];
      find_pixels(at, parts, pixels);
      for (int e = 0; e < 9; ++e) {
        for (int64_t i = 0; i < m * m; ++i)
          std::copy_n(pixels[(i / m + e / 3) * span + i % m + e % 3], depth, taken.data() + i * depth);
        for (int64_t i = 0; i < m * m; i += kRows)
          kernel.loops_.multiply(taken.data() + i * depth, depth,
                                 static_cast<int>(std::min(kRows, m * m - i)), depth,
                                 weights + e * depth * kPanel, channels_of(panel), sums + i * kPanel, e > 0,
                                 fetch_nothing(weights));
      }
      out.sums = sums;
      out.sums_step = kPanel;
      kernel.loops_.store(out);
    }
  };

  ConvProblem p_;
  int tile_, products_;
  Weights weights_;
  const Loops& loops_;
  const Caches caches_ = host_caches();
};

Sizes sizes_of(std::span<const OperandInfo> inputs, const OperandInfo& result) {
  const std::vector<int64_t>&w = inputs[1].sizes, &y = result.sizes;
  return {y[0], w[1], w[0], y[2], y[3]};
}

} // namespace
} // namespace winograd

std::string supports_winograd_conv(const Problem& problem, std::span<const OperandInfo> inputs,
                                   std::span<const OperandInfo> outputs, const Target&) {
  const auto& p = std::get<ConvProblem>(problem);
  const OperandInfo& w = inputs[1];
  const bool is_three = p.spatial_rank == 2 && w.sizes[2] == 3 && w.sizes[3] == 3;
  if (!is_three || p.transposed || p.strides != std::vector<int64_t>{1, 1} || p.group != 1)
    return "not 3 x 3 elements of one group with strides of 1";
  for (size_t d = 0; d < 2; ++d)
    if (p.pads_begin[d] < 0 || p.pads_end[d] < 0) return "negative padding";
  if (!w.constant || w.strides.empty()) return "weights that change";
  if (w.dtype != DType::f32 && !is_half(w.dtype)) return fmt::format("{} weights", name_of(w.dtype));
  for (size_t i = 0; i < inputs.size(); ++i)
    if (i != 1 && inputs[i].dtype != DType::f32 && inputs[i].dtype != DType::undefined)
      return fmt::format("{} operands", name_of(inputs[i].dtype));
  if (outputs[0].dtype != DType::f32) return fmt::format("{} results", name_of(outputs[0].dtype));
  if (p.post_ops.size() > winograd::kMostOps) return "many post-operations";
  for (const PostOp& op : p.post_ops) {
    if (const char* refused = winograd::refused_op(op.kind)) return refused;
    if (op.operand >= 0 && inputs[op.operand].sizes.size() != 4) return "an operand of another rank";
  }
  return winograd::choose(p, winograd::sizes_of(inputs, outputs[0])).reason;
}

std::unique_ptr<ExternKernel> make_winograd_conv(const Problem& problem, std::span<const OperandInfo> inputs,
                                                 std::span<const OperandInfo> outputs) {
  const auto& p = std::get<ConvProblem>(problem);
  const int tile = winograd::choose(p, winograd::sizes_of(inputs, outputs[0])).tile;
  return std::make_unique<winograd::WinogradConv>(p, tile, inputs[1]);
}

} // namespace tbx::extern_kernels
