// The functions of NVIDIA's driver that tensorbox calls, as a table filled at run time.
//
// They are declared here and not taken from cuda.h, so that every build has the GPU back end, whatever is
// installed on the machine that builds it. The driver keeps this binary interface for good;
// tests/device/driver_test.cpp holds the declarations against cuda.h where there is one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tbx::device::cuda {

using Result = int; ///< CUresult; 0: success
using DeviceNumber = int;
using Pointer = unsigned long long; ///< CUdeviceptr
using Context = struct CUctx_st*;
using StreamHandle = struct CUstream_st*;
using EventHandle = struct CUevent_st*;
using ModuleHandle = struct CUmod_st*;
using Function = struct CUfunc_st*;
using GraphHandle = struct CUgraph_st*;
using GraphNode = struct CUgraphNode_st*;
using GraphExec = struct CUgraphExec_st*;

/// CUlaunchAttribute. `value` is a union of 64 bytes, of which we set one int or three.
struct LaunchAttribute {
  int id = 0;
  char pad[4] = {};
  alignas(8) char value[64] = {};
};
inline constexpr int kClusterDimension = 4, kProgrammaticStreamSerialization = 6;

/// CUlaunchConfig
struct LaunchConfig {
  unsigned grid_x = 1, grid_y = 1, grid_z = 1, block_x = 1, block_y = 1, block_z = 1, shared_bytes = 0;
  StreamHandle stream = nullptr;
  LaunchAttribute* attributes = nullptr;
  unsigned num_attributes = 0;
};

/// CUDA_MEMCPY3D
struct CopyNode {
  struct Side {
    size_t x = 0, y = 0, z = 0, level = 0;
    int type = 0; ///< CUmemorytype
    void* host = nullptr;
    Pointer device = 0;
    void* array = nullptr;
    void* reserved = nullptr;
    size_t pitch = 0, height = 0;
  } from, to;
  size_t width = 0, height = 0, depth = 0;
};

/// CUDA_KERNEL_NODE_PARAMS_v2
struct KernelNode {
  Function function = nullptr;
  unsigned grid_x = 1, grid_y = 1, grid_z = 1, block_x = 1, block_y = 1, block_z = 1, shared_bytes = 0;
  void** arguments = nullptr;
  void** extra = nullptr;
  void* kernel = nullptr;
  Context context = nullptr;
};

/// CUDA_MEMSET_NODE_PARAMS
struct FillNode {
  Pointer to = 0;
  size_t pitch = 0;
  unsigned value = 0, element_bytes = 1;
  size_t width = 0, height = 1; ///< elements, lines
};

// CUgraphNodeType
inline constexpr int kFillNode = 2;
// CUdevice_attribute
inline constexpr int kMultiprocessors = 16, kL2Bytes = 38, kMajor = 75, kMinor = 76, kSharedBytesOptin = 97;
// CUfunction_attribute
inline constexpr int kStaticShared = 1, kMaxDynamicShared = 8;
// CUpointer_attribute
inline constexpr int kPointerMemoryType = 2, kPointerDeviceOrdinal = 9, kPointerRangeStart = 11,
                     kPointerRangeSize = 12;
// CUmemorytype
inline constexpr unsigned kHostMemory = 1, kDeviceMemory = 2;
// CUresult
inline constexpr Result kOutOfMemory = 2, kNotReady = 600;

