// What lowering states of a host kernel's call, read where the call may come out of a file.
#pragma once

#include <memory>
#include <span>
#include <type_traits>

#include "base/attributes.h"
#include "extern_kernels/problem.h"

namespace tbx::extern_kernels {

/// Lowering writes every attribute of a call: one that is not there, or of another type, is a package's
/// fault.
template <class T> const T& attribute(const HostProblem& problem, const char* name) {
  const T* value = attribute_in<T>(problem.attributes, name);
  TBX_MODEL(value, "a call of {} does not say its {}: the package is damaged", problem.op, name);
  if constexpr (std::is_same_v<T, std::shared_ptr<const Tensor>>)
    TBX_MODEL(*value, "a call of {} does not say its {}: the package is damaged", problem.op, name);
  return *value;
}

inline int64_t integer(const HostProblem& p, const char* name) { return attribute<int64_t>(p, name); }

/// The elements of a tensor of this type.
template <class T> std::span<const T> elements_of(const HostProblem& problem, const char* name) {
  constexpr DType kType = std::is_same_v<T, float>    ? DType::f32
                          : std::is_same_v<T, double> ? DType::f64
                                                      : DType::i32;
  static_assert(kType != DType::i32 || std::is_same_v<T, int32_t>);
  const Tensor& t = *attribute<std::shared_ptr<const Tensor>>(problem, name);
  TBX_MODEL(t.dtype == kType, "{} of a call of {} is of type {}: the package is damaged", name, problem.op,
            name_of(t.dtype));
  return t.as<T>();
}

} // namespace tbx::extern_kernels
