// Import: ONNX bytes or file -> verified Graph. First stage of the pipeline.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace tbx::extern_kernels {
class CustomOperators;
}
namespace tbx::importer {
class SeenFiles;
class TensorPlaces;
} // namespace tbx::importer

namespace tbx {

/// An initializer that the model declares as an input, too: the input's default value.
struct InputDefault {
  std::string name;
  std::shared_ptr<const Tensor> value;
  std::vector<std::string> dims; ///< as declared for the input: numbers or symbols
  bool ranked = true;            ///< false: the declaration leaves the number of dims open
  bool by_choice = false;        ///< before IR version 4 every initializer had to be declared so
};

struct ImportOptions {
  /// Overrides a dimension symbol by a constant ("batch" -> 4), or an input's shape (name -> dims, of which
  /// negative ones stay as declared).
  std::map<std::string, int64_t> dim_overrides;
  std::map<std::string, std::vector<int64_t>> input_shapes;
  /// Initializers that become inputs of the graph; others that are declared as inputs are constants.
  std::vector<std::string> overridable;
  std::vector<InputDefault>* defaults = nullptr; ///< gets all initializers that are declared as inputs
  bool inline_functions = true;                  ///< model-local functions become their bodies
  bool all_dims_dynamic = false; ///< forget every static dimension of the inputs (conformance configuration)
  /// Operators of the user's libraries; they come before functions of the model and before our own.
  std::shared_ptr<const extern_kernels::CustomOperators> custom_operators;
  /// Of a node whose operator ONNX knows no types of: the input that has the type of the first result; -1:
  /// not known. (lowering::type_giver, which this room does not know.)
  std::function<int(const Node&)> type_giver;

  // Limits, of the names that they have as options of the API. Beyond one is a ModelError that names it.
  int64_t max_model_bytes = int64_t{1} << 31; ///< what protobuf takes
  int64_t max_nodes = 2'000'000;              ///< functions inlined
  int max_nesting = 64;
  int64_t max_tensors = 2'000'000;
  int64_t max_tensor_bytes = int64_t{1} << 40; ///< one tensor
  int64_t max_dense_bytes = int64_t{1} << 32;  ///< all sparse tensors together, made dense
  bool strict_links = false; ///< external data must be a regular file with one name, not a symbolic link

  /// Of several imports of one model: files that are not those of the first one are refused.
  std::shared_ptr<importer::SeenFiles> seen;
  /// Is told where tensors that are left in the form of the file lie in it; null: nobody is.
  std::shared_ptr<importer::TensorPlaces> places;
};

/// ModelError when a model has more bytes than the limit.
void check_model_bytes(size_t bytes, const ImportOptions& options);

/// From a file, which is read; external data is mapped, from below its folder only.
Graph import_model(const std::filesystem::path& file, const ImportOptions& options = {});
/// From bytes (copied as needed); external data is refused unless `base_dir` is given.
Graph import_model(std::span<const std::byte> bytes, const ImportOptions& options = {},
                   const std::filesystem::path& base_dir = {});

} // namespace tbx
