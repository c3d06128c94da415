// What the commands of `tbx` share: options of a compilation, inputs, exit codes.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tensorbox/tensorbox.h"

namespace tbx::tools {

using Json = nlohmann::ordered_json;

enum ExitCode : int {
  kOk = 0,
  kDiffers = 1,      ///< compare: the values differ; demo: too many images are misread
  kUsage = 2,        ///< the command line is wrong, or a file it names cannot be read or written
  kModelError = 3,   ///< the model or an input is wrong
  kUnsupported = 4,  ///< valid ONNX that tensorbox does not handle yet
  kBackendError = 5, ///< compiler or library failed
  kInternal = 6,     ///< a defect of tensorbox
};

/// What the user asked for cannot be done as asked: exit code 2, message on stderr.
class UsageError : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

/// Options every command that compiles a model takes.
struct ModelOptions {
  std::string model;
  CompileOptions compile;
  std::vector<std::string> dims;   ///< name=value
  std::vector<std::string> inputs; ///< name=file
  std::vector<std::string> state;  ///< input=output
  std::optional<uint64_t> seed;
  bool json = false, quiet = false;
  bool is_loaded = false; ///< after open(): the model is a package, and nothing was compiled
  /// What add_to() made. CLI11 finds options by name in a function that ends the process without memory.
  CLI::Option *model_option = nullptr, *device_option = nullptr, *isa_option = nullptr;

  void add_to(CLI::App& app, bool with_inputs = true);
  /// Of commands that run the model.
  void add_tiered(CLI::App& app);
  /// Compiles; reports progress on a terminal. Throws Exception.
  Session open();

private:
  void add_how_to_compile(CLI::App& app);
  void add_state(CLI::App& app);
  void add_limits(CLI::App& app);
  void add_inputs(CLI::App& app);
};

/// A line on stderr that says how far something is, where that is a terminal; removed at the end.
class Progress {
public:
  explicit Progress(const ModelOptions& options);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// total 0: of nothing that is counted.
  void show(const std::string& stage, size_t done, size_t total) const;

private:
  bool shown_;
};

/// Limits of loading, and `--untrusted`.
void add_load_limits(CLI::App& app, CompileOptions& to);

/// "compiled in 8 ms", "started with a kept plan in 1 ms", or of a package "loaded".
std::string how_made(const ModelOptions& options, const Session& session);
/// With --tiered: what the last run was.
void say_tier(const ModelOptions& options, const Session& session);

/// A tensor in memory of its own.
struct OwnedTensor {
  std::string name;
  int32_t type = 1;
  std::vector<int64_t> dims;
  std::vector<std::byte> bytes;
  std::vector<std::string> strings; ///< the elements of a string tensor
  TensorView view() { return {type == kString ? static_cast<void*>(&strings) : bytes.data(), type, dims}; }
  static constexpr int32_t kString = 8; ///< onnx.TensorProto.STRING
  int64_t numel() const;
};

/// Bytes of one element of an ONNX type in tensorbox memory; 0 for strings.
int64_t element_size(int32_t type);

/// Inputs from the files given, random values (by name and seed) for the others. A symbolic dimension has the
/// size that --dim gives it, else the one it has in a file, else 1. Throws UsageError.
std::vector<OwnedTensor> make_inputs(const Session& session, const ModelOptions& options);
/// After a run of these inputs has failed: others, with which the model runs, where one dimension without
/// --dim is the sum of two (the length of a cache and of what is new). Throws Exception(failure) where that
/// does not help, or is no matter of the inputs.
void find_sizes(const Session& session, const ModelOptions& options, std::vector<OwnedTensor>& inputs,
                const Failure& failure);
/// The sizes in {"name=5", ...} of --dim. Throws UsageError for what is no size, or a name given twice.
std::map<std::string, int64_t> parse_dims(const std::vector<std::string>& texts);
/// Of an option whose value is a number.
CLI::Validator at_least_zero();
/// {name, rest} of "name=rest". Throws UsageError, which names `option`.
std::pair<std::string, std::string> split_assignment(const std::string& option, const std::string& text);
Session::Inputs views(std::vector<OwnedTensor>& inputs);
/// Feeds for run_values: views of the tensors' memory, copies of strings.
Session::Values values_of(std::vector<OwnedTensor>& inputs);

/// Some input or output is no tensor.
bool takes_or_gives_values(const Session& session);

/// Element as double, for statistics and comparison.
double element(const void* data, int32_t type, int64_t index);

/// Shape as text: "1x3x224x224".
std::string shape_text(const std::vector<int64_t>& dims);

/// An output or a value in between as a tensor of its own.
OwnedTensor copy_of(const std::string& name, int32_t type, const std::vector<int64_t>& dims, const void* data,
                    const std::vector<std::string>* strings = nullptr);

/// JSON as it goes to stdout: two spaces, ASCII alone, bytes that are no UTF-8 as U+FFFD, numbers that JSON
/// lacks as null.
void print_json(const Json& value);

int exit_code(const Failure& failure);

// One function per command: adds it to the app and returns nothing; the callback sets `code`.
void add_demo(CLI::App& app, int& code);
void add_run(CLI::App& app, int& code);
void add_compile(CLI::App& app, int& code);
void add_bench(CLI::App& app, int& code);
void add_dump(CLI::App& app, int& code);
void add_explain(CLI::App& app, int& code);
void add_optimize(CLI::App& app, int& code);
void add_ops(CLI::App& app, int& code);
void add_doctor(CLI::App& app, int& code);
void add_compare(CLI::App& app, int& code);

} // namespace tbx::tools
