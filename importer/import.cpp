#include "importer/import.h"

#include "base/budget.h"
#include "base/error.h"
#include "graph/differentiate/gradient.h"
#include "graph/names.h"
#include "importer/proto_file.h"
#include "importer/to_graph.h"

namespace tbx {
namespace {

using namespace importer;

Graph import_proto(onnx::ModelProto model, const ImportOptions& options, ExternalData external) {
  GraphBuilder builder(options, std::make_shared<ir::Context>(), std::move(external));
  Graph graph = builder.build_model(model);
  graph::expand_gradients(graph);
  verify(graph);
  return graph;
}

} // namespace

void check_model_bytes(size_t bytes, const ImportOptions& options) {
  if (bytes > static_cast<size_t>(options.max_model_bytes))
    throw Error(ErrorKind::model,
                fmt::format("the model has {} bytes, over the limit of {}", bytes, options.max_model_bytes),
                how_to_raise("max_model_bytes"));
}

Graph import_model(const std::filesystem::path& file, const ImportOptions& options) {
  auto mapped = MappedFile::open(file);
  onnx::ModelProto model;
  try {
    model = parse_model(mapped->bytes(), options);
  } catch (Error& e) {
    e.set_where(fmt::format("file {}", shown(file.native())));
    throw;
  }
  return import_proto(std::move(model), options, ExternalData::beside_model(file, options.strict_links));
}

Graph import_model(std::span<const std::byte> bytes, const ImportOptions& options,
                   const std::filesystem::path& base_dir) {
  return import_proto(parse_model(bytes, options), options,
                      base_dir.empty() ? ExternalData()
                                       : ExternalData::below(base_dir, options.strict_links));
}

} // namespace tbx
