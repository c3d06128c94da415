// The declarations of NVIDIA's driver against its own header, where that is installed.
#include <gtest/gtest.h>

#include "device/cuda/driver.h"

#if __has_include(<cuda.h>)
#include <cuda.h>

#include <type_traits>

namespace tbx::test {
namespace {

namespace ours = device::cuda;

/// Enumerations are passed as int; everything else has to be the same in size.
template <class A, class B> constexpr bool alike = sizeof(A) == sizeof(B);
template <class F, class G> struct SameForm : std::false_type {};
template <class R, class... A, class S, class... B>
struct SameForm<R (*)(A...), S (*)(B...)> : std::bool_constant<sizeof...(A) == sizeof...(B) && alike<R, S>> {
  static constexpr bool parameters() {
    if constexpr (sizeof...(A) == sizeof...(B))
      return (alike<A, B> && ...);
    else
      return false;
  }
};

TEST(Driver, DeclarationsFitTheHeader) {
#define X(name, ...)                                                                                         \
  EXPECT_TRUE((SameForm<decltype(ours::Driver::name), decltype(&::name)>::parameters())) << #name;
  TBX_CUDA_DRIVER(X)
#undef X
}

TEST(Driver, NumbersFitTheHeader) {
  EXPECT_EQ(sizeof(ours::LaunchConfig), sizeof(CUlaunchConfig));
  EXPECT_EQ(offsetof(ours::LaunchConfig, stream), offsetof(CUlaunchConfig, hStream));
  EXPECT_EQ(offsetof(ours::LaunchConfig, attributes), offsetof(CUlaunchConfig, attrs));
  EXPECT_EQ(offsetof(ours::LaunchConfig, num_attributes), offsetof(CUlaunchConfig, numAttrs));
  EXPECT_EQ(sizeof(ours::LaunchAttribute), sizeof(CUlaunchAttribute));
  EXPECT_EQ(offsetof(ours::LaunchAttribute, value), offsetof(CUlaunchAttribute, value));
  EXPECT_EQ(ours::kProgrammaticStreamSerialization, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
  EXPECT_EQ(ours::kClusterDimension, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
  EXPECT_EQ(ours::kMultiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  EXPECT_EQ(ours::kL2Bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  EXPECT_EQ(ours::kMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  EXPECT_EQ(ours::kMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  EXPECT_EQ(ours::kSharedBytesOptin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  EXPECT_EQ(ours::kStaticShared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  EXPECT_EQ(ours::kMaxDynamicShared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  EXPECT_EQ(ours::kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(ours::kNotReady, CUDA_ERROR_NOT_READY);
  EXPECT_EQ(ours::kPointerMemoryType, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
  EXPECT_EQ(ours::kPointerDeviceOrdinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
  EXPECT_EQ(ours::kPointerRangeStart, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
  EXPECT_EQ(ours::kPointerRangeSize, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
  EXPECT_EQ(ours::kDeviceMemory, CU_MEMORYTYPE_DEVICE);
  EXPECT_EQ(ours::kHostMemory, CU_MEMORYTYPE_HOST);
  EXPECT_EQ(sizeof(ours::CopyNode), sizeof(CUDA_MEMCPY3D));
  EXPECT_EQ(offsetof(ours::CopyNode, from.device), offsetof(CUDA_MEMCPY3D, srcDevice));
  EXPECT_EQ(offsetof(ours::CopyNode, to.device), offsetof(CUDA_MEMCPY3D, dstDevice));
  EXPECT_EQ(offsetof(ours::CopyNode, width), offsetof(CUDA_MEMCPY3D, WidthInBytes));
  EXPECT_EQ(ours::kFillNode, CU_GRAPH_NODE_TYPE_MEMSET);
  EXPECT_EQ(sizeof(ours::FillNode), sizeof(CUDA_MEMSET_NODE_PARAMS));
  EXPECT_EQ(offsetof(ours::FillNode, value), offsetof(CUDA_MEMSET_NODE_PARAMS, value));
  EXPECT_EQ(offsetof(ours::FillNode, element_bytes), offsetof(CUDA_MEMSET_NODE_PARAMS, elementSize));
  EXPECT_EQ(offsetof(ours::FillNode, width), offsetof(CUDA_MEMSET_NODE_PARAMS, width));
  EXPECT_EQ(sizeof(ours::KernelNode), sizeof(CUDA_KERNEL_NODE_PARAMS_v2));
  EXPECT_EQ(offsetof(ours::KernelNode, grid_x), offsetof(CUDA_KERNEL_NODE_PARAMS_v2, gridDimX));
  EXPECT_EQ(offsetof(ours::KernelNode, block_x), offsetof(CUDA_KERNEL_NODE_PARAMS_v2, blockDimX));
  EXPECT_EQ(offsetof(ours::KernelNode, shared_bytes), offsetof(CUDA_KERNEL_NODE_PARAMS_v2, sharedMemBytes));
  EXPECT_EQ(offsetof(ours::KernelNode, arguments), offsetof(CUDA_KERNEL_NODE_PARAMS_v2, kernelParams));
  EXPECT_EQ(offsetof(ours::KernelNode, context), offsetof(CUDA_KERNEL_NODE_PARAMS_v2, ctx));
}

} // namespace
} // namespace tbx::test

#endif
