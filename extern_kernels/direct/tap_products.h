// Convolutions of few results as one product for each group: each pixel of the input times all elements of
// the kernel, whose sums are then added where they belong. Vectors of results would be mostly empty.
#pragma once

#include "extern_kernels/direct/part_run.h"

namespace tbx::extern_kernels::direct {

/// Whether that is the least work, for weights of these sizes (-1: known at run time only, which says no).
/// Transposed convolutions, and others that take every pixel.
bool is_best_by_taps(const ConvProblem& problem, std::span<const int64_t> weights);

/// Whether a transposed convolution, of groups as well, is less work so than in tiles of results. `in`,
/// `out`: sizes of image and result, where -1 is known at run time only; `size`: bytes of a result.
bool is_less_by_taps(const ConvProblem& problem, std::span<const int64_t> weights,
                     std::span<const int64_t> in, std::span<const int64_t> out, int64_t size);

/// The product: a phase for each element of the kernel.
Part taps_as_phases(std::span<const int64_t> kernel);

/// Elements between the two steps: those of as many images as are computed at once.
int64_t tap_sums(const Shape& s, std::span<const int64_t> in, int64_t elements);

/// `weights`: [group, element of the kernel, result, channel]. `between` has tap_sums elements.
template <class T, class R>
void run_by_taps(const ConvProblem& problem, const Shape& s, std::span<const int64_t> kernel,
                 const Image<T>& x, const T* weights, const R* bias, const TensorRef& y, R* between);

} // namespace tbx::extern_kernels::direct
