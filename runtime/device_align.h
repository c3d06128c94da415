// Where memory that plans have on a device begins.
#pragma once

#include <cstddef>

namespace tbx::runtime {

inline constexpr size_t kDeviceAlign = 256;

/// Bytes up to the next place where memory may begin.
inline size_t device_aligned(size_t bytes) {
  return (bytes + kDeviceAlign - 1) / kDeviceAlign * kDeviceAlign;
}

} // namespace tbx::runtime
