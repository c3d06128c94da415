// Layout: places of buffers in the arena of their device. Buffers that do not live at a time share memory.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "runtime/executable.h"

namespace tbx::runtime {

struct BufferShape {
  std::vector<int64_t> sizes, strides;
  int64_t bytes = 0;
  int64_t room = 0;    ///< bytes of its place, at least `bytes`
  int64_t offset = -1; ///< in the arena of its device; -1: not there
  bool known = false;  ///< false: a step of the run has yet to find its sizes
};

/// By buffer: on a device its place is the memory of a state.
std::vector<bool> places_of_states(const Executable& plan);

/// The buffers of a plan that need a place, by the steps during which they live: a buffer is compared with
/// those it meets only, so that a long chain takes time in proportion to its length.
class Lives {
public:
  Lives() = default;
  /// `made`: by buffer, a step brings the memory.
  Lives(const Executable& plan, const std::vector<bool>& made);

  bool needs_place(int b) const { return needs_place_[b]; }
  /// Calls fn with each that lives at a time when `b` does, once.
  template <class Fn> void for_each_met(const Executable& plan, int b, Fn fn) const {
    const BufferPlan& mine = plan.buffers[b];
    const size_t first = block_of(mine.first_step);
    for (size_t block = first; block <= block_of(mine.last_step); ++block)
      for (int p : blocks_[block]) {
        const BufferPlan& other = plan.buffers[p];
        if (other.first_step > mine.last_step || mine.first_step > other.last_step) continue;
        if (block == std::max(first, block_of(other.first_step))) fn(p);
      }
  }

private:
  static size_t block_of(int step) { return static_cast<size_t>(step) / 64; }
  std::vector<std::vector<int>> blocks_;
  std::vector<bool> needs_place_;
};

/// Bytes that a buffer takes in an arena.
int64_t place_of(int64_t bytes, DeviceKind device);

/// Gives `buffers`, all of one device, places between those that have one; greedy best fit: largest first,
/// each at the lowest gap free during its life, none across one of the `borders`. Where the last one ends.
int64_t lay_out(const Executable& plan, const Lives& lives, std::vector<int> buffers,
                std::vector<BufferShape>& shapes, std::span<const int64_t> borders = {});

} // namespace tbx::runtime
