// Attributes: values of several types by name, read by name and type. Nodes have them
// (graph/node_attributes.h), and calls of host kernels (extern_kernels/attributes.h).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/error.h"

namespace tbx {

/// nullptr where there is none of this name, or it is of another type.
template <class T, class Map> const T* attribute_in(const Map& all, std::string_view name) {
  auto it = all.find(std::string(name));
  return it == all.end() ? nullptr : std::get_if<T>(&it->second);
}

/// The same, but ModelError for one of another type.
template <class T, class Map> const T* checked_attribute_in(const Map& all, std::string_view name) {
  const T* value = attribute_in<T>(all, name);
  TBX_MODEL(value || !all.contains(std::string(name)), "attribute '{}' has the wrong type", name);
  return value;
}

} // namespace tbx
