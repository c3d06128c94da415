// Encoded images to pixels: one file per format. Libraries do the decoding where there is one; the formats
// that a build leaves out give an UnsupportedError that says so.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"

namespace tbx::extern_kernels::image {

/// Pixels of an image from hostile input never take more memory than this times 3.
constexpr int64_t kMaxPixels = int64_t{1} << 27;

/// Rows from the top, pixels as red, green, blue; grey images have three equal ones. Transparency is dropped.
struct Image {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> rgb;

  /// Allocates the pixels. ModelError when a size is 0 or the image has more than kMaxPixels.
  void resize(int64_t new_width, int64_t new_height);
  uint8_t* row(int64_t y) { return rgb.data() + y * width * 3; }
};

using Bytes = std::span<const uint8_t>;

// Each needs bytes of its format (only the signature is known to be right) and throws ModelError for an image
// that cannot be read.
Image decode_bmp(Bytes data);
Image decode_jpeg(Bytes data);
Image decode_jpeg2000(Bytes data);
Image decode_png(Bytes data);
Image decode_pnm(Bytes data);
Image decode_tiff(Bytes data);
Image decode_webp(Bytes data);

/// By signature. ModelError when there is no known one.
Image decode(Bytes data);

/// The grey value of a colour as Pillow computes it (ITU-R 601 in 16-bit fixed point).
inline uint8_t grey(const uint8_t* rgb) {
  return static_cast<uint8_t>((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >> 16);
}

} // namespace tbx::extern_kernels::image
