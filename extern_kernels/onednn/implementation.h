// Which of oneDNN's implementations computes a primitive: its order of preference, less those that are
// refused.
#pragma once

#include <dnnl.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tbx::extern_kernels::onednn {

/// What the conditions of the table of refusals (refusals.cpp) look at.
struct Use {
  dnnl::primitive::kind kind = dnnl::primitive::kind::undef;
  bool has_bias = false, has_post_ops = false;
  std::span<const int64_t> kernel, strides; ///< convolutions: one entry per spatial dimension
  bool has_sum = false;                     ///< what lies in the destination is added
  bool has_zero_point = false;              ///< of the source, or of the other operand
  bool large_sums = false;                  ///< of bytes, which may reach 2^24
  bool pads_dilated = false;                ///< convolutions: a dimension has padding and a dilation above 1
  bool has_empty_window = false;    ///< convolutions: a result for which no element of the image counts
  bool interleaved_batches = false; ///< products: rows of several matrices take turns in an operand
  bool repeats_weights = false;     ///< products: one matrix of weights is multiplied by several matrices
  int64_t pixels = 0;               ///< convolutions: results per image and channel
  int64_t pixel_bytes = 0; ///< convolutions: of the channels that a result takes, as they are multiplied
  bool pads_last = false;  ///< convolutions: the last dimension has padding
  /// Convolutions: as many elements stand before the first window of a line as stay unread behind the last
  /// one.
  bool pads_as_left_over = false;
  int64_t outer_pad = 0; ///< convolutions: the most elements that another dimension is padded by on a side
};

/// The implementation taken for one primitive.
struct Implementation {
  std::string name;          ///< as the library calls it: "brg_conv:avx512_core+brgconv_strided:avx512_core"
  bool is_reference = false; ///< a plain loop: anything else that computes the problem is faster
  std::vector<std::string> refused; ///< names and reasons of those before it
  /// For explain: the name, a mark where it is a reference, the refusals.
  std::string text() const;
};

/// True for the names of the library's plain loops. Transposed convolutions that end in "conv:any" compute
/// the products by a fast kernel, but bias and post-operations by a plain loop.
bool is_reference(std::string_view name, const Use& use);

/// The version of the library that is linked, as 100 * major + minor.
int library_version();

/// Why this version of the library must not run the implementation; empty: it may (refusals.cpp).
std::string refusal(std::string_view name, const Use& use, int version = library_version());

/// Moves `descriptor` on to the first implementation that is not refused. Where all are, or the descriptor is
/// empty, `name` is empty: the descriptor must not be used.
Implementation choose(dnnl::primitive_desc& descriptor, const Use& use);

} // namespace tbx::extern_kernels::onednn
