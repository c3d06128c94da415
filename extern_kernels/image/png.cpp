// PNG through libpng. Colour profiles and gamma are not applied, 16-bit samples keep their upper byte.
#if TBX_WITH_PNG
#include <png.h>
#endif

#include <csetjmp>
#include <cstring>

#include "extern_kernels/image/left_out.h"

namespace tbx::extern_kernels::image {

#if TBX_WITH_PNG
namespace {

struct Source {
  Bytes data;
  size_t at = 0;
  char message[128] = {};
};

void read(png_structp png, png_bytep to, size_t n) {
  auto* s = static_cast<Source*>(png_get_io_ptr(png));
  if (n > s->data.size() - s->at) png_error(png, "the data is cut short");
  std::memcpy(to, s->data.data() + s->at, n);
  s->at += n;
}

void on_error(png_structp png, png_const_charp message) {
  auto* s = static_cast<Source*>(png_get_error_ptr(png));
  std::strncpy(s->message, message, sizeof s->message - 1);
  std::longjmp(png_jmpbuf(png), 1);
}

void on_warning(png_structp, png_const_charp) {}

/// The two halves of decoding keep nothing with a destructor: libpng leaves them by longjmp.
bool read_header(png_structp png, png_infop info) {
  if (setjmp(png_jmpbuf(png))) return false;
  png_set_user_limits(png, 1u << 27, 1u << 27);
  png_read_info(png, info);
  png_set_expand(png);
  png_set_strip_16(png);
  png_set_gray_to_rgb(png);
  png_set_strip_alpha(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
  return true;
}

bool read_rows(png_structp png, png_bytep* rows) {
  if (setjmp(png_jmpbuf(png))) return false;
  png_read_image(png, rows);
  return true;
}

} // namespace

Image decode_png(Bytes data) {
  Source source{data};
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, on_error, on_warning);
  png_infop info = png ? png_create_info_struct(png) : nullptr;
  struct Guard {
    png_structp png;
    png_infop info;
    ~Guard() { png_destroy_read_struct(&png, &info, nullptr); }
  } guard{png, info};
  if (!info) throw_backend_error("libpng gives no reader");
  png_set_read_fn(png, &source, read);
  TBX_MODEL(read_header(png, info), "the PNG image cannot be read: {}", source.message);
  Image image;
  image.resize(png_get_image_width(png, info), png_get_image_height(png, info));
  TBX_MODEL(png_get_rowbytes(png, info) == static_cast<size_t>(image.width) * 3,
            "the PNG image has an unknown layout");
  std::vector<png_bytep> rows;
  for (int64_t y = 0; y < image.height; ++y) rows.push_back(image.row(y));
  TBX_MODEL(read_rows(png, rows.data()), "the PNG image cannot be read: {}", source.message);
  return image;
}
#else
Image decode_png(Bytes) { throw_left_out("PNG", "libpng-dev"); }
#endif

} // namespace tbx::extern_kernels::image
