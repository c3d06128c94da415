// Implementations of oneDNN that give wrong results, by version. Each line is one known defect: what it does,
// where, and the release that is without it. Tests: tests/unit/library_refusals_test.cpp.
#include <algorithm>
#include <numeric>

#include "extern_kernels/onednn/implementation.h"

namespace tbx::extern_kernels::onednn {
namespace {

/// Versions as 100 * major + minor.
struct Refusal {
  dnnl::primitive::kind kind;
  std::string_view first, part; ///< what the implementation's name begins with and contains
  int since, before;            ///< the versions that have the defect
  bool (*applies)(const Use&);
  const char* why;
};

/// The library may compute row after row of a kernel (outermost spatial dimensions only). Where strides skip
/// the last row, nothing is left to add when bias and post-operations are due: they are applied to 0 and
/// replace the sum. It does so where a block of packed weights is larger than a cache, by an estimate that is
/// not to be seen from outside.
bool may_end_in_empty_row(const Use& use) {
  if (!use.has_bias && !use.has_post_ops) return false;
  for (size_t d = 0; d + 1 < use.kernel.size(); ++d)
    if (use.kernel[d] > 1 && use.strides[d] > 1) return true;
  return false;
}

bool pads_dilated_with_zero_point(const Use& use) { return use.has_zero_point && use.pads_dilated; }

/// Seen where the padding before a line and the negative one behind it that follows from the sizes are 0
/// together.
bool pads_as_left_over(const Use& use) { return use.pads_as_left_over; }

/// What of the padding of lines counts as zero points is kept in memory that is too small where lines have no
/// padding themselves, and is read at the wrong place where there are four padded lines and more on a side.
bool pads_lines_with_zero_point(const Use& use) {
  return use.has_zero_point && use.outer_pad > 0 && (!use.pads_last || use.outer_pad > 3);
}

/// Pixels that do not fill the 64 bytes of a row of a tile are multiplied several at a time, where kernel and
/// stride are multiples of that number.
bool multiplies_pixels_together(const Use& use) {
  if (use.kernel.empty() || use.strides.empty() || use.pixel_bytes % 64 == 0) return false;
  const int64_t together = std::gcd(use.kernel.back(), use.strides.back()) * use.pixel_bytes;
  return together > 64 && together % 64 == 0;
}

/// Tiles (AMX) of products add zero points behind the conversion to float32, all other kernels before it.
bool rounds_before_zero_points(const Use& use) { return use.has_zero_point && use.large_sums; }

/// Tiles (AMX) multiply copies of blocks of lines and planes. Room is made for what kernels read of them, but
/// what strides pass over is copied as well. The last dimension has room for all of it.
bool passes_lines(const Use& use) {
  for (size_t d = 0; d + 1 < use.kernel.size(); ++d)
    if (use.strides[d] > use.kernel[d]) return true;
  return false;
}

/// Tiles of one pixel's kernels have as many rows as divide the results of an image, of 9 to 16 the most.
/// From three tiles on four are stored at a time.
bool has_three_tiles(const Use& use) {
  for (int64_t rows = 16; rows > 8; --rows)
    if (use.pixels % rows == 0) return use.pixels == 3 * rows;
  return false;
}

bool has_empty_window(const Use& use) { return use.has_empty_window; }

/// Instructions of SSE that read memory and add want addresses at multiples of 16 bytes. Destinations are
/// what users bind, or slices of other tensors.
bool always(const Use&) { return true; }
bool adds_destination(const Use& use) { return use.has_sum; }
bool adds_bias_in_memory(const Use& use) { return use.has_sum && use.has_bias; }

bool interleaves_batches(const Use& use) { return use.interleaved_batches; }

bool repeats_weights(const Use& use) { return use.repeats_weights; }

/// Later than any version there is: nobody has looked for a release without the defect.
constexpr int kOpen = 9999;

constexpr Refusal kRefusals[] = {
    // Behind "conv:any" the same kernel computes the sums alone.
    {dnnl::primitive::kind::deconvolution, "brg_conv:", "brgconv_strided", 300, 303, may_end_in_empty_row,
     "bias and post-operations may replace sums of strided kernels"},
    // Seen on tile registers alone (AMX). What of the padding counts as zero points is told wrongly.
    {dnnl::primitive::kind::convolution, "jit:", "avx512_core_amx", 300, kOpen, pads_dilated_with_zero_point,
     "zero points of padded, dilated kernels"},
    {dnnl::primitive::kind::convolution, "brgconv:", "", 300, kOpen, pads_as_left_over,
     "what is added is lost, or crashes, where as much is padded before a line as is left over behind it"},
    {dnnl::primitive::kind::convolution, "jit:", "avx512_core_amx", 300, kOpen, pads_lines_with_zero_point,
     "zero points of padded lines: wrong, or other memory is overwritten"},
    {dnnl::primitive::kind::convolution, "brgconv:", "avx512_core_amx", 300, kOpen,
     multiplies_pixels_together,
     "wrong sums where pixels that fill no row of a tile are multiplied together"},
    // get_inp_size of brgemm_conv_utils takes the smaller of kernel and stride, that of brgemm_conv the
    // stride.
    {dnnl::primitive::kind::convolution, "brgconv:", "avx512_core_amx", 300, kOpen, passes_lines,
     "strides above the kernel: copied images are larger than the memory for them"},
    // init_conf of jit_avx512_core_amx_1x1_conv_kernel in 3.2: 27, 33, 36, 39, 42, 45 and 48 results of an
    // image.
    {dnnl::primitive::kind::convolution, "jit_1x1:", "avx512_core_amx", 300, kOpen, has_three_tiles,
     "writes a fourth tile of results behind the three of an image"},
    // Seen with an image of one line, dilations of 2 and padding of 3.
    {dnnl::primitive::kind::convolution, "brgconv:", "avx512_core_amx", 300, kOpen, has_empty_window,
     "crashes where the window of a result has padding alone"},
    {dnnl::primitive::kind::deconvolution, "brg_conv:", "+brgconv:avx512_core_amx", 300, kOpen,
     has_empty_window, "crashes where the window of a result has padding alone"},
    // Seen with a stride above the kernel and two results in a line, of which the first has padding alone.
    {dnnl::primitive::kind::convolution, "brgconv:", "avx512_core_bf16", 300, kOpen, has_empty_window,
     "wrong, or crashes, where the window of a result has padding alone"},
    {dnnl::primitive::kind::convolution, "brgconv:", "avx512_core_fp16", 300, kOpen, has_empty_window,
     "wrong, or crashes, where the window of a result has padding alone"},
    // The three are to be read in the source (addps of memory in load_src, store and init), of 3.2 and later.
    {dnnl::primitive::kind::convolution, "jit_dw:", "sse41", 300, kOpen, adds_destination,
     "crashes where a pixel of the destination does not lie at a multiple of 16 bytes"},
    {dnnl::primitive::kind::convolution, "jit_1x1:", "sse41", 300, kOpen, always,
     "crashes where a pixel of the destination does not lie at a multiple of 16 bytes"},
    {dnnl::primitive::kind::convolution, "jit:", "sse41", 300, kOpen, adds_bias_in_memory,
     "crashes where the bias does not lie at a multiple of 16 bytes"},
    // Heads side by side in a row (the transposed operands of attention) with no more rows than heads.
    {dnnl::primitive::kind::matmul, "brg:", "avx512_core_amx", 300, kOpen, interleaves_batches,
     "matrices whose rows take turns are read as if each were dense"},
    // Seen with 3.7.2, with 3.2 not; none between them was looked at.
    {dnnl::primitive::kind::matmul, "brg_matmul:", "avx512_core", 303, kOpen, repeats_weights,
     "a batch that shares its weights crashes, or leaves elements unwritten"},
    // To be read in the library's source (brgemm/jit_brgemm_amx_uker.cpp of 3.2), and the same in 3.7.
    {dnnl::primitive::kind::matmul, "brg:", "avx512_core_amx", 300, kOpen, rounds_before_zero_points,
     "zero points are added to sums that are rounded as float32"},
    {dnnl::primitive::kind::convolution, "brgconv", "avx512_core_amx", 300, kOpen, rounds_before_zero_points,
     "zero points are added to sums that are rounded as float32"},
};

} // namespace

int library_version() {
  const dnnl_version_t* version = dnnl_version();
  return version->major * 100 + version->minor;
}

std::string refusal(std::string_view name, const Use& use, int version) {
  for (const Refusal& r : kRefusals)
    if (r.kind == use.kind && name.starts_with(r.first) && name.find(r.part) != std::string_view::npos &&
        version >= r.since && version < r.before && r.applies(use))
      return r.why;
  return {};
}

} // namespace tbx::extern_kernels::onednn
