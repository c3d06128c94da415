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

/// Elements of memory of a storage type, widened to the compute type / narrowed from it.
Scalar load_element(DType storage, const void* base, int64_t index);
void store_element(DType storage, void* base, int64_t index, Scalar s);

} // namespace tbx::ir
