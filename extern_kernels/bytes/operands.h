// Operands of products of 8-bit integers in the form that the loops read.
#pragma once

#include <memory>
#include <vector>

#include "extern_kernels/bytes/tile.h"
#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels::bytes {

/// Numbers that are read behind the last term where it fills no group: they are multiplied by 0.
inline constexpr int64_t kSlack = 4;

/// The form whose rows have these numbers.
template <class N> inline constexpr Form kFormOf = sizeof(N) == 2 ? Form::pairs : Form::quads;

/// Whether weights are known, and can be packed once.
inline bool is_known(const OperandInfo& w) { return w.constant && !w.strides.empty(); }
inline TensorRef tensor_of(const OperandInfo& w) {
  return {const_cast<std::byte*>(w.constant->data), w.dtype, w.sizes, w.strides};
}

/// The kernel with the form that is the fastest one for these weights; `quads`: it may be one of quads.
template <template <class> class Kernel, class Problem>
std::unique_ptr<ExternKernel> fastest(const Problem& problem, const OperandInfo& weights, bool quads) {
  if (const Form form = best_form(); quads && form != Form::pairs) {
    auto kernel = std::make_unique<Kernel<uint8_t>>(problem, form);
    if (kernel->suits(weights)) {
      kernel->keep(weights);
      return kernel;
    }
  }
  auto kernel = std::make_unique<Kernel<int16_t>>(problem, Form::pairs);
  kernel->keep(weights);
  return kernel;
}

/// A zero point as such a number; bytes are counted from 0 on.
template <class N> int32_t zero_number(DType type, int32_t zero) {
  if (kFormOf<N> == Form::pairs) return 0;
  return type == DType::i8 ? zero + 128 : zero;
}

/// to[i] = from[i * step], bytes of this type, as numbers of a row. Returns the sum of them less their zero
/// points.
template <class N>
int32_t to_numbers(const void* from, DType type, int64_t step, int64_t count, int32_t zero, N* to);

/// Where the weights of a product lie, in elements.
struct WeightSteps {
  int64_t column = 0;
  std::vector<int64_t> places; ///< the first term of each place
  std::vector<int64_t> terms;  ///< the terms of a place, from there
};

/// Whether bounded quads are faster than pairs with weights like those of this panel: bounds are mostly above
/// what rows have, and places have whole vectors of terms.
bool has_high_bounds(const int8_t* panel, const Terms& terms);

/// Of a panel, with what stands before that which multiply() reads: of quads the sums of its columns.
int64_t panel_bytes(Form form, const Terms& terms);
int64_t panel_head(Form form);

/// Panel number `panel` out of weights of `columns` columns from `from` on; 0 beyond the terms of a place and
/// beyond the last column. Unsigned weights of quads become signed ones, less 128.
void pack_panel(Form form, int64_t panel, int64_t columns, const void* from, DType type,
                const WeightSteps& steps, int8_t* to);

/// Planes of bytes of this type to channels that lie side by side, as numbers of a row: `count` pixels one
/// after the other, channels `channel_step` apart, to[pixel * channels + channel]. As many channels as fill
/// whole vectors, which is returned. `end`: where the memory of the image ends.
template <class N>
int64_t turn(const void* from, DType type, int64_t channel_step, int64_t count, int64_t channels,
             int32_t zero, const void* end, N* to);

} // namespace tbx::extern_kernels::bytes
