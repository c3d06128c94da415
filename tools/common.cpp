#include "tools/common.h"

#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <set>

#include "base/dtype.h"
#include "base/float_formats.h"
#include "tools/files.h"

namespace tbx::tools {

void ModelOptions::add_to(CLI::App& app, bool with_inputs) {
  app.add_option("model", model, "ONNX file")->required()->check(CLI::ExistingFile);
  app.add_option("--threads", compile.threads,
                 "threads; 0: what the machine grants (quota, affinity, OMP_NUM_THREADS)");
  app.add_option("--isa", compile.isa, "avx512, avx2 or sse; default: the best this CPU has");
  app.add_flag_callback(
      "--no-compile", [this] { compile.compile = false; }, "run everything in the evaluator");
  app.add_flag_callback(
      "--no-fusion", [this] { compile.fuse = compile.fuse_extern = false; }, "one kernel per operation");
  app.add_option("--disable-pass", compile.disabled_passes,
                 "graph pass to leave out (tbx explain --passes lists them)");
  app.add_option("--cache-dir", compile.cache_dir, "where compiled kernels are kept");
  app.add_option("--max-memory", compile.max_memory, "limit of a run's working memory in bytes");
  app.add_option("--dim", dims, "value of a symbolic dimension: batch=4");
  if (with_inputs) {
    app.add_option("--input", inputs, "input from a file: name=x.npy, name=x.npz:key, name=x.pb, name=x.png");
    app.add_option("--seed", seed, "seed of random inputs");
  }
  app.add_flag("--json", json, "machine-readable output on stdout");
  app.add_flag("--quiet", quiet, "no progress");
}

Session ModelOptions::open() {
  bool terminal = isatty(STDERR_FILENO) && !quiet;
  if (terminal)
    compile.progress = [](const std::string& stage, int done, int total) {
      fmt::print(stderr, "\r\033[K{}{}", stage, total ? fmt::format(" {}/{}", done, total) : "");
    };
  compile.log = [](const std::string& message) { fmt::print(stderr, "note: {}\n", message); };
  auto session = Session::compile(model, compile);
  if (terminal) fmt::print(stderr, "\r\033[K");
  return std::move(session).value();
}

int64_t OwnedTensor::numel() const {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

int64_t element_size(int32_t type) { return size_of(static_cast<DType>(type)); }

namespace {

std::pair<std::string, std::string> split_assignment(const std::string& text) {
  size_t eq = text.find('=');
  if (eq == std::string::npos || eq == 0) throw std::runtime_error("expected name=value, got '" + text + "'");
  return {text.substr(0, eq), text.substr(eq + 1)};
}

void fill_random(OwnedTensor& t, uint64_t seed) {
  std::mt19937_64 rng(seed + std::hash<std::string>{}(t.name));
  int64_t n = t.numel();
  std::normal_distribution<float> normal;
  auto put = [&]<class T>(T, auto&& make) {
    for (int64_t i = 0; i < n; ++i) reinterpret_cast<T*>(t.bytes.data())[i] = static_cast<T>(make());
  };
  auto small = [&] { return rng() % 8; };
  switch (static_cast<DType>(t.type)) {
  case DType::f32: return put(float{}, [&] { return normal(rng); });
  case DType::f64: return put(double{}, [&] { return normal(rng); });
  case DType::boolean: return put(uint8_t{}, [&] { return rng() & 1; });
  case DType::i64:
  case DType::u64: return put(int64_t{}, small);
  case DType::i32:
  case DType::u32: return put(int32_t{}, small);
  case DType::i16:
  case DType::u16: return put(int16_t{}, small);
  case DType::f16:
  case DType::bf16:
    return put(uint16_t{}, [&] { return encode_float(static_cast<DType>(t.type), normal(rng)); });
  default: return put(uint8_t{}, small);
  }
}

void check_dim_names(const Session& session, const std::map<std::string, int64_t>& dims) {
  std::set<std::string> known;
  for (const TensorInfo& info : session.inputs())
    for (const std::string& d : info.dims)
      if (d.find_first_not_of("0123456789") != std::string::npos) known.insert(d);
  for (const auto& [name, value] : dims)
    if (!known.count(name))
      throw std::runtime_error(known.empty()
                                   ? fmt::format("--dim {}: the model has no dynamic dimension", name)
                                   : fmt::format("--dim {}: no such dimension; the model's are: {}", name,
                                                 fmt::join(known, ", ")));
}

} // namespace

std::map<std::string, int64_t> ModelOptions::dim_values() const {
  std::map<std::string, int64_t> values;
  for (const std::string& s : dims) {
    auto [name, text] = split_assignment(s);
    int64_t value = -1;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 0)
      throw std::runtime_error(fmt::format("--dim {}: '{}' is not a size", s, text));
    values[name] = value;
  }
  return values;
}

std::vector<OwnedTensor> make_inputs(const Session& session, const ModelOptions& options) {
  std::map<std::string, std::string> files;
  std::map<std::string, int64_t> dims = options.dim_values();
  for (const std::string& s : options.inputs) files.insert(split_assignment(s));
  check_dim_names(session, dims);
  std::vector<OwnedTensor> tensors;
  for (const TensorInfo& info : session.inputs()) {
    if (info.type == 0 || static_cast<DType>(info.type) == DType::string)
      throw Exception(
          {Failure::unsupported_error,
           fmt::format("input '{}' is a {}: the command line makes numeric tensors only (use the C++ or the "
                       "Python interface)",
                       info.name, info.type_name)});
    OwnedTensor t;
    t.name = info.name;
    t.type = info.type;
    for (const std::string& d : info.dims) {
      bool number = !d.empty() && d.find_first_not_of("0123456789") == std::string::npos;
      t.dims.push_back(number ? std::stoll(d) : dims.count(d) ? dims[d] : 1);
    }
    if (auto it = files.find(info.name); it != files.end()) {
      OwnedTensor read = read_tensor(it->second, t);
      read.name = info.name;
      files.erase(it);
      tensors.push_back(std::move(read));
      continue;
    }
    t.bytes.resize(static_cast<size_t>(t.numel() * std::max<int64_t>(1, element_size(t.type))));
    fill_random(t, options.seed);
    tensors.push_back(std::move(t));
  }
  if (!files.empty()) {
    std::vector<std::string> names;
    for (const TensorInfo& info : session.inputs()) names.push_back(info.name);
    throw std::runtime_error(fmt::format("the model has no input '{}'; its inputs are: {}",
                                         files.begin()->first, fmt::join(names, ", ")));
  }
  return tensors;
}

Session::Inputs views(std::vector<OwnedTensor>& inputs) {
  Session::Inputs list;
  for (OwnedTensor& t : inputs) list.emplace_back(t.name, t.view());
  return list;
}

double element(const void* data, int32_t type, int64_t i) {
  auto at = [&]<class T>(T) { return static_cast<double>(static_cast<const T*>(data)[i]); };
  auto t = static_cast<DType>(type);
  switch (t) {
  case DType::f32: return at(float{});
  case DType::f64: return at(double{});
  case DType::i8:
  case DType::i4: return at(int8_t{});
  case DType::i16: return at(int16_t{});
  case DType::u16: return at(uint16_t{});
  case DType::i32: return at(int32_t{});
  case DType::u32: return at(uint32_t{});
  case DType::i64: return at(int64_t{});
  case DType::u64: return at(uint64_t{});
  default: break;
  }
  if (!is_low_precision_float(t)) return at(uint8_t{});
  uint32_t bits =
      size_of(t) == 2 ? static_cast<const uint16_t*>(data)[i] : static_cast<const uint8_t*>(data)[i];
  return decode_float(t, bits);
}

void set_examples(CLI::App& cmd, const std::string& lines) {
  cmd.footer("Examples:\n" + lines + "\nExit codes and environment variables: tbx --help");
}

std::string shape_text(const std::vector<int64_t>& dims) {
  return dims.empty() ? "scalar" : fmt::format("{}", fmt::join(dims, "x"));
}

int exit_code(const Failure& failure) {
  switch (failure.kind) {
  case Failure::model_error: return kModelError;
  case Failure::unsupported_error: return kUnsupported;
  case Failure::backend_error: return kBackendError;
  case Failure::internal_error: return kInternal;
  }
  return kInternal;
}

} // namespace tbx::tools
