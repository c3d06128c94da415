#include "extern_kernels/cuda/cublas_lt.h"

#include <fmt/format.h>

#include "base/error.h"
#include "device/library.h"

namespace tbx::extern_kernels::cuda::lt {

namespace {

constexpr const char* kFile = "libcublasLt.so.13";

Library load() {
  const device::Library& file = device::cuda_library(kFile);
  Library l;
#define X(name, ...)                                                                                         \
  l.name = reinterpret_cast<decltype(l.name)>(file.symbol(#name));                                           \
  if (!l.name)                                                                                               \
    throw Error(ErrorKind::backend,                                                                          \
                fmt::format("cuBLASLt in {} has no function {}", file.place().path, #name),                  \
                "pip install --upgrade nvidia-cublas");
  TBX_CUBLAS_LT(X)
#undef X
  return l;
}

} // namespace

const Library& library() {
  static const Library l = load();
  return l;
}

void check(Status status, const char* what) {
  if (status != 0)
    throw_backend_error("{} failed: {} ({}, {})", what, library().cublasLtGetStatusName(status), version(),
                        device::cuda_library(kFile).place().path);
}

std::string version() {
  const size_t v = library().cublasLtGetVersion(); // 10000 * major + 100 * minor + patch
  return fmt::format("cuBLASLt {}.{}.{}", v / 10000, v / 100 % 100, v % 100);
}

} // namespace tbx::extern_kernels::cuda::lt
