// Bytes as an image in whatever format they claim: a picture or an Error, never a crash.
#include "extern_kernels/image/image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    tbx::extern_kernels::image::decode({data, size});
  } catch (const tbx::Error& e) {
    if (e.kind() == tbx::ErrorKind::internal) __builtin_trap();
  }
  return 0;
}
