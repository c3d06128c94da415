// The functions of cuBLASLt that tensorbox calls, as a table filled at run time, and the numbers they take.
// Declared here and not taken from cublasLt.h: see device/cuda/driver.h.
// tests/device/library_headers_test.cpp holds them against that header where there is one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "device/cuda/driver.h"

namespace tbx::extern_kernels::cuda {

namespace lt {

using Status = int;
using Handle = struct cublasLtContext*;
struct Layout;     ///< cublasLtMatrixLayoutOpaque_t
struct Preference; ///< cublasLtMatmulPreferenceOpaque_t
struct Desc;       ///< cublasLtMatmulDescOpaque_t
struct Algo {
  uint64_t data[8];
};
/// cublasLtMatmulHeuristicResult_t
struct Result {
  Algo algo;
  size_t workspace;
  Status state;
  float waves;
  int reserved[4];
};

// cudaDataType
inline constexpr int kF32 = 0, kF64 = 1, kF16 = 2, kI8 = 3, kI32 = 10, kBf16 = 14;
// cublasComputeType_t
inline constexpr int kComputeF32 = 68, kComputeF64 = 70, kComputeI32 = 72, kComputeTf32 = 77;
// cublasLtMatrixLayoutAttribute_t
inline constexpr int kBatchCount = 5, kBatchOffset = 6;
// cublasLtMatmulDescAttributes_t
inline constexpr int kTransposeA = 3, kTransposeB = 4, kEpilogue = 7, kBiasPointer = 8, kBiasType = 26;
// cublasLtEpilogue_t; with a bias: + kBias
inline constexpr int kDefault = 1, kRelu = 2, kBias = 4, kGelu = 32;
// cublasLtMatmulPreferenceAttributes_t
inline constexpr int kMostWorkspace = 1, kAlignA = 5, kAlignB = 6, kAlignC = 7, kAlignD = 8;
// cublasOperation_t
inline constexpr int kTransposed = 1;

// X(name in the library, result, parameters...)
#define TBX_CUBLAS_LT(X)                                                                                     \
  X(cublasLtGetVersion, size_t)                                                                              \
  X(cublasLtGetStatusName, const char*, Status)                                                              \
  X(cublasLtCreate, Status, Handle*)                                                                         \
  X(cublasLtDestroy, Status, Handle)                                                                         \
  X(cublasLtMatrixLayoutCreate, Status, Layout**, int, uint64_t, uint64_t, int64_t)                          \
  X(cublasLtMatrixLayoutDestroy, Status, Layout*)                                                            \
  X(cublasLtMatrixLayoutSetAttribute, Status, Layout*, int, const void*, size_t)                             \
  X(cublasLtMatmulDescCreate, Status, Desc**, int, int)                                                      \
  X(cublasLtMatmulDescDestroy, Status, Desc*)                                                                \
  X(cublasLtMatmulDescSetAttribute, Status, Desc*, int, const void*, size_t)                                 \
  X(cublasLtMatmulPreferenceCreate, Status, Preference**)                                                    \
  X(cublasLtMatmulPreferenceDestroy, Status, Preference*)                                                    \
  X(cublasLtMatmulPreferenceSetAttribute, Status, Preference*, int, const void*, size_t)                     \
  X(cublasLtMatmulAlgoGetHeuristic, Status, Handle, Desc*, Layout*, Layout*, Layout*, Layout*, Preference*,  \
    int, Result*, int*)                                                                                      \
  X(cublasLtMatmul, Status, Handle, Desc*, const void*, const void*, Layout*, const void*, Layout*,          \
    const void*, const void*, Layout*, void*, Layout*, const Algo*, void*, size_t,                           \
    device::cuda::StreamHandle)

/// One pointer per function, named as in the library.
struct Library {
#define X(name, result, ...) result (*name)(__VA_ARGS__) = nullptr;
  TBX_CUBLAS_LT(X)
#undef X
};

/// Throws BackendError when there is no cuBLASLt.
const Library& library();
/// Throws BackendError with the library's own words; `what` is what we did.
void check(Status status, const char* what);
/// "cuBLASLt 13.1.0".
std::string version();

} // namespace lt

} // namespace tbx::extern_kernels::cuda
