// ImageDecoder (ONNX opset 20): bytes of an encoded image to pixels [height, width, channels].
#include "extern_kernels/host/host_kernel.h"
#include "extern_kernels/image/image.h"

namespace tbx::extern_kernels {

void run_image_decoder(const HostCall& call) {
  const TensorRef& x = call.in(0);
  const std::string& format = call.text("pixel_format");
  const image::Image image =
      image::decode({static_cast<const uint8_t*>(x.data), static_cast<size_t>(x.numel())});
  bool is_grey = format == "Grayscale", reversed = format == "BGR";
  const int64_t sizes[] = {image.height, image.width, is_grey ? 1 : 3};
  auto* out = static_cast<uint8_t*>(call.make(0, sizes));
  for (size_t i = 0; i < image.rgb.size(); i += 3) {
    const uint8_t* p = image.rgb.data() + i;
    if (is_grey) {
      *out++ = image::grey(p);
      continue;
    }
    for (int c = 0; c < 3; ++c) *out++ = p[reversed ? 2 - c : c];
  }
}

} // namespace tbx::extern_kernels
