// Convolutions whose groups fill no vector: results side by side along a line of the image, channel by
// channel.
#pragma once

#include "extern_kernels/direct/part_run.h"

namespace tbx::extern_kernels::direct {

/// Whether vectors along lines do more at once than vectors of channels would, for these weights (sizes known
/// at run time only say no): all results together fill none of `vector` bytes.
bool is_best_by_lines(const ConvProblem& problem, std::span<const OperandInfo> inputs, DType result,
                      int64_t vector);
/// Lines so short that their vectors would be mostly empty, too: of `width` results with `step` between those
/// of a phase.
bool is_short_line(int64_t width, int64_t step, int64_t size);

/// One part of one phase. `x`: the input as it is, from which `zero` is taken; `weights`: [group, channel,
/// tap, result].
template <class T> struct LineWork {
  const Geometry& geometry;
  const Part& part;
  const Shape& s;
  const TensorRef& x;
  T zero;
  const T *weights, *bias;
  const TensorRef& y;
};
template <class T> void run_by_lines(const LineWork<T>& work);

} // namespace tbx::extern_kernels::direct
