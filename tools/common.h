// What the commands of `tbx` share: options of a compilation, inputs, exit codes.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tensorbox/tensorbox.h"

namespace tbx::tools {

using Json = nlohmann::ordered_json;

enum ExitCode : int {
  kOk = 0,
  kDiffers = 1,      ///< compare: the outputs differ
  kUsage = 2,        ///< the command line is wrong
  kModelError = 3,   ///< the model or an input is wrong
  kUnsupported = 4,  ///< valid ONNX that tensorbox does not handle yet
  kBackendError = 5, ///< compiler or library failed
  kInternal = 6,     ///< a defect of tensorbox
};

/// Options every command that compiles a model takes.
struct ModelOptions {
  std::string model;
  CompileOptions compile;
  std::vector<std::string> dims;   ///< name=value
  std::vector<std::string> inputs; ///< name=file
  uint64_t seed = 0;
  bool json = false, quiet = false;

  void add_to(CLI::App& app, bool with_inputs = true);
  /// Of --dim. Throws std::runtime_error for what is no size.
  std::map<std::string, int64_t> dim_values() const;
  /// Compiles; reports progress on a terminal. Throws Exception.
  Session open();
};

/// A tensor in memory of its own.
struct OwnedTensor {
  std::string name;
  int32_t type = 1;
  std::vector<int64_t> dims;
  std::vector<std::byte> bytes;
  TensorView view() { return {bytes.data(), type, dims}; }
  int64_t numel() const;
};

/// Bytes of one element of an ONNX type in tensorbox memory; 0 for strings.
int64_t element_size(int32_t type);

/// Inputs from the files given, random values (by name and seed) for the others. Symbolic dimensions are 1
/// unless
/// --dim says otherwise.
std::vector<OwnedTensor> make_inputs(const Session& session, const ModelOptions& options);
Session::Inputs views(std::vector<OwnedTensor>& inputs);

/// Element as double, for statistics and comparison.
double element(const void* data, int32_t type, int64_t index);

/// "Examples:" under a command's help.
void set_examples(CLI::App& cmd, const std::string& lines);

/// Shape as text: "1x3x224x224".
std::string shape_text(const std::vector<int64_t>& dims);

int exit_code(const Failure& failure);

// One function per command: adds it to the app and returns nothing; the callback sets `code`.
void add_demo(CLI::App& app, int& code);
void add_run(CLI::App& app, int& code);
void add_bench(CLI::App& app, int& code);
void add_dump(CLI::App& app, int& code);
void add_explain(CLI::App& app, int& code);
void add_ops(CLI::App& app, int& code);
void add_compare(CLI::App& app, int& code);

} // namespace tbx::tools
