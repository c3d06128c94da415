// Target: what decisions of the compiler depend on about the machine that will run its result. Made in one
// place (driver/target.h) and handed to the stages; tests pin a fake one.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace tbx {

struct Target {
  int vector_bytes = 32; ///< 64 AVX-512, 32 AVX2, 16 SSE; the same for all GPUs
  int threads = 2;
  int64_t l1_bytes = 32 << 10; ///< of a core, for data
  int64_t l2_bytes = 1 << 20;  ///< of a core; for GPUs what it is here, whatever the host has
  bool cuda = false;
  bool byte_products = false; ///< exact products of 8-bit integers at full speed (AVX512-VNNI)
  bool bf16_products = false; ///< products of bfloat16, added in float32 (AVX512-BF16, AMX, GPUs)
  bool f16_products = false;  ///< of float16 (AVX512-FP16, GPUs)

  /// Products of this 16-bit type are faster than those of float32.
  bool multiplies(DType type) const {
    return (type == DType::bf16 && bf16_products) || (type == DType::f16 && f16_products);
  }
};

} // namespace tbx
