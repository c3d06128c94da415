// Export: Graph -> ONNX file. What `tbx optimize` writes, and other runtimes read.
#pragma once

#include <cstdint>
#include <filesystem>

#include "graph/graph.h"

namespace tbx {

struct ExportOptions {
  /// Up to this many bytes of constants, everything is in one file; above, constants of at least
  /// `external_from` bytes go into a second one, <file>.data beside it.
  int64_t max_inline_bytes = int64_t{1} << 29;
  int64_t external_from = 1024;
};

/// Needs a verified graph. Inputs and outputs keep their names; other values get unique ones. Each file
/// appears whole or not at all, and no name in the graph has a say in where. UnsupportedError when nodes come
/// from operator set versions that one model cannot mix.
void export_model(const Graph& graph, const std::filesystem::path& file, const ExportOptions& options = {});

/// The same as bytes, all constants inside; ModelError above protobuf's limit of 2 GB.
std::string export_bytes(const Graph& graph);

} // namespace tbx