// X(name in the library, parameters...)
#define TBX_CUDA_DRIVER(X)                                                                                   \
  X(cuInit, unsigned)                                                                                        \
  X(cuDriverGetVersion, int*)                                                                                \
  X(cuGetErrorName, Result, const char**)                                                                    \
  X(cuGetErrorString, Result, const char**)                                                                  \
  X(cuDeviceGetCount, int*)                                                                                  \
  X(cuDeviceGet, DeviceNumber*, int)                                                                         \
  X(cuDeviceGetName, char*, int, DeviceNumber)                                                               \
  X(cuDeviceTotalMem_v2, size_t*, DeviceNumber)                                                              \
  X(cuDeviceGetAttribute, int*, int, DeviceNumber)                                                           \
  X(cuDevicePrimaryCtxRetain, Context*, DeviceNumber)                                                        \
  X(cuDevicePrimaryCtxRelease_v2, DeviceNumber)                                                              \
  X(cuCtxGetCurrent, Context*)                                                                               \
  X(cuCtxPushCurrent_v2, Context)                                                                            \
  X(cuCtxPopCurrent_v2, Context*)                                                                            \
  X(cuCtxRecordEvent, Context, EventHandle)                                                                  \
  X(cuMemAlloc_v2, Pointer*, size_t)                                                                         \
  X(cuMemFree_v2, Pointer)                                                                                   \
  X(cuMemHostAlloc, void**, size_t, unsigned)                                                                \
  X(cuMemFreeHost, void*)                                                                                    \
  X(cuMemcpyHtoDAsync_v2, Pointer, const void*, size_t, StreamHandle)                                        \
  X(cuMemcpyDtoHAsync_v2, void*, Pointer, size_t, StreamHandle)                                              \
  X(cuMemcpyDtoDAsync_v2, Pointer, Pointer, size_t, StreamHandle)                                            \
  X(cuMemsetD8Async, Pointer, unsigned char, size_t, StreamHandle)                                           \
  X(cuStreamCreate, StreamHandle*, unsigned)                                                                 \
  X(cuStreamDestroy_v2, StreamHandle)                                                                        \
  X(cuStreamSynchronize, StreamHandle)                                                                       \
  X(cuStreamWaitEvent, StreamHandle, EventHandle, unsigned)                                                  \
  X(cuStreamBeginCapture_v2, StreamHandle, int)                                                              \
  X(cuStreamIsCapturing, StreamHandle, int*)                                                                 \
  X(cuStreamEndCapture, StreamHandle, GraphHandle*)                                                          \
  X(cuStreamGetCaptureInfo_v3, StreamHandle, int*, unsigned long long*, GraphHandle*, const GraphNode**,     \
    const void**, size_t*)                                                                                   \
  X(cuStreamUpdateCaptureDependencies_v2, StreamHandle, GraphNode*, const void*, size_t, unsigned)           \
  X(cuEventCreate, EventHandle*, unsigned)                                                                   \
  X(cuEventDestroy_v2, EventHandle)                                                                          \
  X(cuEventRecord, EventHandle, StreamHandle)                                                                \
  X(cuEventSynchronize, EventHandle)                                                                         \
  X(cuEventQuery, EventHandle)                                                                               \
  X(cuEventElapsedTime_v2, float*, EventHandle, EventHandle)                                                 \
  X(cuPointerGetAttributes, unsigned, int*, void**, Pointer)                                                 \
  X(cuModuleLoadData, ModuleHandle*, const void*)                                                            \
  X(cuModuleUnload, ModuleHandle)                                                                            \
  X(cuModuleGetFunction, Function*, ModuleHandle, const char*)                                               \
  X(cuFuncGetAttribute, int*, int, Function)                                                                 \
  X(cuFuncSetAttribute, Function, int, int)                                                                  \
  X(cuLaunchKernelEx, const LaunchConfig*, Function, void**, void**)                                         \
  X(cuGraphGetNodes, GraphHandle, GraphNode*, size_t*)                                                       \
  X(cuGraphNodeGetType, GraphNode, int*)                                                                     \
  X(cuGraphNodeGetDependencies_v2, GraphNode, GraphNode*, void*, size_t*)                                    \
  X(cuGraphNodeGetDependentNodes_v2, GraphNode, GraphNode*, void*, size_t*)                                  \
  X(cuGraphAddDependencies_v2, GraphHandle, const GraphNode*, const GraphNode*, const void*, size_t)         \
  X(cuGraphDestroyNode, GraphNode)                                                                           \
  X(cuGraphMemsetNodeGetParams, GraphNode, FillNode*)                                                        \
  X(cuGraphAddMemsetNode, GraphNode*, GraphHandle, const GraphNode*, size_t, const FillNode*, Context)       \
  X(cuGraphInstantiateWithFlags, GraphExec*, GraphHandle, unsigned long long)                                \
  X(cuGraphMemcpyNodeGetParams, GraphNode, CopyNode*)                                                        \
  X(cuGraphExecMemcpyNodeSetParams, GraphExec, GraphNode, const CopyNode*, Context)                          \
  X(cuGraphExecKernelNodeSetParams_v2, GraphExec, GraphNode, const KernelNode*)                              \
  X(cuGraphUpload, GraphExec, StreamHandle)                                                                  \
  X(cuGraphLaunch, GraphExec, StreamHandle)                                                                  \
  X(cuGraphExecDestroy, GraphExec)                                                                           \
  X(cuGraphDestroy, GraphHandle)

/// One pointer per function, named as in the library.
struct Driver {
#define X(name, ...) Result (*name)(__VA_ARGS__) = nullptr;
  TBX_CUDA_DRIVER(X)
#undef X
  int version = 0; ///< of CUDA, as 1000 * major + 10 * minor
};

/// The initialised driver. Throws BackendError when there is none, it is too old (it must speak CUDA 13,
/// whose libraries are used), or there is no GPU.
const Driver& driver();

/// The driver's own words.
std::string text_of(Result result);
/// Throws BackendError with the driver's own words; `what` is what we did.
void check(Result result, const char* what);

} // namespace tbx::device::cuda
