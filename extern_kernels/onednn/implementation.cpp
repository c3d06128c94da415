#include "extern_kernels/onednn/implementation.h"

#include <fmt/format.h>

namespace tbx::extern_kernels::onednn {

std::string Implementation::text() const {
  std::string s =
      (name.empty() ? "none" : name) + (is_reference ? " (a plain loop of the library: slow)" : "");
  for (const std::string& r : refused) s += "; refused " + r;
  return s;
}

bool is_reference(std::string_view name, const Use& use) {
  // Composed names have one part per library layer: "conv:any+ref:any".
  for (size_t at = 0; at != std::string_view::npos;) {
    const size_t end = name.find('+', at);
    if (const std::string_view part = name.substr(at); part.starts_with("ref:") || part.starts_with("ref_"))
      return true;
    at = end == std::string_view::npos ? end : end + 1;
  }
  return name.starts_with("conv:any") && (use.has_bias || use.has_post_ops);
}

Implementation choose(dnnl::primitive_desc& descriptor, const Use& use) {
  Implementation chosen;
  if (!descriptor) {
    chosen.refused.emplace_back("all: the library has no implementation of this form");
    return chosen;
  }
  do {
    std::string name = descriptor.impl_info_str();
    std::string reason = refusal(name, use);
    if (reason.empty()) {
      chosen.is_reference = is_reference(name, use);
      chosen.name = std::move(name);
      return chosen;
    }
    chosen.refused.push_back(fmt::format("{}: {}", name, reason));
  } while (descriptor.next_impl());
  return chosen;
}

} // namespace tbx::extern_kernels::onednn
