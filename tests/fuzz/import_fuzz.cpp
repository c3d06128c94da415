// Any bytes as a model: a Graph that verifies, or an error that is not ours; within small budgets.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

#include "base/error.h"
#include "graph/function_body.h"
#include "importer/import.h"
#include "tests/fuzz/model_mutator.h"

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  return tbx::fuzz::mutate_model(data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tbx;
  ImportOptions options;
  options.max_nodes = 10'000;
  options.max_tensor_bytes = options.max_dense_bytes = 1 << 24;
  try {
    Graph graph = import_model(std::as_bytes(std::span(data, size)), options);
    to_string(graph);
    for (const Node& node : graph.nodes) expand_function(graph, node);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::internal) return 0;
    std::fprintf(stderr, "%s\n", e.what());
    std::abort();
  }
  return 0;
}
