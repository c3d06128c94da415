// The declarations of cuBLASLt and cuDNN against their own headers, where those are installed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <type_traits>

#include "base/error.h"
#include "device/library.h"
#include "extern_kernels/cuda/cublas_lt.h"
#include "extern_kernels/cuda/cudnn.h"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#endif
#if __has_include(<cudnn_graph.h>)
#include <cudnn_graph.h>
#endif

namespace tbx::test {
namespace {

namespace lt = extern_kernels::cuda::lt;
namespace dnn = extern_kernels::cuda::dnn;

/// Enumerations are passed as int, descriptors as pointers; everything has to be the same in size.
template <class F, class G> struct SameForm : std::false_type {};
template <class R, class... A, class S, class... B>
struct SameForm<R (*)(A...), S (*)(B...)> : std::bool_constant<sizeof...(A) == sizeof...(B)> {
  template <class T, class U> static constexpr bool alike() {
    if constexpr (std::is_void_v<T> || std::is_void_v<U>)
      return std::is_void_v<T> && std::is_void_v<U>;
    else
      return sizeof(T) == sizeof(U);
  }
  static constexpr bool parameters() {
    if constexpr (sizeof...(A) == sizeof...(B))
      return alike<R, S>() && (alike<A, B>() && ...);
    else
      return false;
  }
};

#if __has_include(<cublasLt.h>)
TEST(LibraryHeaders, CublasLt) {
#define X(name, ...)                                                                                         \
  EXPECT_TRUE((SameForm<decltype(lt::Library::name), decltype(&::name)>::parameters())) << #name;
  TBX_CUBLAS_LT(X)
#undef X
  EXPECT_EQ(sizeof(lt::Algo), sizeof(cublasLtMatmulAlgo_t));
  EXPECT_EQ(sizeof(lt::Result), sizeof(cublasLtMatmulHeuristicResult_t));
  EXPECT_EQ(offsetof(lt::Result, workspace), offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
  EXPECT_EQ(offsetof(lt::Result, state), offsetof(cublasLtMatmulHeuristicResult_t, state));
  const std::pair<int, int> numbers[] = {
      {lt::kF32, CUDA_R_32F},
      {lt::kF64, CUDA_R_64F},
      {lt::kF16, CUDA_R_16F},
      {lt::kI8, CUDA_R_8I},
      {lt::kI32, CUDA_R_32I},
      {lt::kBf16, CUDA_R_16BF},
      {lt::kComputeF32, CUBLAS_COMPUTE_32F},
      {lt::kComputeF64, CUBLAS_COMPUTE_64F},
      {lt::kComputeI32, CUBLAS_COMPUTE_32I},
      {lt::kComputeTf32, CUBLAS_COMPUTE_32F_FAST_TF32},
      {lt::kBatchCount, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT},
      {lt::kBatchOffset, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET},
      {lt::kTransposeA, CUBLASLT_MATMUL_DESC_TRANSA},
      {lt::kTransposeB, CUBLASLT_MATMUL_DESC_TRANSB},
      {lt::kEpilogue, CUBLASLT_MATMUL_DESC_EPILOGUE},
      {lt::kBiasPointer, CUBLASLT_MATMUL_DESC_BIAS_POINTER},
      {lt::kBiasType, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE},
      {lt::kDefault, CUBLASLT_EPILOGUE_DEFAULT},
      {lt::kRelu, CUBLASLT_EPILOGUE_RELU},
      {lt::kBias, CUBLASLT_EPILOGUE_BIAS},
      {lt::kRelu | lt::kBias, CUBLASLT_EPILOGUE_RELU_BIAS},
      {lt::kGelu, CUBLASLT_EPILOGUE_GELU},
      {lt::kGelu | lt::kBias, CUBLASLT_EPILOGUE_GELU_BIAS},
      {lt::kMostWorkspace, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES},
      {lt::kAlignA, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES},
      {lt::kAlignB, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES},
      {lt::kAlignC, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES},
      {lt::kAlignD, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES},
      {lt::kTransposed, CUBLAS_OP_T},
  };
  for (size_t i = 0; i < std::size(numbers); ++i) EXPECT_EQ(numbers[i].first, numbers[i].second) << i;
}
#endif

#if __has_include(<cudnn_graph.h>)
TEST(LibraryHeaders, Cudnn) {
#define X(name, ...)                                                                                         \
  EXPECT_TRUE((SameForm<decltype(dnn::Library::name), decltype(&::name)>::parameters())) << #name;
  TBX_CUDNN(X)
#undef X
  const std::pair<int, int> numbers[] = {
      {dnn::kF32, CUDNN_DATA_FLOAT},
      {dnn::kF16, CUDNN_DATA_HALF},
      {dnn::kBf16, CUDNN_DATA_BFLOAT16},
      {dnn::kI32, CUDNN_DATA_INT32},
      {dnn::kBool, CUDNN_DATA_BOOLEAN},
      {dnn::kTypeHandle, CUDNN_TYPE_HANDLE},
      {dnn::kTypeDataType, CUDNN_TYPE_DATA_TYPE},
      {dnn::kTypeBool, CUDNN_TYPE_BOOLEAN},
      {dnn::kTypeI64, CUDNN_TYPE_INT64},
      {dnn::kTypeF32, CUDNN_TYPE_FLOAT},
      {dnn::kTypePointer, CUDNN_TYPE_VOID_PTR},
      {dnn::kTypeConvMode, CUDNN_TYPE_CONVOLUTION_MODE},
      {dnn::kTypeHeurMode, CUDNN_TYPE_HEUR_MODE},
      {dnn::kTypeNumericalNote, CUDNN_TYPE_NUMERICAL_NOTE},
      {dnn::kTypePointwiseMode, CUDNN_TYPE_POINTWISE_MODE},
      {dnn::kTypeDescriptor, CUDNN_TYPE_BACKEND_DESCRIPTOR},
      {dnn::kTypeReduction, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE},
      {dnn::kTypeBehaviorNote, CUDNN_TYPE_BEHAVIOR_NOTE},
      {dnn::kTypeChar, CUDNN_TYPE_CHAR},
      {dnn::kPointwise, CUDNN_BACKEND_POINTWISE_DESCRIPTOR},
      {dnn::kConvolution, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR},
      {dnn::kEngine, CUDNN_BACKEND_ENGINE_DESCRIPTOR},
      {dnn::kEngineConfig, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR},
      {dnn::kHeuristics, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR},
      {dnn::kPlan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR},
      {dnn::kForward, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR},
      {dnn::kBackwardData, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR},
      {dnn::kPointwiseOperation, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR},
      {dnn::kGraph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR},
      {dnn::kVariantPack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR},
      {dnn::kTensor, CUDNN_BACKEND_TENSOR_DESCRIPTOR},
      {dnn::kMatmul, CUDNN_BACKEND_MATMUL_DESCRIPTOR},
      {dnn::kMatmulOperation, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR},
      {dnn::kReduction, CUDNN_BACKEND_REDUCTION_DESCRIPTOR},
      {dnn::kReductionOperation, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR},
      {dnn::kPointwiseMode, CUDNN_ATTR_POINTWISE_MODE},
      {dnn::kPointwisePrecision, CUDNN_ATTR_POINTWISE_MATH_PREC},
      {dnn::kPointwiseAxis, CUDNN_ATTR_POINTWISE_AXIS},
      {dnn::kConvCompute, CUDNN_ATTR_CONVOLUTION_COMP_TYPE},
      {dnn::kConvMode, CUDNN_ATTR_CONVOLUTION_CONV_MODE},
      {dnn::kConvDilations, CUDNN_ATTR_CONVOLUTION_DILATIONS},
      {dnn::kConvStrides, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES},
      {dnn::kConvPost, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS},
      {dnn::kConvPre, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS},
      {dnn::kConvRank, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS},
      {dnn::kHeurMode, CUDNN_ATTR_ENGINEHEUR_MODE},
      {dnn::kHeurGraph, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH},
      {dnn::kHeurResults, CUDNN_ATTR_ENGINEHEUR_RESULTS},
      {dnn::kConfigEngine, CUDNN_ATTR_ENGINECFG_ENGINE},
      {dnn::kPlanHandle, CUDNN_ATTR_EXECUTION_PLAN_HANDLE},
      {dnn::kPlanConfig, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG},
      {dnn::kPlanWorkspace, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE},
      {dnn::kPlanJson, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION},
      {dnn::kForwardAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA},
      {dnn::kForwardBeta, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
      {dnn::kForwardConv, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC},
      {dnn::kForwardW, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W},
      {dnn::kForwardX, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X},
      {dnn::kForwardY, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
      {dnn::kBackwardAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA},
      {dnn::kBackwardBeta, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
      {dnn::kBackwardConv, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC},
      {dnn::kBackwardW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W},
      {dnn::kBackwardDx, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX},
      {dnn::kBackwardDy, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
      {dnn::kPointwiseOp, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR},
      {dnn::kPointwiseX, CUDNN_ATTR_OPERATION_POINTWISE_XDESC},
      {dnn::kPointwiseB, CUDNN_ATTR_OPERATION_POINTWISE_BDESC},
      {dnn::kPointwiseY, CUDNN_ATTR_OPERATION_POINTWISE_YDESC},
      {dnn::kPointwiseT, CUDNN_ATTR_OPERATION_POINTWISE_TDESC},
      {dnn::kGraphHandle, CUDNN_ATTR_OPERATIONGRAPH_HANDLE},
      {dnn::kGraphOps, CUDNN_ATTR_OPERATIONGRAPH_OPS},
      {dnn::kTensorAlign, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT},
      {dnn::kTensorType, CUDNN_ATTR_TENSOR_DATA_TYPE},
      {dnn::kTensorSizes, CUDNN_ATTR_TENSOR_DIMENSIONS},
      {dnn::kTensorStrides, CUDNN_ATTR_TENSOR_STRIDES},
      {dnn::kTensorId, CUDNN_ATTR_TENSOR_UNIQUE_ID},
      {dnn::kTensorVirtual, CUDNN_ATTR_TENSOR_IS_VIRTUAL},
      {dnn::kTensorByValue, CUDNN_ATTR_TENSOR_IS_BY_VALUE},
      {dnn::kPackIds, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS},
      {dnn::kPackPointers, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS},
      {dnn::kPackWorkspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE},
      {dnn::kEngineIndex, CUDNN_ATTR_ENGINE_GLOBAL_INDEX},
      {dnn::kEngineNumericalNote, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE},
      {dnn::kEngineBehaviorNote, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE},
      {dnn::kMatmulCompute, CUDNN_ATTR_MATMUL_COMP_TYPE},
      {dnn::kMatmulA, CUDNN_ATTR_OPERATION_MATMUL_ADESC},
      {dnn::kMatmulB, CUDNN_ATTR_OPERATION_MATMUL_BDESC},
      {dnn::kMatmulC, CUDNN_ATTR_OPERATION_MATMUL_CDESC},
      {dnn::kMatmulDesc, CUDNN_ATTR_OPERATION_MATMUL_DESC},
      {dnn::kReductionOperator, CUDNN_ATTR_REDUCTION_OPERATOR},
      {dnn::kReductionCompute, CUDNN_ATTR_REDUCTION_COMP_TYPE},
      {dnn::kReductionX, CUDNN_ATTR_OPERATION_REDUCTION_XDESC},
      {dnn::kReductionY, CUDNN_ATTR_OPERATION_REDUCTION_YDESC},
      {dnn::kReductionDesc, CUDNN_ATTR_OPERATION_REDUCTION_DESC},
      {dnn::kAdd, CUDNN_POINTWISE_ADD},
      {dnn::kMul, CUDNN_POINTWISE_MUL},
      {dnn::kDiv, CUDNN_POINTWISE_DIV},
      {dnn::kSub, CUDNN_POINTWISE_SUB},
      {dnn::kExp, CUDNN_POINTWISE_EXP},
      {dnn::kLog, CUDNN_POINTWISE_LOG},
      {dnn::kReluForward, CUDNN_POINTWISE_RELU_FWD},
      {dnn::kGeluForward, CUDNN_POINTWISE_GELU_FWD},
      {dnn::kGreaterOrEqual, CUDNN_POINTWISE_CMP_GE},
      {dnn::kGenIndex, CUDNN_POINTWISE_GEN_INDEX},
      {dnn::kSelect, CUDNN_POINTWISE_BINARY_SELECT},
      {dnn::kReduceAdd, CUDNN_REDUCE_TENSOR_ADD},
      {dnn::kReduceMax, CUDNN_REDUCE_TENSOR_MAX},
      {dnn::kHeurA, CUDNN_HEUR_MODE_A},
      {dnn::kHeurFallback, CUDNN_HEUR_MODE_FALLBACK},
      {dnn::kCrossCorrelation, CUDNN_CROSS_CORRELATION},
      {dnn::kNoteTensorCore, CUDNN_NUMERICAL_NOTE_TENSOR_CORE},
      {dnn::kNoteDownConvert, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS},
      {dnn::kNoteReducedSum, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION},
      {dnn::kNoteFft, CUDNN_NUMERICAL_NOTE_FFT},
      {dnn::kNoteWinograd, CUDNN_NUMERICAL_NOTE_WINOGRAD},
      {dnn::kNoteRuntimeCompiled, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION},
  };
  for (size_t i = 0; i < std::size(numbers); ++i) EXPECT_EQ(numbers[i].first, numbers[i].second) << i;
  EXPECT_GE(dnn::kNumericalNotes, CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  EXPECT_GE(dnn::kBehaviorNotes, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT);
}
#endif

TEST(LibraryHeaders, MissingLibrariesNameTheirPackages) {
  for (const auto& [file, package] : {std::pair{"libcublasLt.so.13", "pip install nvidia-cublas"},
                                      std::pair{"libcudnn.so.9", "pip install nvidia-cudnn-cu13"}}) {
    try {
      device::cuda_library(file);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::backend);
      EXPECT_THAT(e.what(), testing::AllOf(testing::HasSubstr(file), testing::HasSubstr(package)));
    }
  }
}

} // namespace
} // namespace tbx::test
