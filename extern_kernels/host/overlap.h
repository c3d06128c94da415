// Boxes kept by non-maximum suppression, and whether a further box overlaps one of them too much.
#pragma once

#include <cstdint>
#include <vector>

namespace tbx::extern_kernels {

struct Box {
  float y1, x1, y2, x2;
  float area() const { return (y2 - y1) * (x2 - x1); }
};

class KeptBoxes {
public:
  void add(const Box& box);
  /// True when the intersection over union of `box` and a kept one is above `limit`.
  bool overlaps(const Box& box, float limit) const;

private:
  static constexpr int64_t kLanes = 16;
  /// y1, x1, y2, x2, area of 16 boxes at a time; those that are not there yet are empty.
  std::vector<float> blocks_;
  int64_t count_ = 0;
};

} // namespace tbx::extern_kernels
