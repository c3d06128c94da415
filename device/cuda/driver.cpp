#include "device/cuda/driver.h"

#include <fmt/format.h>

#include "base/error.h"
#include "device/library.h"

namespace tbx::device::cuda {

namespace {

constexpr int kOldest = 13000;

Driver load() {
  const Library& library = cuda_library("libcuda.so.1");
  Driver d;
#define X(name, ...)                                                                                         \
  d.name = reinterpret_cast<decltype(d.name)>(library.symbol(#name));                                        \
  if (!d.name)                                                                                               \
    throw Error(ErrorKind::backend,                                                                          \
                fmt::format("NVIDIA's driver in {} has no function {}", library.place().path, #name),        \
                "install a newer driver (580 or newer)");
  TBX_CUDA_DRIVER(X)
#undef X
  if (d.cuDriverGetVersion(&d.version) != 0 || d.version < kOldest)
    throw Error(ErrorKind::backend,
                fmt::format("NVIDIA's driver in {} speaks CUDA {}.{}; 13.0 is the oldest that is enough",
                            library.place().path, d.version / 1000, d.version % 1000 / 10),
                "install a newer driver (580 or newer)");
  if (Result r = d.cuInit(0); r != 0) {
    const char* text = nullptr;
    d.cuGetErrorString(r, &text);
    throw_backend_error("NVIDIA's driver in {} does not start: {}", library.place().path,
                        text ? text : "unknown error");
  }
  return d;
}

} // namespace

const Driver& driver() {
  static const Driver d = load();
  return d;
}

std::string text_of(Result result) {
  const char *name = nullptr, *text = nullptr;
  driver().cuGetErrorName(result, &name);
  driver().cuGetErrorString(result, &text);
  return fmt::format("{} ({})", text ? text : "unknown error", name ? name : std::to_string(result));
}

void check(Result result, const char* what) {
  if (result != 0) throw_backend_error("{} failed: {}", what, text_of(result));
}

} // namespace tbx::device::cuda
