// Scans whose running values begin anew after every part of their axis (Loops::scan_part).
#pragma once

#include "ir/tensor_box.h"

namespace tbx::ir {

/// make_scan, but beginning anew every `part` elements along the axis.
TensorBox make_scan_of_parts(Program& p, ReduceOp op, DType dtype, SymInts ranges, int axis, SymInt part,
                             bool exclusive, bool reverse, Expr body);

/// Over the axis of `like`, or its parts where it has some.
TensorBox make_scan_like(Program& p, const Loops& like, ReduceOp op, DType dtype, bool exclusive,
                         bool reverse, Expr body);

/// The loops of a kernel for a scan.
struct ScanLoops {
  SymInts outer; ///< var(k) < outer[k]: all dimensions but the axis, in its place the parts where it has some
  SymInt inner;  ///< rvar(0) < inner, in the order in which values are added
  SymInts at;    ///< of these variables, the index of the result
};
ScanLoops loops_of_scan(Context& c, const Loops& scan);

} // namespace tbx::ir
