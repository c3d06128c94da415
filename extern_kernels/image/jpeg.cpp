// JPEG through libjpeg-turbo with its exact integer transform.
#include <csetjmp>
#include <cstdio>

#include "extern_kernels/image/left_out.h"

#if TBX_WITH_JPEG
#include <jpeglib.h>
#endif

namespace tbx::extern_kernels::image {

#if TBX_WITH_JPEG
namespace {

constexpr long kMaxMemory = 512L << 20; ///< of the coefficients of a progressive image
constexpr int kMaxScans = 500;          ///< a small file can ask for many passes over a large image

struct Failure {
  jpeg_error_mgr manager;
  std::jmp_buf out;
  char message[JMSG_LENGTH_MAX] = {};
};

void on_error(j_common_ptr info) {
  auto* f = reinterpret_cast<Failure*>(info->err);
  (*info->err->format_message)(info, f->message);
  std::longjmp(f->out, 1);
}

void on_message(j_common_ptr) {}

void on_progress(j_common_ptr info) {
  auto* d = reinterpret_cast<j_decompress_ptr>(info);
  if (d->input_scan_number > kMaxScans) {
    std::snprintf(reinterpret_cast<Failure*>(info->err)->message, JMSG_LENGTH_MAX, "too many scans");
    std::longjmp(reinterpret_cast<Failure*>(info->err)->out, 1);
  }
}

// libjpeg leaves the functions below by longjmp: they keep nothing with a destructor.
bool read_header(jpeg_decompress_struct& d, Failure& f, Bytes data) {
  if (setjmp(f.out)) return false;
  jpeg_create_decompress(&d);
  d.mem->max_memory_to_use = kMaxMemory;
  jpeg_mem_src(&d, data.data(), data.size());
  jpeg_read_header(&d, TRUE);
  d.out_color_space = d.num_components == 4 ? JCS_CMYK : JCS_RGB;
  d.dct_method = JDCT_ISLOW;
  jpeg_calc_output_dimensions(&d);
  return true;
}

bool read_rows(jpeg_decompress_struct& d, Failure& f, uint8_t* out, size_t stride) {
  if (setjmp(f.out)) return false;
  jpeg_start_decompress(&d);
  while (d.output_scanline < d.output_height) {
    JSAMPROW row = out + d.output_scanline * stride;
    jpeg_read_scanlines(&d, &row, 1);
  }
  jpeg_finish_decompress(&d);
  return true;
}

/// a * b / 255, rounded.
uint32_t product(uint32_t a, uint32_t b) {
  uint32_t t = a * b + 128;
  return ((t >> 8) + t) >> 8;
}

/// Inks to light, as Pillow does; Adobe's files hold them inverted.
void from_cmyk(const std::vector<uint8_t>& inks, bool inverted, Image& image) {
  for (size_t i = 0; i < inks.size() / 4; ++i) {
    auto ink = [&](size_t c) { return uint32_t{inverted ? 255u - inks[i * 4 + c] : inks[i * 4 + c]}; };
    uint32_t light = 255 - ink(3);
    for (size_t c = 0; c < 3; ++c)
      image.rgb[i * 3 + c] = static_cast<uint8_t>(light - product(ink(c), light));
  }
}

} // namespace

Image decode_jpeg(Bytes data) {
  jpeg_decompress_struct d{};
  Failure f;
  jpeg_progress_mgr progress{};
  d.err = jpeg_std_error(&f.manager);
  f.manager.error_exit = on_error;
  f.manager.output_message = on_message;
  struct Guard {
    jpeg_decompress_struct& d;
    ~Guard() { jpeg_destroy_decompress(&d); }
  } guard{d};
  TBX_MODEL(read_header(d, f, data), "the JPEG image cannot be read: {}", f.message);
  progress.progress_monitor = on_progress;
  d.progress = &progress;
  Image image;
  image.resize(d.output_width, d.output_height);
  bool inks = d.out_color_space == JCS_CMYK;
  std::vector<uint8_t> four(inks ? static_cast<size_t>(image.width * image.height * 4) : 0);
  bool done = read_rows(d, f, inks ? four.data() : image.rgb.data(),
                        static_cast<size_t>(image.width) * (inks ? 4 : 3));
  TBX_MODEL(done, "the JPEG image cannot be read: {}", f.message);
  if (inks) from_cmyk(four, d.saw_Adobe_marker, image);
  return image;
}
#else
Image decode_jpeg(Bytes) { throw_left_out("JPEG", "libjpeg-dev"); }
#endif

} // namespace tbx::extern_kernels::image
