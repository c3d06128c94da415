// Convolutions as sums over taps: which elements of the input each element of the result is made of.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "extern_kernels/problem.h"

namespace tbx::extern_kernels::direct {

/// Results that are made alike. Point q of a grid takes the input at q * in_step + offset for each tap, and
/// gives one result for each phase, at q * out_step + shift.
struct Part {
  std::vector<int64_t> shifts;  ///< [phases, rank]
  std::vector<int64_t> offsets; ///< [taps, rank]
  std::vector<int64_t> kernel;  ///< [phases, taps]: the element of the kernel; -1: the phase has no such tap
  int64_t taps = 0, phases = 0;
  /// The points of the grid that give results of these sizes: the first one of each dimension, and how many.
  void grid(std::span<const int64_t> out, std::span<const int64_t> out_step, std::vector<int64_t>& first,
            std::vector<int64_t>& count) const;
};

struct Geometry {
  std::vector<int64_t> in_step, out_step;
  std::vector<Part> parts;
};

/// The largest whole number below a / b.
inline int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }

/// Which pixels some tap takes: strides and dilations pass over others, which a copy of the image leaves out.
class TakenPixels {
public:
  explicit TakenPixels(const Geometry& geometry);

  struct Places {
    std::vector<std::vector<int64_t>> taken; ///< by dimension, ascending
    std::vector<std::vector<int64_t>>
        index; ///< of all but the last dimension: place -> where it is in `taken`
  };
  /// All pixels.
  static Places all(std::span<const int64_t> in);
  /// Of an image of these sizes, for a result of these.
  Places places(std::span<const int64_t> in, std::span<const int64_t> out) const;
  /// The geometry that has the taken pixels alone along the last dimension.
  Geometry geometry_of_taken(Geometry geometry) const;

private:
  std::vector<int64_t> steps_;
  std::vector<std::vector<int64_t>> offsets_; ///< by dimension, each once; none: all pixels are taken
  std::vector<int64_t> remainders_;           ///< of those of the last dimension by the step, ascending
};

/// Phases and taps beyond these are left to the plain loops.
inline constexpr int64_t kMaxPhases = 1024, kMaxTaps = 1 << 14;

/// A transposed convolution with stride s has s phases along each dimension: results that are s apart take
/// the same taps. Phases are parts of their own, or, where that is less work for `columns` results of a phase
/// in panels of `panel`, columns of one product over the taps of all.
Geometry geometry_of(const ConvProblem& problem, std::span<const int64_t> kernel, int64_t columns,
                     int64_t panel);

/// Why there is no such geometry; empty: there is.
const char* refused_geometry(const ConvProblem& problem, std::span<const int64_t> kernel);

} // namespace tbx::extern_kernels::direct
