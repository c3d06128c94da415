// Operators on blocks of lanes: the evaluator's arithmetic.
#pragma once

#include <cstdint>

#include "ir/expr.h"
#include "ir/scalar_ops.h"

namespace tbx::ir {

inline constexpr int kLanes = 256;

/// One value per point of a block: f for f32, d for f64, i for integers (wrapped to their width) and bool.
union Lanes {
  float f[kLanes];
  double d[kLanes];
  int64_t i[kLanes];
};

enum class LaneType : uint8_t { f32, f64, integer };
LaneType lane_type(DType compute_type);

Scalar get_lane(const Lanes& v, LaneType t, int lane);
void set_lane(Lanes& v, LaneType t, int lane, Scalar s);
void fill_lanes(Lanes& v, LaneType t, int n, Scalar s);

/// out[l] = node applied to args[.][l] for l < n. Not for leaves.
void apply_lanes(const ExprNode& node, const Lanes* const* args, Lanes& out, int n);
/// out[l] = op(a[l], b[l]) for l < n; `type` is that of the operands. `out` may be one of them.
void apply_binary_lanes(Op op, DType type, const Lanes& a, const Lanes& b, Lanes& out, int n);

/// Where the lanes of a block lie in memory: at `first` + l * `step`, or at `at[l]`; in elements.
struct LaneAddress {
  int64_t first = 0, step = 0;
  const int64_t* at = nullptr;
  int64_t of(int lane) const { return at ? at[lane] : first + step * lane; }
};

/// Memory of a storage type widened to lanes, lanes narrowed to memory. Lanes whose `mask` is false are not
/// touched in memory and read as 0.
void load_lanes(DType storage, const void* base, const LaneAddress& address, const Lanes* mask, Lanes& out,
                int n);
void store_lanes(DType storage, void* base, const LaneAddress& address, const Lanes* mask, const Lanes& v,
                 int n);

/// Elements of memory of a storage type, widened to the compute type / narrowed from it.
Scalar load_element(DType storage, const void* base, int64_t index);
void store_element(DType storage, void* base, int64_t index, Scalar s);

} // namespace tbx::ir
