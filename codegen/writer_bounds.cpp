// Bounds of i64 values made of indices and constants: what is known to fit is computed in i32 lanes.
#include <algorithm>

#include "codegen/writer.h"

namespace tbx::codegen {

using ir::Bounds;
using ir::Expr;
using ir::Op;

namespace {

std::optional<Bounds> of_type(DType t) {
  switch (t) {
  case DType::boolean: return Bounds{0, 1};
  case DType::i8: return Bounds{INT8_MIN, INT8_MAX};
  case DType::u8: return Bounds{0, UINT8_MAX};
  case DType::i16: return Bounds{INT16_MIN, INT16_MAX};
  case DType::u16: return Bounds{0, UINT16_MAX};
  case DType::i32: return Bounds{INT32_MIN, INT32_MAX};
  default: return std::nullopt;
  }
}

} // namespace

bool Writer::fits(Expr e) {
  auto b = bounds(e);
  return b && b->lo >= INT32_MIN && b->hi <= INT32_MAX;
}

std::optional<Bounds> Writer::bounds(Expr e) {
  auto it = bounds_.find(e);
  if (it != bounds_.end()) return it->second;
  auto b = compute_bounds(e);
  // Only what cannot wrap is worth keeping.
  constexpr int64_t limit = int64_t{1} << 40;
  if (b && (b->lo < -limit || b->hi > limit)) b.reset();
  return bounds_[e] = b;
}

std::optional<Bounds> Writer::compute_bounds(Expr e) {
  if (e->dtype != DType::i64) return of_type(e->dtype);
  switch (e->op) {
  case Op::constant: return Bounds{e->as_int(), e->as_int()};
  case Op::index: return ir::bounds_of(e->indices[0], extents());
  case Op::cast: return bounds(e->args[0]);
  default: break;
  }
  if (e->op == Op::where) {
    auto a = bounds(e->args[1]), b = bounds(e->args[2]);
    if (!a || !b) return std::nullopt;
    return Bounds{std::min(a->lo, b->lo), std::max(a->hi, b->hi)};
  }
  if (e->op == Op::neg) {
    auto a = bounds(e->args[0]);
    if (!a) return std::nullopt;
    return Bounds{-a->hi, -a->lo};
  }
  if (e->num_args != 2) return std::nullopt;
  auto a = bounds(e->args[0]), b = bounds(e->args[1]);
  if (!a || !b) return std::nullopt;
  switch (e->op) {
  case Op::add: return Bounds{a->lo + b->lo, a->hi + b->hi};
  case Op::sub: return Bounds{a->lo - b->hi, a->hi - b->lo};
  case Op::min: return Bounds{std::min(a->lo, b->lo), std::min(a->hi, b->hi)};
  case Op::max: return Bounds{std::max(a->lo, b->lo), std::max(a->hi, b->hi)};
  case Op::mul: {
    __int128 p[] = {__int128(a->lo) * b->lo, __int128(a->lo) * b->hi, __int128(a->hi) * b->lo,
                    __int128(a->hi) * b->hi};
    __int128 lo = p[0], hi = p[0];
    for (__int128 x : p) lo = std::min(lo, x), hi = std::max(hi, x);
    if (lo < INT64_MIN || hi > INT64_MAX) return std::nullopt;
    return Bounds{static_cast<int64_t>(lo), static_cast<int64_t>(hi)};
  }
  default: return std::nullopt;
  }
}

} // namespace tbx::codegen
