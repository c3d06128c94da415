// Node attributes: read by name and type. Lowerings read theirs through OpContext.
#pragma once

#include <string>
#include <string_view>

#include "base/attributes.h"
#include "graph/graph.h"

namespace tbx {

/// nullptr where the node has no such attribute, or one of another type.
template <class T> const T* find_attribute(const Node& node, std::string_view name) {
  return attribute_in<T>(node.attributes, name);
}

/// The same, but ModelError for one of another type.
template <class T> const T* checked_attribute(const Node& node, std::string_view name) {
  return checked_attribute_in<T>(node.attributes, name);
}

template <class T> T attribute_or(const Node& node, std::string_view name, T otherwise) {
  const T* value = find_attribute<T>(node, name);
  return value ? *value : std::move(otherwise);
}

} // namespace tbx
