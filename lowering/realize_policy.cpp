// The realize policy: counts reads and operations of a body and compares them with RealizeLimits.
#include "lowering/realize_policy.h"

#include <fmt/format.h>

namespace tbx::lowering {

std::string reason_to_realize(const ir::Loops& loops, int users, const RealizeLimits& limits) {
  if (loops.kind != ir::LoopKind::pointwise)
    return {}; // the first load puts reductions and scans into memory
  ir::ExprCounts n = ir::count({&loops.body, 1});
  if (n.ops > limits.ops) return fmt::format("{} operations in one loop nest (limit {})", n.ops, limits.ops);
  if (n.loads > limits.reads)
    return fmt::format("{} reads in one loop nest (limit {})", n.loads, limits.reads);
  if (users <= 1) return {};
  if (n.expensive > limits.shared_expensive)
    return fmt::format("{} users of an expensive computation", users);
  if (n.loads > limits.shared_reads) return fmt::format("{} users of {} reads", users, n.loads);
  if (n.ops > limits.shared_ops) return fmt::format("{} users of {} operations", users, n.ops);
  return {};
}

void realize_if_shared(ir::Program& program, const ir::TensorBox& x, int users) {
  ir::StorageBox& storage = *x.storage();
  storage.users += users;
  if (storage.is_realized()) return;
  std::string reason = reason_to_realize(storage.loops(), storage.users);
  if (!reason.empty()) storage.realize(program, std::move(reason));
}

void realize_if_repeated(ir::Program& program, const ir::TensorBox& x, const ir::SymInts& sizes) {
  ir::StorageBox& storage = *x.storage();
  if (storage.is_realized() || storage.loops().kind != ir::LoopKind::pointwise) return;
  int64_t have = ir::size_hint(ir::product(storage.loops().ranges)), want = ir::size_hint(ir::product(sizes));
  if (want < 2 * have) return;
  RealizeLimits limits;
  ir::ExprCounts n = ir::count({&storage.loops().body, 1});
  if (n.expensive > limits.shared_expensive || n.loads > limits.shared_reads || n.ops > limits.shared_ops)
    storage.realize(program, fmt::format("broadcast of {} operations and {} reads", n.ops, n.loads));
}

} // namespace tbx::lowering
