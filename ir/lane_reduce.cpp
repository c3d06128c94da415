// Statements of a LaneRunner: stores, reductions, scans, locals.
#include <cmath>
#include <limits>

#include "base/error.h"
#include "ir/lane_runner.h"

namespace tbx::ir {
namespace {

bool is_arg(ReduceOp op) { return op >= ReduceOp::argmax; }

Op operator_of(ReduceOp op) {
  switch (op) {
  case ReduceOp::sum: return Op::add;
  case ReduceOp::prod: return Op::mul;
  case ReduceOp::max: return Op::max;
  case ReduceOp::min: return Op::min;
  case ReduceOp::any: return Op::logical_or;
  case ReduceOp::all: return Op::logical_and;
  default: break;
  }
  throw_internal_error("an arg reduction has no operator", __FILE__, __LINE__);
}

/// The operator that combines a stored value with what is there; booleans add as or, multiply as and.
Op operator_of(StoreMode mode, DType type) {
  switch (mode) {
  case StoreMode::add: return type == DType::boolean ? Op::logical_or : Op::add;
  case StoreMode::mul: return type == DType::boolean ? Op::logical_and : Op::mul;
  case StoreMode::max: return Op::max;
  default: return Op::min;
  }
}

bool sums_in_double(ReduceOp op, DType type) { return op == ReduceOp::sum && type == DType::f32; }

} // namespace

Scalar reduction_identity(ReduceOp op, DType type) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  bool real = type == DType::f32 || type == DType::f64;
  // -1 has all bits set: the largest value of every unsigned type once it is wrapped, and the sign bit moved
  // out of it gives the largest of a signed one.
  auto largest = [&] {
    if (type == DType::i64) return std::numeric_limits<int64_t>::max();
    return is_signed(type) ? (int64_t{1} << (bits_of(type) - 1)) - 1 : wrap_integer(type, -1);
  };
  switch (op) {
  case ReduceOp::prod: return {1, 1};
  case ReduceOp::all: return {1, 0};
  case ReduceOp::max: return real ? Scalar{0, -kInf} : Scalar{is_signed(type) ? -largest() - 1 : 0, 0};
  case ReduceOp::min: return real ? Scalar{0, kInf} : Scalar{largest(), 0};
  default: return {0, 0};
  }
}

Scalar LaneRunner::Accumulator::result(int lane) const {
  if (is_arg(op)) return {index[lane], 0};
  if (sums_in_double(op, type)) return {0, static_cast<float>(sum[lane])};
  return get_lane(value, lane_type(type), lane);
}

void LaneRunner::begin_accumulators(const LanePhase& phase, int n) {
  for (const LaneStmt& s : phase.stmts) {
    if (s.stmt->kind != StmtKind::reduce && s.stmt->kind != StmtKind::scan) continue;
    Accumulator& acc = accumulators_[s.stmt->number];
    acc.op = s.stmt->reduce;
    acc.type = s.stmt->value->dtype;
    acc.position = 0;
    fill_lanes(acc.value, lane_type(acc.type), n, reduction_identity(acc.op, acc.type));
    std::fill_n(acc.sum, n, 0.0);
    std::fill_n(acc.index, n, 0);
  }
}

void LaneRunner::execute(const LaneStmt& s, int n) {
  switch (s.stmt->kind) {
  case StmtKind::store: return store(s, n);
  case StmtKind::reduce: return reduce(s, n);
  case StmtKind::scan: return scan(s, n);
  case StmtKind::let:
    locals_[s.stmt->number].value = lanes(s.value);
    locals_[s.stmt->number].lanes = n;
    return;
  }
}

void LaneRunner::store(const LaneStmt& s, int n) {
  const Lanes& v = lanes(s.value);
  const Lanes* mask = s.mask >= 0 ? &lanes(s.mask) : nullptr;
  int b = s.stmt->buffer;
  DType storage = kernel_.buffers[b].dtype, type = s.stmt->value->dtype;
  LaneAddress address = locate(s.address, b, mask, n);
  if (s.stmt->mode == StoreMode::set) return store_lanes(storage, buffers_[b], address, mask, v, n);
  // One by one: lanes may meet at one address.
  Op op = operator_of(s.stmt->mode, type);
  for (int l = 0; l < n; ++l) {
    if (mask && !mask->i[l]) continue;
    Scalar old = load_element(storage, buffers_[b], address.of(l));
    store_element(storage, buffers_[b], address.of(l),
                  apply_binary(op, type, old, get_lane(v, lane_type(type), l)));
  }
}

