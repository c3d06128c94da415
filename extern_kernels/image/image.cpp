#include "extern_kernels/image/image.h"

#include <string_view>

namespace tbx::extern_kernels::image {

void Image::resize(int64_t new_width, int64_t new_height) {
  TBX_MODEL(new_width > 0 && new_height > 0, "an image of {} x {} pixels", new_width, new_height);
  TBX_MODEL(new_width <= kMaxPixels / new_height, "an image of {} x {} pixels: at most {} pixels are decoded",
            new_width, new_height, kMaxPixels);
  width = new_width;
  height = new_height;
  rgb.assign(static_cast<size_t>(width * height * 3), 0);
}

Image decode(Bytes data) {
  std::string_view s(reinterpret_cast<const char*>(data.data()), data.size());
  using namespace std::string_view_literals;
  if (s.starts_with("\xff\xd8\xff"sv)) return decode_jpeg(data);
  if (s.starts_with("\x89PNG\r\n\x1a\n"sv)) return decode_png(data);
  if (s.starts_with("BM"sv)) return decode_bmp(data);
  if (s.starts_with("II*\0"sv) || s.starts_with("MM\0*"sv) || s.starts_with("II+\0"sv) ||
      s.starts_with("MM\0+"sv))
    return decode_tiff(data);
  if (s.starts_with("RIFF"sv) && s.size() >= 12 && s.substr(8, 4) == "WEBP"sv) return decode_webp(data);
  if (s.starts_with("\xff\x4f\xff\x51"sv) || s.starts_with("\0\0\0\x0cjP  \r\n\x87\n"sv))
    return decode_jpeg2000(data);
  if (s.size() >= 2 && s[0] == 'P' && s[1] >= '1' && s[1] <= '6') return decode_pnm(data);
  throw_model_error("{} bytes are no image in JPEG, JPEG 2000, PNG, BMP, TIFF, WebP or PNM format",
                    data.size());
}

} // namespace tbx::extern_kernels::image
