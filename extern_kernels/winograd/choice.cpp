#include "extern_kernels/winograd/choice.h"

#include "base/rounding.h"

#include <fmt/format.h>

#include "extern_kernels/winograd/tiles.h"
#include "extern_kernels/winograd/transform.h"

namespace tbx::extern_kernels::winograd {
namespace {

constexpr int64_t kLanes = 16, kPoints = 32;

/// All in products of whole vectors, of which a core makes one at a time, or two: then transforms are as many
/// more products. So these lie between what was measured on Zen 4 (140, 380) and on Zen 5: the transforms of
/// a tile for each vector of channels in and out, and what comes from memory with each product at most.
/// Weights of large networks come from there in every run.
constexpr double kTransforms[] = {200, 540}, kEfficiency = 0.95, kBytes = 6;

double reading(int64_t products, double depth, double vectors) {
  return static_cast<double>(products) * depth * vectors * kLanes * sizeof(float) / kBytes;
}

double transformed_work(const Sizes& s, int64_t tiles, int tile) {
  const double depth = static_cast<double>(s.in_channels),
               vectors = static_cast<double>(ceil_div(s.out_channels, kLanes));
  const double each =
      products_of(tile) * depth * vectors / kEfficiency +
      kTransforms[tile == 4] * (static_cast<double>(ceil_div(s.in_channels, kLanes)) + vectors);
  return each * static_cast<double>(tiles) + reading(products_of(tile), depth, vectors);
}

double direct_work(const Sizes& s) {
  const double depth = static_cast<double>(s.in_channels),
               vectors = static_cast<double>(ceil_div(s.out_channels, kLanes));
  return 9 * depth * vectors * static_cast<double>(s.images * s.height * s.width) +
         reading(9, depth, vectors);
}

} // namespace

Choice choose(const ConvProblem& p, Sizes s) {
  // With fewer, the bound of the error is above that of adding all products one after the other: the
  // transforms of F(2) make terms (8/3)² times as large, of which there are a ninth (docs/precision.md).
  constexpr int64_t kLeastChannels = 27;
  // A model is no measurement.
  constexpr double kGain = 0.85;
  constexpr int64_t kFewResults = 8; // most of a panel of weights would be empty
  if (s.out_channels >= 0 && s.out_channels < kFewResults)
    return {0, fmt::format("{} channels of results: less than {}", s.out_channels, kFewResults)};
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
    const int64_t tiles = s.images * TileLine(s.height, p.dilations[0], tile).count() *
                          TileLine(s.width, p.dilations[1], tile).count();
    const double work = transformed_work(s, tiles, tile);
    if (least == 0 || work < least) least = work, best.tile = tile;
  }
  if (least < kGain * direct) return best;
  return {0, fmt::format("{:.2f} of the work of a direct convolution, by its sizes", least / direct)};
}

} // namespace tbx::extern_kernels::winograd
