// Node attributes: read by name and type. Lowerings read theirs through OpContext.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "graph/graph.h"

namespace tbx {

/// nullptr where the node has no such attribute, or one of another type.
template <class T> const T* find_attribute(const Node& node, std::string_view name) {
  auto it = node.attributes.find(std::string(name));
  return it == node.attributes.end() ? nullptr : std::get_if<T>(&it->second);
}

/// The same, but ModelError for one of another type.
template <class T> const T* checked_attribute(const Node& node, std::string_view name) {
  auto it = node.attributes.find(std::string(name));
  if (it == node.attributes.end()) return nullptr;
  const T* value = std::get_if<T>(&it->second);
  TBX_MODEL(value != nullptr, "attribute '{}' has the wrong type", name);
  return value;
}

template <class T> T attribute_or(const Node& node, std::string_view name, T otherwise) {
  const T* value = find_attribute<T>(node, name);
  return value ? *value : std::move(otherwise);
}

} // namespace tbx
