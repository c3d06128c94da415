#include "ir/scan.h"

#include "base/error.h"

namespace tbx::ir {

TensorBox make_scan_of_parts(Program& p, ReduceOp op, DType dtype, SymInts ranges, int axis, SymInt part,
                             bool exclusive, bool reverse, Expr body) {
  TensorBox whole = make_scan(p, op, dtype, std::move(ranges), axis, exclusive, reverse, body);
  Loops loops = whole.storage()->loops();
  TBX_INTERNAL(mod(loops.ranges[static_cast<size_t>(axis)], part).is(0));
  loops.scan_part = part;
  SymInts sizes = loops.ranges;
  return TensorBox(std::make_shared<StorageBox>(std::move(loops)), dtype, std::move(sizes));
}

TensorBox make_scan_like(Program& p, const Loops& like, ReduceOp op, DType dtype, bool exclusive,
                         bool reverse, Expr body) {
  if (!like.scan_part) return make_scan(p, op, dtype, like.ranges, like.scan_axis, exclusive, reverse, body);
  return make_scan_of_parts(p, op, dtype, like.ranges, like.scan_axis, *like.scan_part, exclusive, reverse,
                            body);
}

ScanLoops loops_of_scan(Context& c, const Loops& scan) {
  ScanLoops loops;
  auto next = [&](SymInt extent) {
    loops.outer.push_back(extent);
    return c.var(static_cast<int>(loops.outer.size()) - 1);
  };
  for (size_t k = 0; k < scan.ranges.size(); ++k) {
    const SymInt n = scan.ranges[k];
    if (static_cast<int>(k) != scan.scan_axis) {
      loops.at.push_back(next(n));
      continue;
    }
    loops.inner = scan.scan_part.value_or(n);
    const SymInt place = scan.reverse ? loops.inner - SymInt(1) - c.rvar(0) : c.rvar(0);
    loops.at.push_back(scan.scan_part ? next(floordiv(n, loops.inner)) * loops.inner + place : place);
  }
  return loops;
}

} // namespace tbx::ir
