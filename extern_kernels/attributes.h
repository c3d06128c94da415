// Attributes of host operators, read by name and type.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/attributes.h"
#include "extern_kernels/problem.h"

namespace tbx::extern_kernels {

using Attributes = std::map<std::string, Attribute>;

/// nullptr where there is none of this name; ModelError for one of another type.
template <class T> const T* find_attribute(const Attributes& all, const std::string& name) {
  return checked_attribute_in<T>(all, name);
}

template <class T> T attribute_or(const Attributes& all, const std::string& name, T otherwise) {
  const T* value = find_attribute<T>(all, name);
  return value ? *value : std::move(otherwise);
}

/// nullptr where there is none.
inline const Tensor* find_tensor(const Attributes& all, const std::string& name) {
  const auto* value = find_attribute<std::shared_ptr<const Tensor>>(all, name);
  return value ? value->get() : nullptr;
}

} // namespace tbx::extern_kernels
