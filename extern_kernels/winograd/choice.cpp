#include "extern_kernels/winograd/choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "extern_kernels/winograd/loops.h"
#include "extern_kernels/winograd/transform.h"

namespace tbx::extern_kernels::winograd {
namespace {

constexpr int64_t kLanes = 16, kPoints = 32;

double round_up(int64_t n, int64_t step) { return static_cast<double>((n + step - 1) / step * step); }

/// All in products of whole vectors. What transforms take was measured on Zen 4, for vectors of channels in
/// and out; weights come from memory once.
double transformed_work(const Sizes& s, int64_t tiles, int tile) {
  const double transforms = tile == 2 ? 80 : 280, bytes_at_once = 4;
  const double panels = round_up(s.out_channels, kPanel) / kLanes;
  const double depth = static_cast<double>(s.in_channels);
  const double products = products_of(tile) * depth * panels * static_cast<double>(tiles);
  const double turned =
      transforms * (round_up(s.in_channels, kLanes) / kLanes + panels) * static_cast<double>(tiles);
  const double weights = products_of(tile) * depth * panels * kLanes * sizeof(float) / bytes_at_once;
  return products + turned + weights;
}

double direct_work(const Sizes& s) {
  constexpr double kEfficiency = 0.85, bytes_at_once = 4;
  const double panels = round_up(s.out_channels, kLanes) / kLanes, depth = static_cast<double>(s.in_channels);
  const double weights = 9 * depth * panels * kLanes * sizeof(float) / bytes_at_once;
  return 9 * depth * panels * static_cast<double>(s.images * s.height * s.width) / kEfficiency + weights;
}

} // namespace

int64_t tiles_along(int64_t size, int64_t dilation, int tile) {
  int64_t tiles = 0;
  for (int64_t line = 0; line < std::min(size, dilation); ++line)
    tiles += ((size - line + dilation - 1) / dilation + tile - 1) / tile;
  return tiles;
}

Choice choose(const ConvProblem& p, Sizes s) {
  // With fewer, the bound of the error is above that of adding all products one after the other: the
  // transforms of F(2) make terms (8/3)² times as large, of which there are a ninth (docs/precision.md).
  constexpr int64_t kLeastChannels = 27;
  // A model is no measurement.
  constexpr double kGain = 0.85;
  if (s.in_channels < kLeastChannels)
    return {0, fmt::format("{} channels: sums of {} and more lose no digits", s.in_channels, kLeastChannels)};
  if (s.images < 0) s.images = 1;
  if (s.height < 0) s.height = kPoints;
  if (s.width < 0) s.width = kPoints;
  if (s.out_channels < 0) s.out_channels = s.in_channels;
  Choice best;
  const double direct = direct_work(s);
  double least = 0;
  for (const int tile : {2, 4}) {
    if (tile > 2 && p.precision == Precision::strict) break;
    const int64_t tiles =
        s.images * tiles_along(s.height, p.dilations[0], tile) * tiles_along(s.width, p.dilations[1], tile);
    const double work = transformed_work(s, tiles, tile);
    if (least == 0 || work < least) least = work, best.tile = tile;
  }
  if (least < kGain * direct) return best;
  return {0, fmt::format("{:.2f} of the work of a direct convolution, by its sizes", least / direct)};
}

} // namespace tbx::extern_kernels::winograd
