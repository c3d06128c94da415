#include "extern_kernels/onednn/tile_conv.h"

#include <algorithm>

#include "base/strides.h"
#include "extern_kernels/onednn/common.h"

namespace tbx::extern_kernels::onednn {

using dnnl::memory;

namespace {

std::optional<bytes::TileWork> work_behind(const ConvProblem& p, const ScaledSums& sums) {
  std::vector<PostOp> ops;
  append_all(std::span(p.post_ops).subspan(sums.post_ops), DType::u8,
             [&](const PostOp& op) { ops.push_back(op); });
  return bytes::TileWork::of(ops);
}

/// Pixels one behind the other, of u8.
bool is_plain(const TensorRef& t) { return t.dtype == DType::u8 && is_channels_last(t.sizes, t.strides); }

bool is_zero(const std::vector<int64_t>& pads) {
  return std::ranges::all_of(pads, [](int64_t n) { return n == 0; });
}

} // namespace

bool TileConv::fits(const ConvProblem& p, const ScaledSums& sums, std::span<const TensorRef> in,
                    const TensorRef& out) {
  const std::span<const int64_t> weights = in[1].sizes;
  if (!has_tiles(DType::i8) || !bytes::has_byte_tiles()) return false;
  if (p.spatial_rank != 2 || p.transposed || p.group != 1 || p.x_zero >= 0 || p.has_bias) return false;
  if (weights[2] != 1 || weights[3] != 1 || !is_zero(p.pads_begin) || !is_zero(p.pads_end)) return false;
  if (weights[0] % bytes::kTileColumns != 0 || weights[1] % bytes::kTileTerms != 0) return false;
  if (!is_plain(in[0]) || !is_plain(out) || out.numel() < bytes::kTileRows * weights[0]) return false;
  const auto work = work_behind(p, sums);
  if (!sums.has_scale() || !work) return false;
  if (work->operand < 0) return true;
  const TensorRef& operand = in[work->operand];
  return operand.sizes.size() == out.sizes.size() && std::ranges::equal(operand.sizes, out.sizes) &&
         is_plain(operand);
}

memory::desc TileConv::layout(std::span<const int64_t> sizes) {
  return memory::desc({sizes.begin(), sizes.end()}, memory::data_type::s8, memory::format_tag::OIhw16i16o4i);
}

TileConv::TileConv(const ConvProblem& p, const ScaledSums& sums, memory weights)
    : sums_(sums), work_(*work_behind(p, sums)), strides_(p.strides), weights_(std::move(weights)) {}

void TileConv::run(const RunArgs& args) const {
  const TensorRef &x = args.inputs[0], &y = args.outputs[0];
  auto input = [&](int k) { return k < 0 ? nullptr : args.inputs[k].data; };
  const int64_t channels = x.sizes[1], line = x.sizes[3] * channels;
  bytes::TileProduct p;
  p.rows = y.numel() / y.sizes[1];
  p.depth = channels;
  p.columns = y.sizes[1];
  p.a = static_cast<const uint8_t*>(x.data);
  if (strides_ != std::vector<int64_t>{1, 1}) p.pixels = y.sizes[3];
  p.lines = y.sizes[2];
  p.pixel_step = strides_[1] * channels;
  p.line_step = strides_[0] * line;
  p.image_step = x.sizes[2] * line;
  p.weights = static_cast<const int8_t*>(weights_.get_data_handle());
  p.scale = sums_.factor ? sums_.factor : static_cast<const float*>(input(sums_.scale));
  p.is_of_columns = sums_.is_of_columns;
  p.bias = static_cast<const float*>(input(sums_.bias));
  p.work = work_;
  p.operand = static_cast<const uint8_t*>(input(work_.operand));
  p.result = static_cast<uint8_t*>(y.data);
  p.run();
}

} // namespace tbx::extern_kernels::onednn
