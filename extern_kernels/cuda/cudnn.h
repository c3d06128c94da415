// The functions of cuDNN's backend interface that tensorbox calls, as a table filled at run time, and the
// numbers they take. Declared here and not taken from cudnn_backend.h: see device/cuda/driver.h.
// tests/device/library_headers_test.cpp holds them against that header where there is one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "device/cuda/driver.h"

namespace tbx::extern_kernels::cuda::dnn {

using Status = int;
using Handle = struct cudnnContext*;
using Descriptor = void*;

// cudnnDataType_t
inline constexpr int kF32 = 0, kF64 = 1, kF16 = 2, kI32 = 4, kBf16 = 9, kBool = 11;
// cudnnBackendAttributeType_t
inline constexpr int kTypeHandle = 0, kTypeDataType = 1, kTypeBool = 2, kTypeI64 = 3, kTypeF32 = 4,
                     kTypePointer = 6, kTypeConvMode = 7, kTypeHeurMode = 8, kTypeNumericalNote = 11,
                     kTypePointwiseMode = 14, kTypeDescriptor = 15, kTypeReduction = 18,
                     kTypeBehaviorNote = 19, kTypeChar = 24;
// cudnnBackendDescriptorType_t
inline constexpr int kPointwise = 0, kConvolution = 1, kEngine = 2, kEngineConfig = 3, kHeuristics = 4,
                     kPlan = 5, kForward = 10, kBackwardData = 12, kPointwiseOperation = 13, kGraph = 15,
                     kVariantPack = 16, kTensor = 17, kMatmul = 18, kMatmulOperation = 19, kReduction = 21,
                     kReductionOperation = 22;
// cudnnBackendAttributeName_t
inline constexpr int kPointwiseMode = 0, kPointwisePrecision = 1, kPointwiseAxis = 9;
inline constexpr int kConvCompute = 100, kConvMode = 101, kConvDilations = 102, kConvStrides = 103,
                     kConvPost = 104, kConvPre = 105, kConvRank = 106;
inline constexpr int kHeurMode = 200, kHeurGraph = 201, kHeurResults = 202;
inline constexpr int kConfigEngine = 300;
inline constexpr int kPlanHandle = 400, kPlanConfig = 401, kPlanWorkspace = 402, kPlanJson = 405;
inline constexpr int kForwardAlpha = 700, kForwardBeta = 701, kForwardConv = 702, kForwardW = 703,
                     kForwardX = 704, kForwardY = 705;
inline constexpr int kBackwardAlpha = 706, kBackwardBeta = 707, kBackwardConv = 708, kBackwardW = 709,
                     kBackwardDx = 710, kBackwardDy = 711;
inline constexpr int kPointwiseOp = 750, kPointwiseX = 751, kPointwiseB = 752, kPointwiseY = 753,
                     kPointwiseT = 758;
inline constexpr int kGraphHandle = 800, kGraphOps = 801;
inline constexpr int kTensorAlign = 900, kTensorType = 901, kTensorSizes = 902, kTensorStrides = 903,
                     kTensorId = 906, kTensorVirtual = 907, kTensorByValue = 908;
inline constexpr int kPackIds = 1000, kPackPointers = 1001, kPackWorkspace = 1003;
inline constexpr int kEngineIndex = 1301, kEngineNumericalNote = 1303, kEngineBehaviorNote = 1305;
inline constexpr int kMatmulCompute = 1500, kMatmulA = 1520, kMatmulB = 1521, kMatmulC = 1522,
                     kMatmulDesc = 1523;
inline constexpr int kReductionOperator = 1600, kReductionCompute = 1601, kReductionX = 1610,
                     kReductionY = 1611, kReductionDesc = 1612;
// cudnnPointwiseMode_t
inline constexpr int kAdd = 0, kMul = 1, kDiv = 6, kSub = 9, kExp = 13, kLog = 15, kReluForward = 100,
                     kGeluForward = 104, kGreaterOrEqual = 303, kGenIndex = 501, kSelect = 601;
// cudnnReduceTensorOp_t
inline constexpr int kReduceAdd = 0, kReduceMax = 3;
// cudnnBackendHeurMode_t, cudnnConvolutionMode_t
inline constexpr int kHeurA = 3, kHeurFallback = 2, kCrossCorrelation = 1;
// cudnnBackendNumericalNote_t, cudnnBackendBehaviorNote_t
inline constexpr int kNoteTensorCore = 0, kNoteDownConvert = 1, kNoteReducedSum = 2, kNoteFft = 3,
                     kNoteWinograd = 5, kNumericalNotes = 10, kNoteRuntimeCompiled = 0, kBehaviorNotes = 5;

// X(name in the library, result, parameters...)
#define TBX_CUDNN(X)                                                                                         \
  X(cudnnGetVersion, size_t)                                                                                 \
  X(cudnnGetErrorString, const char*, Status)                                                                \
  X(cudnnGetLastErrorString, void, char*, size_t)                                                            \
  X(cudnnCreate, Status, Handle*)                                                                            \
  X(cudnnSetStream, Status, Handle, device::cuda::StreamHandle)                                              \
  X(cudnnBackendCreateDescriptor, Status, int, Descriptor*)                                                  \
  X(cudnnBackendDestroyDescriptor, Status, Descriptor)                                                       \
  X(cudnnBackendSetAttribute, Status, Descriptor, int, int, int64_t, const void*)                            \
  X(cudnnBackendGetAttribute, Status, Descriptor, int, int, int64_t, int64_t*, void*)                        \
  X(cudnnBackendFinalize, Status, Descriptor)                                                                \
  X(cudnnBackendExecute, Status, Handle, Descriptor, Descriptor)

/// One pointer per function, named as in the library.
struct Library {
#define X(name, result, ...) result (*name)(__VA_ARGS__) = nullptr;
  TBX_CUDNN(X)
#undef X
};

/// Throws BackendError when there is no cuDNN, or one older than 9.10.
const Library& library();
/// Throws BackendError with the library's own words; `what` is what we did.
void check(Status status, const char* what);
/// "cuDNN 9.19.0".
std::string version();

} // namespace tbx::extern_kernels::cuda::dnn
