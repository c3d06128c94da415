// WebP through libwebp, still images.
#include "extern_kernels/image/left_out.h"

#if TBX_WITH_WEBP
#include <webp/decode.h>
#endif

namespace tbx::extern_kernels::image {

#if TBX_WITH_WEBP
Image decode_webp(Bytes data) {
  WebPBitstreamFeatures features;
  TBX_MODEL(WebPGetFeatures(data.data(), data.size(), &features) == VP8_STATUS_OK,
            "the WebP image cannot be read");
  if (features.has_animation) throw_unsupported("animated WebP images");
  Image image;
  image.resize(features.width, features.height);
  TBX_MODEL(WebPDecodeRGBInto(data.data(), data.size(), image.rgb.data(), image.rgb.size(),
                              static_cast<int>(image.width * 3)) != nullptr,
            "the WebP image cannot be read");
  return image;
}
#else
Image decode_webp(Bytes) { throw_left_out("WebP", "libwebp-dev"); }
#endif

} // namespace tbx::extern_kernels::image
