#include "runtime/step_order.h"

#include <algorithm>
#include <cstdint>

namespace tbx::runtime {
namespace {

bool meet(const Access& a, const Access& b) {
  return (a.writes || b.writes) && a.begin < b.end && b.begin < a.end;
}

bool meet(const std::vector<Access>& a, const std::vector<Access>& b) {
  return std::any_of(a.begin(), a.end(), [&](const Access& x) {
    return std::any_of(b.begin(), b.end(), [&](const Access& y) { return meet(x, y); });
  });
}

} // namespace

std::vector<std::vector<size_t>> order_of(std::span<const std::vector<Access>> steps) {
  constexpr size_t kBits = 64;
  const size_t words = (steps.size() + kBits - 1) / kBits;
  std::vector<std::vector<size_t>> order(steps.size());
  std::vector<uint64_t> before(steps.size() * words); // by step: a bit for each that is done when it begins
  for (size_t s = 0; s < steps.size(); ++s) {
    uint64_t* mine = before.data() + s * words;
    for (size_t t = s; t-- > 0;) {
      if ((mine[t / kBits] >> t % kBits & 1) != 0 || !meet(steps[s], steps[t])) continue;
      order[s].push_back(t);
      const uint64_t* theirs = before.data() + t * words;
      for (size_t w = 0; w < words; ++w) mine[w] |= theirs[w];
      mine[t / kBits] |= uint64_t{1} << t % kBits;
    }
  }
  return order;
}

} // namespace tbx::runtime
