#include "extern_kernels/cuda/cudnn.h"

#include <fmt/format.h>

#include "base/error.h"
#include "device/library.h"

namespace tbx::extern_kernels::cuda::dnn {

namespace {

constexpr const char* kFile = "libcudnn.so.9";
constexpr size_t kOldest = 91000;

std::string text_of(size_t version) { // 10000 * major + 100 * minor + patch
  return fmt::format("cuDNN {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Library load() {
  const device::Library& file = device::cuda_library(kFile);
  const char* way_out =
      "pip install --upgrade nvidia-cudnn-cu13, or name the folder of a newer one in TBX_CUDA_PATH";
  Library l;
#define X(name, ...)                                                                                         \
  l.name = reinterpret_cast<decltype(l.name)>(file.symbol(#name));                                           \
  if (!l.name)                                                                                               \
    throw Error(ErrorKind::backend, fmt::format("cuDNN in {} has no function {}", file.place().path, #name), \
                way_out);
  TBX_CUDNN(X)
#undef X
  if (const size_t v = l.cudnnGetVersion(); v < kOldest)
    throw Error(ErrorKind::backend,
                fmt::format("{} in {} is too old: {} is the oldest that is enough", text_of(v),
                            file.place().path, text_of(kOldest)),
                way_out);
  return l;
}

} // namespace

const Library& library() {
  static const Library l = load();
  return l;
}

void check(Status status, const char* what) {
  if (status == 0) return;
  char detail[1024] = {};
  library().cudnnGetLastErrorString(detail, sizeof detail - 1);
  throw_backend_error("{} failed: {} {} ({}, {})", what, library().cudnnGetErrorString(status), detail,
                      version(), device::cuda_library(kFile).place().path);
}

std::string version() { return text_of(library().cudnnGetVersion()); }

} // namespace tbx::extern_kernels::cuda::dnn
