// TIFF through libtiff, first page.
#include <algorithm>
#include <cstring>

#include "extern_kernels/image/left_out.h"

#if TBX_WITH_TIFF
#include <tiffio.h>
#endif

namespace tbx::extern_kernels::image {

#if TBX_WITH_TIFF
namespace {

struct Source {
  Bytes data;
  uint64_t at = 0;
};

tmsize_t read(thandle_t h, void* to, tmsize_t n) {
  auto* s = static_cast<Source*>(h);
  if (n < 0 || s->at >= s->data.size()) return 0;
  auto count = std::min<uint64_t>(static_cast<uint64_t>(n), s->data.size() - s->at);
  std::memcpy(to, s->data.data() + s->at, count);
  s->at += count;
  return static_cast<tmsize_t>(count);
}

tmsize_t write(thandle_t, void*, tmsize_t) { return 0; }

toff_t seek(thandle_t h, toff_t offset, int whence) {
  auto* s = static_cast<Source*>(h);
  s->at = whence == SEEK_SET ? offset : whence == SEEK_CUR ? s->at + offset : s->data.size() + offset;
  return s->at;
}

int close(thandle_t) { return 0; }
toff_t size(thandle_t h) { return static_cast<Source*>(h)->data.size(); }

/// libtiff reports through process-wide handlers by default; a decoder says what went wrong itself.
void silence() {
  static const bool once = [] {
    TIFFSetErrorHandler(nullptr);
    TIFFSetWarningHandler(nullptr);
    return true;
  }();
  (void)once;
}

} // namespace

Image decode_tiff(Bytes data) {
  silence();
  Source source{data};
  struct Guard {
    TIFF* tiff;
    ~Guard() {
      if (tiff) TIFFClose(tiff);
    }
  } guard{TIFFClientOpen("image", "rm", &source, read, write, seek, close, size, nullptr, nullptr)};
  TBX_MODEL(guard.tiff, "the TIFF image cannot be read");
  uint32_t width = 0, height = 0;
  TBX_MODEL(TIFFGetField(guard.tiff, TIFFTAG_IMAGEWIDTH, &width) &&
                TIFFGetField(guard.tiff, TIFFTAG_IMAGELENGTH, &height),
            "the TIFF image has no size");
  Image image;
  image.resize(width, height);
  char why[1024] = "it is damaged";
  TBX_MODEL(TIFFRGBAImageOK(guard.tiff, why), "the TIFF image cannot be read: {}", why);
  std::vector<uint32_t> pixels(static_cast<size_t>(width) * height);
  TBX_MODEL(TIFFReadRGBAImageOriented(guard.tiff, width, height, pixels.data(), ORIENTATION_TOPLEFT, 1),
            "the TIFF image cannot be read: {}", why);
  for (size_t i = 0; i < pixels.size(); ++i) {
    image.rgb[i * 3] = static_cast<uint8_t>(TIFFGetR(pixels[i]));
    image.rgb[i * 3 + 1] = static_cast<uint8_t>(TIFFGetG(pixels[i]));
    image.rgb[i * 3 + 2] = static_cast<uint8_t>(TIFFGetB(pixels[i]));
  }
  return image;
}
#else
Image decode_tiff(Bytes) { throw_left_out("TIFF", "libtiff-dev"); }
#endif

} // namespace tbx::extern_kernels::image
