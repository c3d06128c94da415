// ImageDecoder: sizes are known after decoding only.
#include "lowering/ops/families.h"
#include "lowering/ops/host_call.h"

namespace tbx::lowering {
namespace {

std::vector<LoweredValue> image_decoder(OpContext& ctx) {
  TBX_MODEL(ctx.rank(0) == 1 && ctx.dtype(0) == DType::u8,
            "the input is {} of rank {}, expected a vector of uint8", name_of(ctx.dtype(0)), ctx.rank(0));
  std::string format = ctx.attr_string("pixel_format", "RGB");
  TBX_MODEL(format == "RGB" || format == "BGR" || format == "Grayscale",
            "pixel_format is '{}', expected RGB, BGR or Grayscale", format);
  SymInt height = ctx.c.unbacked_symbol("image_height"), width = ctx.c.unbacked_symbol("image_width");
  return host_call(ctx, {{DType::u8, {height, width, format == "Grayscale" ? 1 : 3}}},
                   {{"pixel_format", format}});
}

} // namespace

void register_image_decoder(Registry& r) { r.add("ImageDecoder", since(20), image_decoder); }

} // namespace tbx::lowering
