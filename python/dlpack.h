// DLPack's structures (dmlc/dlpack, ABI 1), as they lie in the capsules that libraries hand each other.
#pragma once

#include <cstdint>

namespace tbx::python {

enum DlDevice : int32_t { kDlCpu = 1, kDlCuda = 2, kDlCudaManaged = 13 };

struct DlTensor {
  void* data;
  int32_t device_type, device_id, ndim;
  uint8_t code, bits; ///< of an element
  uint16_t lanes;
  int64_t *shape, *strides; ///< in elements; no strides: dense
  uint64_t byte_offset;
};

struct DlManaged {
  DlTensor tensor;
  void* context;
  void (*deleter)(DlManaged*);
};

inline constexpr uint64_t kDlReadOnly = 1;

struct DlManagedVersioned {
  uint32_t major, minor;
  void* context;
  void (*deleter)(DlManagedVersioned*);
  uint64_t flags;
  DlTensor tensor;
};

/// Code and bits of an element, by the ONNX type.
struct DlType {
  int32_t onnx;
  uint8_t code, bits;
};
// Floats of 4 and 6 bits and integers of less than a byte lie otherwise in our memory.
inline constexpr DlType kDlTypes[] = {{1, 2, 32},  {2, 1, 8},   {3, 0, 8},   {4, 1, 16},   {5, 0, 16},
                                      {6, 0, 32},  {7, 0, 64},  {9, 6, 8},   {10, 2, 16},  {11, 2, 64},
                                      {12, 1, 32}, {13, 1, 64}, {14, 5, 64}, {15, 5, 128}, {16, 4, 16},
                                      {17, 10, 8}, {18, 11, 8}, {19, 12, 8}, {20, 13, 8},  {24, 14, 8}};

} // namespace tbx::python
