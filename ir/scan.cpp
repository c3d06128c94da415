#include "ir/scan.h"

namespace tbx::ir {

ScanLoops loops_of_scan(Context& c, const Loops& scan) {
  ScanLoops loops;
  for (size_t k = 0; k < scan.ranges.size(); ++k) {
    const SymInt n = scan.ranges[k];
    if (static_cast<int>(k) == scan.scan_axis) {
      loops.inner = n;
      loops.at.push_back(scan.reverse ? n - SymInt(1) - c.rvar(0) : c.rvar(0));
    } else {
      loops.outer.push_back(n);
      loops.at.push_back(c.var(static_cast<int>(loops.outer.size()) - 1));
    }
  }
  return loops;
}

} // namespace tbx::ir
