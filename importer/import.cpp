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

Graph import_parsed(ParsedModel parsed, const ImportOptions& options, ExternalData external) {
  GraphBuilder builder(options, std::make_shared<ir::Context>(), std::move(external), std::move(parsed.raw));
  Graph graph = builder.build_model(parsed.model);
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
  ModelBytes bytes(file, options.seen.get());
  ParsedModel parsed;
  try {
    parsed = read_model(std::move(bytes), options);
  } catch (Error& e) {
    e.set_where(fmt::format("file {}", shown(file.native())));
    throw;
  }
  return import_parsed(std::move(parsed), options,
                       ExternalData::beside_model(file, options.strict_links, options.seen));
}

Graph import_model(std::span<const std::byte> bytes, const ImportOptions& options,
                   const std::filesystem::path& base_dir) {
  return import_parsed(read_model(ModelBytes(bytes), options), options,
                       base_dir.empty() ? ExternalData()
                                        : ExternalData::below(base_dir, options.strict_links, options.seen));
}

} // namespace tbx
