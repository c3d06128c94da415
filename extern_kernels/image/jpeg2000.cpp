// JPEG 2000 through OpenJPEG: files (JP2) and bare codestreams.
#include <algorithm>
#include <cstring>

#include "extern_kernels/image/left_out.h"

#if TBX_WITH_OPENJPEG
#include <openjpeg.h>
#endif

namespace tbx::extern_kernels::image {

#if TBX_WITH_OPENJPEG
namespace {

struct Source {
  Bytes data;
  size_t at = 0;
};

OPJ_SIZE_T read(void* to, OPJ_SIZE_T n, void* user) {
  auto* s = static_cast<Source*>(user);
  size_t count = std::min<size_t>(n, s->data.size() - s->at);
  if (count == 0) return static_cast<OPJ_SIZE_T>(-1);
  std::memcpy(to, s->data.data() + s->at, count);
  s->at += count;
  return count;
}

OPJ_OFF_T skip(OPJ_OFF_T n, void* user) {
  auto* s = static_cast<Source*>(user);
  if (n < 0 || static_cast<uint64_t>(n) > s->data.size() - s->at) return -1;
  s->at += static_cast<size_t>(n);
  return n;
}

OPJ_BOOL seek(OPJ_OFF_T n, void* user) {
  auto* s = static_cast<Source*>(user);
  if (n < 0 || static_cast<uint64_t>(n) > s->data.size()) return OPJ_FALSE;
  s->at = static_cast<size_t>(n);
  return OPJ_TRUE;
}

/// Frees what OpenJPEG made.
struct Handles {
  opj_codec_t* codec = nullptr;
  opj_stream_t* stream = nullptr;
  opj_image_t* image = nullptr;
  ~Handles() {
    if (image) opj_image_destroy(image);
    if (stream) opj_stream_destroy(stream);
    if (codec) opj_destroy_codec(codec);
  }
};

/// A sample as 8 bits.
int32_t sample(const opj_image_comp_t& c, int64_t x, int64_t y) {
  int64_t column = std::min<int64_t>(x / c.dx, int64_t{c.w} - 1),
          row = std::min<int64_t>(y / c.dy, int64_t{c.h} - 1);
  int64_t v = c.data[row * c.w + column];
  if (c.sgnd) v += int64_t{1} << (c.prec - 1);
  if (c.prec > 8) v >>= c.prec - 8;
  if (c.prec < 8) v = v * 255 / ((1 << c.prec) - 1);
  return static_cast<int32_t>(std::clamp<int64_t>(v, 0, 255));
}

/// Luminance and differences of colour (sYCC) to red, green, blue.
void from_ycc(uint8_t* p) {
  double y = p[0], cb = p[1] - 128.0, cr = p[2] - 128.0;
  auto clip = [](double v) { return static_cast<uint8_t>(std::clamp(v + 0.5, 0.0, 255.0)); };
  p[0] = clip(y + 1.402 * cr);
  p[1] = clip(y - 0.344136 * cb - 0.714136 * cr);
  p[2] = clip(y + 1.772 * cb);
}

} // namespace

Image decode_jpeg2000(Bytes data) {
  Source source{data};
  Handles h;
  h.codec = opj_create_decompress(data[0] == 0xff ? OPJ_CODEC_J2K : OPJ_CODEC_JP2);
  h.stream = opj_stream_create(64 << 10, OPJ_TRUE);
  if (!h.codec || !h.stream) throw_backend_error("OpenJPEG gives no decoder");
  opj_stream_set_user_data(h.stream, &source, nullptr);
  opj_stream_set_user_data_length(h.stream, data.size());
  opj_stream_set_read_function(h.stream, read);
  opj_stream_set_skip_function(h.stream, skip);
  opj_stream_set_seek_function(h.stream, seek);
  opj_dparameters_t parameters;
  opj_set_default_decoder_parameters(&parameters);
  TBX_MODEL(opj_setup_decoder(h.codec, &parameters) && opj_read_header(h.stream, h.codec, &h.image),
            "the JPEG 2000 image cannot be read");
  Image image; // sizes are checked before the decoder allocates samples
  image.resize(int64_t{h.image->x1} - h.image->x0, int64_t{h.image->y1} - h.image->y0);
  TBX_MODEL(h.image->numcomps >= 1 && h.image->numcomps <= 4, "a JPEG 2000 image of {} components",
            h.image->numcomps);
  TBX_MODEL(opj_decode(h.codec, h.stream, h.image), "the JPEG 2000 image cannot be read");
  uint32_t count = h.image->numcomps;
  for (uint32_t c = 0; c < count; ++c) {
    const opj_image_comp_t& part = h.image->comps[c];
    TBX_MODEL(part.data && part.w > 0 && part.h > 0 && part.dx > 0 && part.dy > 0 && part.prec > 0 &&
                  part.prec <= 31,
              "the JPEG 2000 image has an empty component");
  }
  bool color = count >= 3, ycc = color && h.image->color_space == OPJ_CLRSPC_SYCC;
  for (int64_t y = 0; y < image.height; ++y)
    for (int64_t x = 0; x < image.width; ++x) {
      uint8_t* p = image.row(y) + x * 3;
      for (int c = 0; c < 3; ++c) p[c] = static_cast<uint8_t>(sample(h.image->comps[color ? c : 0], x, y));
      if (ycc) from_ycc(p);
    }
  return image;
}
#else
Image decode_jpeg2000(Bytes) { throw_left_out("JPEG 2000", "libopenjp2-7-dev"); }
#endif

} // namespace tbx::extern_kernels::image
