// Target: what decisions of the compiler depend on about the machine that will run its result. Made in one
// place (driver/target.h) and handed to the stages; tests pin a fake one.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/isa.h"

namespace tbx {

/// What a GPU runs side by side and holds close by: by it kernels are cut for its threads. The numbers are
/// those of large ones (sm_80 to sm_90) and the same for all, so that a package has the same kernels wherever
/// it is made; only the shared memory is that of the device at hand.
struct Gpu {
  static constexpr int kAccessBytes = 16; ///< of the widest access of a thread
  static constexpr int kWarp = 32;        ///< threads

  int64_t threads = 1 << 18;          ///< that run side by side: 2048 on each of 128 multiprocessors
  int block_threads = 1024;           ///< most threads of a block
  int64_t registers = 1 << 16;        ///< of a multiprocessor, for all of its threads
  int64_t instructions = 6000;        ///< that stay in its caches where a block goes through them together
  int64_t warp_instructions = 4096;   ///< the same where every warp is somewhere else
  int64_t l2_bytes = 4 << 20;         ///< what one kernel may count on of the cache of all multiprocessors
  int64_t shared_bytes = 48 << 10;    ///< that a block may ask for: what every GPU gives
  int64_t crowded_bytes = 40 << 10;   ///< with no more several blocks are on one
  int64_t channels = 8;               ///< its libraries are fast with multiples of so many
  int64_t part_of_column = 256;       ///< elements of a sum that are worth a warp of their own
  int64_t part_of_row = 1 << 14;      ///< and a block
  int64_t long_scan_of_row = 1 << 13; ///< elements of a running sum that blocks share where rows are few
  int64_t long_scan_of_column = 128;  ///< and where columns are
  int usual_threads = 128;            ///< of a block whose threads need nothing of each other
  int tile_threads = 128;         ///< of a block that turns tiles in shared memory; more wait for each other
  int most_lanes = 8;             ///< elements that a thread takes at once: more would only take registers
  int64_t reduce_bytes = 4 << 10; ///< of shared memory, for reductions of a block beside its rows
  int flush = 256;                ///< float32 values that a thread sums before it adds them to a float64
  int64_t short_row = 16;         ///< inner points that one thread runs alone
  int64_t short_column = 32;      ///< of fewer, each column has a thread
  int64_t long_column = 256;      ///< from so many on a block reads a column at once
  int64_t long_row = 2048;        ///< beside which both ends, less than a vector each, count for nothing
  int64_t short_code = 64;        ///< instructions per point with which a thread has several vectors
  int64_t vectors_of_thread = 4;  ///< and so many of them

  int64_t warps() const { return threads / kWarp; }
  /// Blocks that fill it, half as large as they may be: larger ones have few registers for each thread.
  int64_t blocks() const { return threads / (block_threads / 2); }
  /// Registers of each thread of blocks of so many.
  int64_t registers_of(int64_t of_block) const {
    return registers / (of_block > block_threads / 2 ? block_threads : block_threads / 2);
  }
};

struct Target {
  /// Rows of fewer elements do not fill the lanes of vectors; and cycles of a core, about. Both are taken to
  /// be the same for all CPUs: by them layouts and estimates are made, and a package has the same wherever it
  /// is made.
  static constexpr int64_t kShortRow = 8;
  static constexpr double kCyclesPerNs = 3;

  Isa isa = Isa::avx2; ///< of generated kernels for the CPU, those beside a GPU included
  /// What the CPU runs, of which library kernels take all: more than `isa` where a session asks for less.
  Isa library_isa = Isa::avx2;
  int threads = 2;
  int64_t l1_bytes = 32 << 10; ///< of a core, for data
  int64_t l2_bytes = 1 << 20;  ///< of a core; for GPUs what it is here, whatever the host has
  bool cuda = false;
  Gpu gpu; ///< where `cuda`
  /// Exact products of 8-bit integers are faster than those of float32; of convolutions, groups of as many
  /// results, and terms in each. 0: none are.
  int64_t byte_group = 0;
  /// Products of bfloat16, added in float32, are faster than those of float32 (AMX, most CPUs with
  /// AVX512-BF16, GPUs).
  bool bf16_products = false;
  bool f16_products = false; ///< of float16 (AMX-FP16, GPUs)
  /// It multiplies vectors of 512 bits at the rate of narrower ones: products wait for weights in memory.
  bool wide_multipliers = false;
  bool bf16_tiles = false; ///< attention multiplies bfloat16 in registers of tiles (AMX)

  /// 64 with AVX-512, 32 with AVX2, 16 with SSE; the same for all GPUs.
  int vector_bytes() const { return tbx::vector_bytes(cuda ? Isa::avx512 : isa); }
  /// float32 values of a vector of the CPU, beside a GPU, too.
  int cpu_lanes() const { return tbx::vector_bytes(isa) / 4; }

  /// Products of this 16-bit type are faster than those of float32.
  bool multiplies(DType type) const {
    return (type == DType::bf16 && bf16_products) || (type == DType::f16 && f16_products);
  }
};

/// The CPU at hand, as it was made: its instruction set and the caches of a core. How many threads work is
/// not its to say, and what its libraries multiply is what they say (extern_kernels/catalogue.h).
Target host_target();

} // namespace tbx
