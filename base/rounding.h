// Whole numbers, rounded up.
#pragma once

#include <concepts>
#include <type_traits>

namespace tbx {

/// How many steps cover n, which is not negative.
template <std::integral T> constexpr T ceil_div(T n, std::type_identity_t<T> step) {
  return (n + step - 1) / step;
}

/// The least multiple of a step that is not below n.
template <std::integral T> constexpr T round_up(T n, std::type_identity_t<T> step) {
  return ceil_div(n, step) * step;
}

} // namespace tbx
