// Target: what decisions of the compiler depend on about the machine that will run its result. Made in one
// place (driver/target.h) and handed to the stages; tests pin a fake one.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace tbx {

/// What a GPU runs side by side and holds close by: by it kernels are cut for its threads. The numbers are
/// those of large ones (sm_80 to sm_90) and the same for all, so that a package has the same kernels wherever
/// it is made; only the shared memory is that of the device at hand.
struct Gpu {
  static constexpr int kAccessBytes = 16; ///< of the widest access of a thread

  int64_t threads = 1 << 18;        ///< that run side by side: 2048 on each of 128 multiprocessors
  int block_threads = 1024;         ///< most threads of a block
  int64_t registers = 1 << 16;      ///< of a multiprocessor, for all of its threads
  int64_t instructions = 6000;      ///< that stay in its caches where a block goes through them together
  int64_t warp_instructions = 4096; ///< the same where every warp is somewhere else
  int64_t l2_bytes = 4 << 20;       ///< what one kernel may count on of the cache of all multiprocessors
  int64_t shared_bytes = 48 << 10;  ///< that a block may ask for: what every GPU gives
  int64_t lonely_bytes = 112 << 10; ///< of shared memory: a block with more is alone on its multiprocessor
  int64_t crowded_bytes = 40 << 10; ///< with no more several blocks are on one
  int64_t channels = 8;             ///< its libraries are fast with multiples of so many
  int64_t part_of_column = 256;     ///< elements of a sum that are worth a warp of their own
  int64_t part_of_row = 1 << 14;    ///< and a block

  int64_t warps() const { return threads / 32; }
  /// Blocks that fill it, half as large as they may be: larger ones have few registers for each thread.
  int64_t blocks() const { return threads / (block_threads / 2); }
  /// Registers of each thread of blocks of so many.
  int64_t registers_of(int64_t of_block) const {
    return registers / (of_block > block_threads / 2 ? block_threads : block_threads / 2);
  }
};

struct Target {
  int vector_bytes = 32; ///< 64 AVX-512, 32 AVX2, 16 SSE; the same for all GPUs
  int threads = 2;
  int64_t l1_bytes = 32 << 10; ///< of a core, for data
  int64_t l2_bytes = 1 << 20;  ///< of a core; for GPUs what it is here, whatever the host has
  int64_t short_row = 8;       ///< rows of fewer elements do not fill the lanes of vectors
  double cycles_per_ns = 3;    ///< of a core, about
  bool cuda = false;
  Gpu gpu; ///< where `cuda`
  /// Exact products of 8-bit integers are faster than those of float32; of convolutions, groups of as many
  /// results, and terms in each. 0: none are.
  int64_t byte_group = 0;
  bool bf16_products = false; ///< products of bfloat16, added in float32 (AVX512-BF16, AMX, GPUs)
  bool f16_products = false;  ///< of float16 (AVX512-FP16, GPUs)

  /// Products of this 16-bit type are faster than those of float32.
  bool multiplies(DType type) const {
    return (type == DType::bf16 && bf16_products) || (type == DType::f16 && f16_products);
  }
};

} // namespace tbx
