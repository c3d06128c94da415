// How strings of a model appear in messages and dumps: quoted, escaped, of limited length.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "base/shown.h"

namespace tbx {

/// How errors name a node: "node 'conv1' (Conv, opset 13)".
inline std::string node_text(std::string_view label, std::string_view domain, std::string_view op_type,
                             std::string_view opset) {
  const std::string op = shown(domain.empty() ? std::string(op_type) : fmt::format("{}.{}", domain, op_type));
  return fmt::format("node {} ({}, opset {})", shown(label), std::string_view(op).substr(1, op.size() - 2),
                     opset);
}

/// The default domain has two spellings.
inline std::string_view canonical_domain(std::string_view domain) {
  return domain == "ai.onnx" ? std::string_view() : domain;
}
/// The domains that ONNX defines operators in, in their canonical spelling.
inline bool is_onnx_domain(std::string_view domain) {
  return domain.empty() || domain.starts_with("ai.onnx.");
}
/// For people: "" is shown as ai.onnx.
inline std::string_view shown_domain(std::string_view domain) { return domain.empty() ? "ai.onnx" : domain; }

} // namespace tbx
