// How many members an aggregate has: what lists them all can say so at compile time.
#pragma once

#include <cstddef>
#include <utility>

namespace tbx {

namespace detail {

/// Converts to what any member is.
struct AnyMember {
  template <class T> constexpr operator T() const;
};

template <class T, size_t... I> constexpr bool has_members(std::index_sequence<I...>) {
  return requires { T{(static_cast<void>(I), AnyMember{})...}; };
}

template <class T, size_t N = 0> constexpr size_t count_members() {
  if constexpr (has_members<T>(std::make_index_sequence<N + 1>()))
    return count_members<T, N + 1>();
  else
    return N;
}

} // namespace detail

template <class T> inline constexpr size_t kArity = detail::count_members<T>();

} // namespace tbx
