// Convolutions of few results as one product: each pixel of the input times all elements of the kernel, whose sums
// are then added where they belong. Vectors of results would be mostly empty.
#pragma once

#include "extern_kernels/direct/part_run.h"

namespace tbx::extern_kernels::direct {

/// Whether that is the least work, for weights of these sizes (-1: known at run time only, which says no).
/// Transposed convolutions, and others that take every pixel.
bool is_best_by_taps(const ConvProblem& problem, std::span<const int64_t> weights);

/// The product: a phase for each element of the kernel.
Part taps_as_phases(std::span<const int64_t> kernel);

/// Elements between the two steps: those of as many images as are computed at once.
int64_t tap_sums(const Shape& s, std::span<const int64_t> in, int64_t elements);

/// `weights`: [element of the kernel, result, channel]. `between` has tap_sums elements.
template <class T>
void run_by_taps(const ConvProblem& problem, const Shape& s, std::span<const int64_t> kernel, const Image<T>& x,
                 const T* weights, const T* bias, const TensorRef& y, T* between);

} // namespace tbx::extern_kernels::direct
