// The keys of Graph::metadata: the fields of a model ("producer_name", "producer_version", "domain",
// "doc_string", "graph_description", "model_version", "ir_version"), and its metadata_props.
#pragma once

#include <string_view>

namespace tbx {

/// Stands before the keys of metadata_props, which may be the names of fields.
inline constexpr std::string_view kCustomMetadata = "metadata_props.";

} // namespace tbx
