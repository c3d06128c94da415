#include "lowering/ops/microsoft/window_cache.h"

#include "lowering/ops/attention_core.h"

namespace tbx::lowering {
namespace {

Expr both(Expr a, Expr b) { return ir::binary(Op::logical_and, a, b); }

/// 0 <= x < end.
Expr within(Expr x, Expr end) {
  return both(ir::binary(Op::greater_equal, x, number(x, 0)), ir::binary(Op::less, x, end));
}

} // namespace

WindowCache::WindowCache(OpContext& ctx, const TensorBox& past, int64_t window, const TensorBox& starts,
                         const TensorBox& totals, SymInt queries)
    : ctx_(ctx), p_(ctx.program), c_(ctx.c), queries_(queries), window_(window), starts_(starts),
      totals_(totals) {
  TBX_MODEL(past.rank() == 4, "a cache has rank {}, expected 4", past.rank());
  batch_ = past.sizes()[0];
  capacity_ = past.sizes()[2];
  TBX_MODEL(window > 0, "sliding_window_cache without local_window_size");
  TBX_MODEL(!capacity_.is_constant() || capacity_.constant() >= window,
            "a cache of {} tokens is shorter than local_window_size, {}", capacity_.constant(), window);
  p_.add_check(capacity_ - SymInt(window), false,
               "GroupQueryAttention: the cache is shorter than local_window_size");
  residents_ = map(ctx, DType::i32, starts_,
                   [&](Expr n) { return to_compute(resident(to_compute(n, DType::i64)), DType::i32); });
  realize(ctx, residents_, "how much of the cache is used");
}

Expr WindowCache::resident(Expr total) const {
  Expr capacity = c_.index(capacity_);
  // At least 1 for caches that the check of the run refuses.
  Expr lost = c_.index(ir::max(capacity_ - SymInt(window_ - 1), 1));
  Expr times = ir::div(ir::add(ir::sub(total, capacity), ir::sub(lost, number(lost, 1))), lost);
  return ir::where(ir::binary(Op::less_equal, total, capacity), total, ir::sub(total, ir::mul(lost, times)));
}

Expr WindowCache::at(const TensorBox& x, SymInt entry) const {
  return to_compute(x.load(p_, {&entry, 1}), DType::i64);
}

/// Row `number` of the new tokens, or `otherwise` where there is no such row.
Expr WindowCache::new_token(const TensorBox& fresh, std::span<const SymInt> at, Expr number,
                            Expr otherwise) const {
  Expr is_new = within(number, c_.index(queries_));
  SymInts from(at.begin(), at.end());
  from[2] = c_.indirect(ir::where(is_new, number, c_.constant_int(DType::i64, 0)), queries_, false);
  return ir::where(is_new, ir::mask_loads(fresh.load(p_, from), is_new), otherwise);
}

TensorBox WindowCache::seen(const TensorBox& past, const TensorBox& fresh) const {
  SymInts sizes = fresh.sizes();
  sizes[2] = capacity_ + queries_;
  TensorBox y = generate(ctx_, fresh.dtype(), sizes, [&](std::span<const SymInt> to) {
    Expr used = at(residents_, to[0]), row = c_.index(to[2]);
    Expr is_old = both(ir::binary(Op::less, row, used), ir::binary(Op::less, row, c_.index(capacity_)));
    Expr old = ir::mask_loads(past.load(p_, to), is_old);
    return new_token(fresh, to, ir::sub(row, used), ir::where(is_old, old, number(old, 0)));
  });
  realize(ctx_, y, "keys or values of a window");
  return y;
}

TensorBox WindowCache::present(const TensorBox& past, const TensorBox& fresh) const {
  TensorBox y = generate(ctx_, fresh.dtype(), past.sizes(), [&](std::span<const SymInt> to) {
    Expr start = at(starts_, to[0]), total = at(totals_, to[0]), row = c_.index(to[2]);
    Expr used = resident(total);
    Expr token = ir::add(ir::sub(total, used), row); // number of the token that lies in this row
    // Of the tokens before, the last `residents_` are in the cache.
    Expr before = ir::add(ir::sub(token, start), at(residents_, to[0]));
    Expr is_old = both(ir::binary(Op::less, token, start), within(before, c_.index(capacity_)));
    SymInts from(to.begin(), to.end());
    from[2] = c_.indirect(ir::where(is_old, before, c_.constant_int(DType::i64, 0)), capacity_, false);
    Expr old = ir::mask_loads(past.load(p_, from), is_old);
    Expr zero = number(old, 0);
    Expr e = new_token(fresh, to, ir::sub(token, start), ir::where(is_old, old, zero));
    return ir::where(ir::binary(Op::less, row, used), e, zero);
  });
  realize(ctx_, y, "cache of keys or values");
  return y;
}

TensorBox WindowCache::bias(const TensorBox& x) const {
  const bool shared = x.sizes()[0].is(1);
  if (!shared) require_equal(ctx_, x.sizes()[0], batch_, "batch sizes of query and attention_bias");
  SymInts sizes{batch_, x.sizes()[1], queries_, capacity_ + queries_};
  return generate(ctx_, DType::f32, sizes, [&](std::span<const SymInt> to) {
    Expr token = ir::add(ir::sub(at(starts_, to[0]), at(residents_, to[0])), c_.index(to[3]));
    Expr known = within(token, c_.index(x.sizes()[3]));
    SymInts from(to.begin(), to.end());
    if (shared) from[0] = 0;
    from[3] = c_.indirect(ir::where(known, token, c_.constant_int(DType::i64, 0)), x.sizes()[3], false);
    Expr e = ir::mask_loads(to_compute(x.load(p_, from), DType::f32), known);
    return ir::where(known, e, number(e, 0));
  });
}

} // namespace tbx::lowering
