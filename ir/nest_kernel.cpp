#include "ir/nest_kernel.h"

#include "ir/scan.h"

namespace tbx::ir {
namespace {

Stmt store_of(int buffer, SymInt address, Expr value) {
  Stmt s;
  s.kind = StmtKind::store;
  s.buffer = buffer;
  s.address = address;
  s.value = value;
  return s;
}

SymInts variables(Context& c, size_t n) {
  SymInts vars;
  for (size_t k = 0; k < n; ++k) vars.push_back(c.var(static_cast<int>(k)));
  return vars;
}

void add_pointwise(KernelProgram& kernel, const Loops& loops, const NestPlaces& places) {
  kernel.outer = loops.ranges;
  Expr value = places.resolve(loops.body);
  const SymInts at = variables(*kernel.context, loops.ranges.size());
  kernel.phases.push_back({{}, {store_of(places.result(), places.address(at), value)}});
}

void add_reduction(KernelProgram& kernel, const Loops& loops, const NestPlaces& places) {
  Context& c = *kernel.context;
  kernel.outer = loops.ranges;
  kernel.num_accumulators = 1;
  Stmt reduce;
  reduce.kind = StmtKind::reduce;
  reduce.reduce = loops.reduce;
  reduce.value = places.resolve(loops.body);
  reduce.number = 0;
  const bool is_arg = loops.reduce >= ReduceOp::argmax;
  Expr result =
      c.cast(c.accumulator(0, is_arg ? DType::i64 : reduce.value->dtype), compute_type(loops.dtype));
  const SymInts at = variables(c, loops.ranges.size());
  kernel.phases.push_back({loops.reduction_ranges, {reduce}});
  kernel.phases.push_back({{}, {store_of(places.result(), places.address(at), result)}});
}

void add_scan(KernelProgram& kernel, const Loops& loops, const NestPlaces& places) {
  Context& c = *kernel.context;
  kernel.num_accumulators = 1;
  ScanLoops over = loops_of_scan(c, loops);
  kernel.outer = std::move(over.outer);
  Expr value = places.resolve(substitute(loops.body, {over.at, {}}));
  Stmt scan = store_of(places.result(), places.address(over.at), value);
  scan.kind = StmtKind::scan;
  scan.reduce = loops.reduce;
  scan.exclusive = loops.exclusive;
  scan.number = 0;
  kernel.phases.push_back({{over.inner}, {scan}});
}

} // namespace

void add_nest(KernelProgram& kernel, const Loops& loops, const NestPlaces& places) {
  switch (loops.kind) {
  case LoopKind::pointwise: return add_pointwise(kernel, loops, places);
  case LoopKind::reduction: return add_reduction(kernel, loops, places);
  case LoopKind::scan: return add_scan(kernel, loops, places);
  }
}

} // namespace tbx::ir
