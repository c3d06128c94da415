#include "ir/lane_runner.h"

#include <algorithm>

#include "base/error.h"
#include "base/stop.h"

namespace tbx::ir {

LaneRunner::LaneRunner(const LaneProgram& program, std::span<void* const> buffers,
                       std::span<const int64_t> symbols)
    : program_(program), kernel_(program.kernel), buffers_(buffers.begin(), buffers.end()),
      symbols_(symbols) {
  buffers_.resize(kernel_.buffers.size());
  for (size_t b = 0; b < kernel_.buffers.size(); ++b) {
    numel_.push_back(size(kernel_.buffers[b].numel));
    if (kernel_.buffers[b].access != Access::row_local) continue;
    int64_t elements = numel_[b] * (program_.vertical ? kLanes : 1);
    row_local_.emplace_back(static_cast<size_t>(elements * size_of(kernel_.buffers[b].dtype)));
    buffers_[b] = row_local_.back().data();
  }
  for (SymInt e : kernel_.outer) outer_extent_.push_back(size(e));
  outer_.resize(outer_extent_.size());
  locals_.resize(kernel_.num_locals);
  accumulators_.resize(kernel_.num_accumulators);
  for (const LanePhase& phase : program_.phases) {
    auto& extents = inner_extent_.emplace_back();
    for (SymInt e : phase.phase->inner) extents.push_back(size(e));
    auto& values = slots_.emplace_back(phase.slots.size());
    for (size_t s = 0; s < phase.slots.size(); ++s) {
      const Slot& slot = phase.slots[s];
      if (slot.kind != SlotKind::constant) continue;
      LaneType type = lane_type(slot.node->dtype);
      Scalar v =
          type == LaneType::integer ? Scalar{slot.node->as_int(), 0} : Scalar{0, slot.node->as_double()};
      fill_lanes(values[s], type, kLanes, v);
    }
  }
}

int64_t LaneRunner::size(SymInt e) const {
  auto v = evaluate(e, symbols_);
  TBX_MODEL(v.has_value(), "the size {} cannot be evaluated", to_string(e));
  return *v;
}

int64_t LaneRunner::now(SymInt e) const {
  if (e.is_constant()) return e.constant();
  auto v = evaluate(e, symbols_, outer_, inner_);
  TBX_MODEL(v.has_value(), "the index {} cannot be evaluated", to_string(e));
  return *v;
}

void LaneRunner::run(int64_t begin, int64_t end) {
  for (int64_t point = begin; point < end;) {
    int64_t rest = point;
    for (size_t k = outer_.size(); k-- > 0;) {
      TBX_INTERNAL(outer_extent_[k] > 0);
      outer_[k] = rest % outer_extent_[k];
      rest /= outer_extent_[k];
    }
    int n = 1;
    if (program_.vertical && !outer_.empty())
      n = static_cast<int>(std::min<int64_t>({kLanes, end - point, outer_extent_.back() - outer_.back()}));
    for (size_t p = 0; p < program_.phases.size(); ++p) run_phase(p, n);
    point += n;
  }
}

void LaneRunner::run_phase(size_t number, int n) {
  check_time(); // a row may have no blocks
  phase_ = &program_.phases[number];
  begin_accumulators(*phase_, n);
  const std::vector<int64_t>& extents = inner_extent_[number];
  inner_.assign(extents.size(), 0);
  if (std::any_of(extents.begin(), extents.end(), [](int64_t e) { return e <= 0; })) return;
  if (program_.vertical || extents.empty()) block_start_ = outer_.empty() ? 0 : outer_.back();
  for (;;) {
    size_t k = extents.size();
    if (program_.vertical || extents.empty()) {
      run_block(number, n);
    } else {
      for (block_start_ = 0; block_start_ < extents.back(); block_start_ += kLanes) {
        inner_.back() = block_start_;
        run_block(number, static_cast<int>(std::min<int64_t>(kLanes, extents.back() - block_start_)));
      }
      --k;
    }
    while (k > 0) {
      if (++inner_[k - 1] < extents[k - 1]) break;
      inner_[--k] = 0;
    }
    if (k == 0) return;
  }
}

void LaneRunner::check_time() {
  constexpr int kBlocksUnchecked = 4096;
  if (++blocks_ % kBlocksUnchecked == 0) check_stop();
}

void LaneRunner::run_block(size_t number, int n) {
  check_time();
  current_ = &slots_[number];
  const LanePhase& phase = program_.phases[number];
  // A statement may read memory that an earlier one of the same point wrote, so values are computed as late
  // as possible.
  size_t done = 0;
  for (const LaneStmt& s : phase.stmts) {
    for (; done < s.slots_needed; ++done) {
      const Slot& slot = phase.slots[done];
      if (slot.kind == SlotKind::constant) continue;
      Lanes& out = (*current_)[done];
      compute(slot, out, slot.uniform ? 1 : n);
      if (slot.uniform && n > 1) {
        LaneType type = slot.node ? lane_type(slot.node->dtype) : LaneType::integer;
        fill_lanes(out, type, n, get_lane(out, type, 0));
      }
    }
    execute(s, n);
  }
}

void LaneRunner::compute(const Slot& slot, Lanes& out, int n) {
  switch (slot.kind) {
  case SlotKind::op: {
    const Lanes* args[3] = {};
    for (int i = 0; i < slot.node->num_args; ++i) args[i] = &lanes(slot.args[i]);
    return apply_lanes(*slot.node, args, out, n);
  }
  case SlotKind::load: {
    const Lanes* mask = slot.args[0] >= 0 ? &lanes(slot.args[0]) : nullptr;
    int b = slot.node->buffer;
    LaneAddress address = locate(slot.address, b, mask, n);
    return load_lanes(kernel_.buffers[b].dtype, buffers_[b], address, mask, out, n);
  }
  case SlotKind::accumulator: {
    LaneType type = lane_type(slot.node->dtype);
    const Accumulator& acc = accumulators_[slot.node->number];
    for (int l = 0; l < n; ++l) set_lane(out, type, l, acc.result(l));
    return;
  }
  case SlotKind::local: {
    const Local& local = locals_[slot.node->number];
    if (local.lanes >= n) {
      out = local.value;
    } else {
      LaneType type = lane_type(slot.node->dtype);
      fill_lanes(out, type, n, get_lane(local.value, type, 0));
    }
    return;
  }
  default: return compute_index(slot, out, n);
  }
}

namespace {

/// Rounds towards minus infinity. Sizes are positive where points exist, so 0 only guards the machine.
template <class F> void divide_lanes(const int64_t* a, const int64_t* b, int64_t* out, int n, F&& result) {
  for (int l = 0; l < n; ++l) {
    int64_t x = a[l], d = b[l], q;
    if (d <= 0) {
      out[l] = 0;
      continue;
    }
    if ((static_cast<uint64_t>(x) | static_cast<uint64_t>(d)) >> 32 == 0) {
      q = static_cast<uint32_t>(x) / static_cast<uint32_t>(d);
    } else {
      q = x / d - (x % d < 0);
    }
    out[l] = result(x, d, q);
  }
}

} // namespace

void LaneRunner::compute_index(const Slot& slot, Lanes& out, int n) {
  using U = uint64_t;
  auto arg = [&](int i) { return lanes(slot.args[i]).i; };
  switch (slot.kind) {
  case SlotKind::affine: {
    U step = slot.uniform ? 0 : static_cast<U>(now(slot.address.step));
    U first = static_cast<U>(now(slot.address.base)) + step * static_cast<U>(block_start_);
    for (int l = 0; l < n; ++l) out.i[l] = static_cast<int64_t>(first + step * static_cast<U>(l));
    return;
  }
  case SlotKind::sum: {
    std::fill_n(out.i, n, slot.constant);
    for (auto [coefficient, term] : slot.terms) {
      const int64_t* t = lanes(term).i;
      for (int l = 0; l < n; ++l)
        out.i[l] = static_cast<int64_t>(static_cast<U>(out.i[l]) +
                                        static_cast<U>(coefficient) * static_cast<U>(t[l]));
    }
    return check_guards(slot.address, nullptr, n);
  }
  case SlotKind::product:
    std::fill_n(out.i, n, 1);
    for (auto [unused, term] : slot.terms) apply_binary_lanes(Op::mul, DType::i64, out, lanes(term), out, n);
    return;
  case SlotKind::floordiv:
    return divide_lanes(arg(0), arg(1), out.i, n, [](int64_t, int64_t, int64_t q) { return q; });
  case SlotKind::mod:
    return divide_lanes(arg(0), arg(1), out.i, n, [](int64_t x, int64_t d, int64_t q) { return x - q * d; });
  case SlotKind::min:
    return apply_binary_lanes(Op::min, DType::i64, lanes(slot.args[0]), lanes(slot.args[1]), out, n);
  case SlotKind::max:
    return apply_binary_lanes(Op::max, DType::i64, lanes(slot.args[0]), lanes(slot.args[1]), out, n);
  case SlotKind::indirect: std::copy_n(arg(0), n, out.i); return;
  default: TBX_INTERNAL(false && "kind of slot");
  }
}

void LaneRunner::check_guards(const LaneIndex& index, const Lanes* mask, int n) const {
  for (int g : index.guards) {
    const Slot& guard = phase_->slots[static_cast<size_t>(g)];
    const int64_t *v = lanes(g).i, *extent = lanes(guard.args[1]).i;
    for (int l = 0; l < n; ++l) {
      if ((v[l] >= 0 && v[l] < extent[l]) || (mask && !mask->i[l])) continue;
      // What may count from the end is where(i < 0, i + extent, i): the message has the model's number.
      const Expr index = phase_->slots[static_cast<size_t>(guard.args[0])].node;
      const bool counted = v[l] < 0 && index && index->op == Op::where;
      throw IndexError(
          fmt::format("index {} is outside an axis of size {}", counted ? v[l] - extent[l] : v[l], extent[l]),
          guard.origin);
    }
  }
}

/// Addresses of a block, all of them inside the buffer.
LaneAddress LaneRunner::locate(const LaneIndex& index, int buffer, const Lanes* mask, int n) {
  LaneAddress a;
  bool good = true;
  // Where nothing is read a place need not be computable: the rest of a division by a size that is 0 here.
  if (index.affine && mask && std::all_of(mask->i, mask->i + n, [](int64_t m) { return m == 0; })) return a;
  if (index.affine) {
    a.step = index.step.is(0) ? 0 : now(index.step);
    // No address of a buffer is that far away, not even one that a mask takes out.
    int64_t before = 0, after = 0;
    good = !__builtin_mul_overflow(a.step, block_start_, &before) &&
           !__builtin_add_overflow(now(index.base), before, &a.first) &&
           !__builtin_mul_overflow(a.step, n - 1, &after) && !__builtin_add_overflow(a.first, after, &after);
  } else {
    check_guards(index, mask, n);
    a.at = lanes(index.slot).i;
  }
  auto inside = [&](int l) { return a.of(l) >= 0 && a.of(l) < numel_[static_cast<size_t>(buffer)]; };
  if (index.affine && !mask) {
    good = good && inside(0) && inside(n - 1);
  } else {
    for (int l = 0; good && l < n; ++l) good = inside(l) || (mask && !mask->i[l]);
  }
  // What depends on data is guarded above; anything else is a defect of whoever made the kernel.
  TBX_INTERNAL(good && "address inside the buffer");
  if (program_.vertical && kernel_.buffers[static_cast<size_t>(buffer)].access == Access::row_local) {
    for (int l = 0; l < n; ++l) scaled_[l] = (mask && !mask->i[l] ? 0 : a.of(l)) * kLanes + l;
    a.at = scaled_;
  }
  return a;
}

} // namespace tbx::ir
