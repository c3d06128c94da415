#include "importer/import.h"

#include "base/error.h"
#include "importer/gradient.h"
#include "importer/names.h"
#include "importer/proto_file.h"
#include "importer/to_graph.h"

namespace tbx {
namespace {

using namespace importer;

Graph import_bytes(std::span<const std::byte> bytes, const ImportOptions& options, ExternalData external) {
  onnx::ModelProto model = parse_model(bytes, options);
  GraphBuilder builder(options, std::make_shared<ir::Context>(), std::move(external));
  Graph graph = builder.build_model(model);
  expand_gradients(graph);
  verify(graph);
  return graph;
}

} // namespace

Graph import_model(const std::filesystem::path& file, const ImportOptions& options) {
  auto mapped = MappedFile::open(file);
  return import_bytes(mapped->bytes(), options, ExternalData::beside_model(file, options.strict_links));
}

Graph import_model(std::span<const std::byte> bytes, const ImportOptions& options,
                   const std::filesystem::path& base_dir) {
  return import_bytes(bytes, options,
                      base_dir.empty() ? ExternalData()
                                       : ExternalData::below(base_dir, options.strict_links));
}

} // namespace tbx