void LaneRunner::reduce(const LaneStmt& s, int n) {
  TBX_INTERNAL(s.mask < 0);
  Accumulator& acc = accumulators_[s.stmt->number];
  const Lanes& v = lanes(s.value);
  LaneType type = lane_type(acc.type);
  if (is_arg(acc.op)) return reduce_position(s, acc, v, n);
  if (sums_in_double(acc.op, acc.type)) {
    if (program_.vertical) {
      for (int l = 0; l < n; ++l) acc.sum[l] += static_cast<double>(v.f[l]);
      return;
    }
    double part[4] = {acc.sum[0], 0, 0, 0};
    int l = 0;
    for (; l + 4 <= n; l += 4)
      for (int k = 0; k < 4; ++k) part[k] += static_cast<double>(v.f[l + k]);
    for (; l < n; ++l) part[0] += static_cast<double>(v.f[l]);
    acc.sum[0] = (part[0] + part[1]) + (part[2] + part[3]);
    return;
  }
  Op op = operator_of(acc.op);
  if (program_.vertical) return apply_binary_lanes(op, acc.type, acc.value, v, acc.value, n);
  if (acc.op == ReduceOp::sum || acc.op == ReduceOp::prod || n < 16) {
    Scalar total = get_lane(acc.value, type, 0);
    for (int l = 0; l < n; ++l) total = apply_binary(op, acc.type, total, get_lane(v, type, l));
    return set_lane(acc.value, type, 0, total);
  }
  // The order does not matter: halve the block until one value is left.
  Lanes half = v;
  for (int m = n; m > 1; m = (m + 1) / 2) {
    Lanes upper;
    int moved = m / 2;
    switch (type) {
    case LaneType::f32: std::copy_n(half.f + (m - moved), moved, upper.f); break;
    case LaneType::f64: std::copy_n(half.d + (m - moved), moved, upper.d); break;
    case LaneType::integer: std::copy_n(half.i + (m - moved), moved, upper.i); break;
    }
    apply_binary_lanes(op, acc.type, half, upper, half, moved);
  }
  apply_binary_lanes(op, acc.type, acc.value, half, acc.value, 1);
}

void LaneRunner::reduce_position(const LaneStmt& s, Accumulator& acc, const Lanes& v, int n) {
  bool want_max = acc.op == ReduceOp::argmax || acc.op == ReduceOp::argmax_last;
  bool last = acc.op == ReduceOp::argmax_last || acc.op == ReduceOp::argmin_last;
  Op better = want_max ? (last ? Op::greater_equal : Op::greater) : (last ? Op::less_equal : Op::less);
  LaneType type = lane_type(s.stmt->value->dtype);
  auto is_nan = [&](Scalar x) { return type != LaneType::integer && x.f != x.f; };
  for (int l = 0; l < n; ++l) {
    int to = program_.vertical ? l : 0;
    int64_t position = program_.vertical ? acc.position : acc.position + l;
    Scalar x = get_lane(v, type, l), best = get_lane(acc.value, type, to);
    bool take = position == 0;
    if (is_nan(x) || is_nan(best)) {
      take |= is_nan(x) && (!is_nan(best) || last);
    } else {
      take |= apply_binary(better, acc.type, x, best).i != 0;
    }
    if (!take) continue;
    set_lane(acc.value, type, to, x);
    acc.index[to] = position;
  }
  acc.position += program_.vertical ? 1 : n;
}

void LaneRunner::scan(const LaneStmt& s, int n) {
  TBX_INTERNAL(s.mask < 0);
  Accumulator& acc = accumulators_[s.stmt->number];
  const Lanes& v = lanes(s.value);
  LaneType type = lane_type(acc.type);
  int b = s.stmt->buffer;
  DType storage = kernel_.buffers[b].dtype;
  LaneAddress address = locate(s.address, b, nullptr, n);
  for (int l = 0; l < n; ++l) {
    int to = program_.vertical ? l : 0;
    if (s.stmt->exclusive) store_element(storage, buffers_[b], address.of(l), acc.result(to));
    if (sums_in_double(acc.op, acc.type)) {
      acc.sum[to] += static_cast<double>(v.f[l]);
    } else {
      Scalar sum =
          apply_binary(operator_of(acc.op), acc.type, get_lane(acc.value, type, to), get_lane(v, type, l));
      set_lane(acc.value, type, to, sum);
    }
    if (!s.stmt->exclusive) store_element(storage, buffers_[b], address.of(l), acc.result(to));
  }
}

} // namespace tbx::ir
