// Winograd's transforms of tiles in one dimension, applied to vectors of channels along both.
//
// F(m, 3) gives m results of a kernel of 3 from m + 2 inputs with m + 2 products: the polynomials of inputs
// and kernel are multiplied by their values at m + 1 points and infinity. The points are 0, 1, -1 for m = 2,
// and 0, ±sqrt(1/2), ±sqrt(2) for m = 4: these lose half as many digits as the usual 0, ±1, ±2.
#pragma once

#include <cstdint>
#include <numbers>

namespace tbx::extern_kernels::winograd {

/// Inputs of a tile along one dimension.
constexpr int span_of(int m) { return m + 2; }
/// Products of a tile.
constexpr int products_of(int m) { return span_of(m) * span_of(m); }

inline constexpr double kNear = 1 / std::numbers::sqrt2, kFar = std::numbers::sqrt2;

/// t[i * step] = the input polynomial's part for point i. `V`: a vector of float.
template <int M, int64_t Step, class V> [[gnu::always_inline]] inline void transform_input(const V* d, V* t) {
  if constexpr (M == 2) {
    t[0] = d[0] - d[2 * Step];
    t[Step] = d[2 * Step] + d[Step];
    t[2 * Step] = d[2 * Step] - d[Step];
    t[3 * Step] = d[3 * Step] - d[Step];
  } else {
    constexpr float near = kNear, far = kFar;
    const V low = d[4 * Step] - 2.0f * d[2 * Step], odd_low = near * (d[3 * Step] - 2.0f * d[Step]);
    const V high = d[4 * Step] - 0.5f * d[2 * Step], odd_high = far * (d[3 * Step] - 0.5f * d[Step]);
    t[0] = (d[0] + d[4 * Step]) - 2.5f * d[2 * Step];
    t[Step] = low + odd_low;
    t[2 * Step] = low - odd_low;
    t[3 * Step] = high + odd_high;
    t[4 * Step] = high - odd_high;
    t[5 * Step] = (d[Step] + d[5 * Step]) - 2.5f * d[3 * Step];
  }
}

/// y[i * to]: m results of the products p[i * from].
template <int M, int64_t From, int64_t To, class V>
[[gnu::always_inline]] inline void transform_output(const V* p, V* y) {
  if constexpr (M == 2) {
    y[0] = p[0] + p[From] + p[2 * From];
    y[To] = p[From] - p[2 * From] + p[3 * From];
  } else {
    constexpr float near = kNear, far = kFar;
    const V even_near = p[From] + p[2 * From], odd_near = p[From] - p[2 * From];
    const V even_far = p[3 * From] + p[4 * From], odd_far = p[3 * From] - p[4 * From];
    y[0] = p[0] + even_near + even_far;
    y[To] = near * odd_near + far * odd_far;
    y[2 * To] = 0.5f * even_near + 2.0f * even_far;
    y[3 * To] = (0.5f * near) * odd_near + (2.0f * far) * odd_far + p[5 * From];
  }
}

/// u[i * to]: the kernel's value at point i over what the other points divide by, so that the rest needs no
/// division. `V`: double, or a vector of it.
template <int M, class V>
[[gnu::always_inline]] inline void transform_kernel(const V* g, int64_t from, V* u, int64_t to) {
  const V g0 = g[0], g1 = g[from], g2 = g[2 * from];
  if constexpr (M == 2) {
    u[0] = g0;
    u[to] = 0.5 * (g0 + g1 + g2);
    u[2 * to] = 0.5 * (g0 - g1 + g2);
    u[3 * to] = g2;
  } else {
    constexpr double near = 1 / -1.5, far = 1.0 / 6;
    const V even_near = g0 + 0.5 * g2, odd_near = kNear * g1, even_far = g0 + 2.0 * g2, odd_far = kFar * g1;
    u[0] = g0;
    u[to] = near * (even_near + odd_near);
    u[2 * to] = near * (even_near - odd_near);
    u[3 * to] = far * (even_far + odd_far);
    u[4 * to] = far * (even_far - odd_far);
    u[5 * to] = g2;
  }
}

/// Back from transform_kernel: g[i * to] of the values u[i * from] at the points.
template <int M, class V>
[[gnu::always_inline]] inline void recover_kernel(const V* u, int64_t from, V* g, int64_t to) {
  constexpr double odd = M == 2 ? 1 : 0.5 / (kNear / -1.5);
  g[0] = u[0];
  g[to] = odd * (u[from] - u[2 * from]);
  g[2 * to] = u[(span_of(M) - 1) * from];
}

} // namespace tbx::extern_kernels::winograd
