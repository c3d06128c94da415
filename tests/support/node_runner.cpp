// Runs ONNX node tests through import, lowering and the evaluator, without scheduling or code generation.
//
//   tbx_node_runner [--dynamic] <folder>...    each with model.onnx, input_<i>.pb, output_<i>.pb and meta
//   ("rtol atol usable")
//
// Prints one line per test: PASS, FAIL (wrong result) or ERROR with the reason. Values that a lowering must
// know while compiling are taken from the test's inputs.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>

#include "base/error.h"
#include "importer/import.h"
#include "importer/tensors.h"
#include "lowering/lower.h"
#include "lowering/reference_run.h"
#include "tests/support/extern_runner.h"

namespace {

using namespace tbx;

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<Tensor> read_tensors(const std::string& folder, const std::string& kind) {
  std::vector<Tensor> out;
  for (int i = 0;; ++i) {
    std::string path = folder + "/" + kind + "_" + std::to_string(i) + ".pb";
    if (!std::filesystem::exists(path)) return out;
    onnx::TensorProto proto;
    if (!proto.ParseFromString(read_file(path))) throw_model_error("{} is no tensor", path);
    ImportOptions options;
    importer::TensorReader reader(options, {}, {});
    out.push_back(*reader.read(proto, path));
  }
}

std::string compare(const Tensor& got, const Tensor& want, double rtol, double atol) {
  if (got.dtype != want.dtype)
    return fmt::format("type {} instead of {}", name_of(got.dtype), name_of(want.dtype));
  if (got.dims != want.dims)
    return fmt::format("shape [{}] instead of [{}]", fmt::join(got.dims, ","), fmt::join(want.dims, ","));
  for (int64_t i = 0; i < got.numel(); ++i) {
    double a = element_as_double(got, i), b = element_as_double(want, i);
    if (std::isnan(a) && std::isnan(b)) continue;
    if (a == b || std::abs(a - b) <= atol + rtol * std::abs(b)) continue;
    return fmt::format("element {}: {} instead of {}", i, a, b);
  }
  return {};
}

ir::Program lower_with(const Graph& graph, const std::vector<Tensor>& inputs) {
  lowering::LowerOptions options;
  for (;;) {
    lowering::Lowered lowered = lowering::lower(graph, options);
    if (auto* program = std::get_if<ir::Program>(&lowered)) return std::move(*program);
    const auto& demand = std::get<lowering::Demand>(lowered);
    bool more = false;
    for (size_t i = 0; i < graph.inputs.size() && i < inputs.size(); ++i)
      for (const std::string& name : demand.inputs)
        if (graph.at(graph.inputs[i]).name == name)
          more |= options.known_inputs.emplace(name, std::make_shared<Tensor>(inputs[i])).second;
    if (!more) throw Error(demand.reason);
  }
}

std::string run_test(const std::string& folder, bool dynamic) {
  std::stringstream meta(read_file(folder + "/meta"));
  double rtol = 1e-3, atol = 1e-7;
  int usable = 1;
  meta >> rtol >> atol >> usable;
  if (!usable) return "ERROR inputs or outputs are not tensors";
  try {
    ImportOptions import_options;
    import_options.all_dims_dynamic = dynamic;
    Graph graph = import_model(std::filesystem::path(folder + "/model.onnx"), import_options);
    std::vector<Tensor> inputs = read_tensors(folder, "input"), want = read_tensors(folder, "output");
    ir::Program program = lower_with(graph, inputs);
    std::vector<Tensor> got = lowering::run_program(program, inputs, test::run_extern);
    for (size_t i = 0; i < want.size(); ++i) {
      std::string difference = compare(got.at(i), want[i], rtol, atol);
      if (!difference.empty()) return fmt::format("FAIL output {}: {}", i, difference);
    }
    return "PASS";
  } catch (std::exception& e) {
    return std::string("ERROR ") + e.what();
  }
}

} // namespace

int main(int argc, char** argv) {
  int passed = 0, first = argc > 1 && std::string_view(argv[1]) == "--dynamic" ? 2 : 1;
  for (int i = first; i < argc; ++i) {
    std::string result = run_test(argv[i], first == 2);
    passed += result == "PASS";
    std::cout << std::filesystem::path(argv[i]).filename().string() << ": " << result << std::endl;
  }
  std::cout << passed << " of " << argc - first << " passed\n";
}
