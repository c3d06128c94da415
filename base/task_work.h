// What is worth a thread: from how much work on it is shared. One place for all kernels.
#pragma once

#include <cstdint>

namespace tbx {

/// Waking other threads takes some microseconds, and what they have made is fetched from their caches. Less
/// work than that is done by the thread that has it. Each is the least that is shared, in the unit in which
/// its kernels count; they differ by how fast one thread does such work. Measured on Zen 4.
struct TaskWork {
  double operations = 1 << 16;          ///< on elements, of products of tiles that gather their operands
  double factors = 1 << 17;             ///< of products whose operands lie in panels
  int64_t matrix_bytes = 128 << 10;     ///< that are read once, for few rows
  int64_t part_bytes = 64 << 10;        ///< the same of each task, where rows choose among matrices
  double layer_products = 1 << 21;      ///< of a recurrent layer, whose steps wait for each other
  int64_t step_bytes = 512 << 10;       ///< weights of one of these steps
  int64_t walks = 5000;                 ///< of a row down a tree
  int64_t seen_elements = 1 << 15;      ///< of each task that counts or copies what it selects
  int64_t compared_elements = 1 << 14;  ///< of each task that looks for the largest
  int64_t converted_elements = 1 << 16; ///< of each task that makes floats of halves
  int64_t generated_elements = 512; ///< of each task of a generated kernel: the runtime joins them by cost
  int64_t tasks_of_thread = 4;      ///< so many even out where they are unequal
};
inline constexpr TaskWork kTaskWork;

} // namespace tbx
