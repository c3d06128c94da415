// How many members an aggregate has: what lists them all can say so at compile time.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <utility>

namespace tbx {

namespace detail {

/// Converts to what any member is. It is never called, and defined only because compilers warn of functions
/// without a definition that are named with a type of one file.
struct AnyMember {
  template <class T> operator T() const { std::abort(); }
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
