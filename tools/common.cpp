#include "tools/common.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <sstream>

#include "base/dtype.h"
#include "base/float_formats.h"
#include "tools/files.h"
#include "tools/interrupt.h"
#include "tools/say.h"

namespace tbx::tools {

void ModelOptions::add_to(CLI::App& app, bool with_inputs) {
  model_option = app.add_option("model", model, "ONNX file, or a package of `tbx compile`")
                     ->required()
                     ->check(CLI::ExistingFile);
  add_how_to_compile(app);
  add_state(app);
  add_limits(app);
  if (with_inputs) add_inputs(app);
  app.add_flag("--json", json, "one JSON value on stdout; notes and errors stay on stderr");
  app.add_flag("--quiet", quiet, "no progress (shown on a terminal only)");
  compile.interrupted = interrupted;
}

void ModelOptions::add_how_to_compile(CLI::App& app) {
  app.add_option("--threads", compile.threads,
                 "threads; 0: what the machine grants (quota, affinity, OMP_NUM_THREADS)")
      ->check(CLI::Range(0, 4096))
      ->group("Compiler");
  device_option =
      app.add_option("--device", compile.device,
                     "cuda or cuda:1: an NVIDIA GPU runs what it has kernels for (docs/gpu.md); default: cpu")
          ->transform([](const std::string& name) { return name == "cpu" ? std::string() : name; })
          ->group("Compiler");
  isa_option = app.add_option("--isa", compile.isa, "avx512, avx2 or sse; default: the best this CPU has")
                   ->check(CLI::IsMember({"avx512", "avx2", "sse"}))
                   ->group("Compiler");
  app.add_option(
         "--precision", compile.precision,
         "float32 models: strict (default), tf32 (of GPUs: operands of products are rounded to it), bf16 or "
         "f16 (memory and operands of products are narrow, sums "
         "and sensitive operators float32; docs/precision.md) or any (bf16 where the CPU is faster with it, "
         "larger tiles of convolutions)")
      ->check(CLI::IsMember({"strict", "tf32", "bf16", "f16", "any"}))
      ->group("Compiler");
  app.add_flag_callback(
         "--no-compile", [this] { compile.compile = false; }, "run everything in the evaluator")
      ->group("Compiler");
  app.add_flag("--reference", compile.reference,
               "compute everything by plain loops that add in double: no compiler, library, tuned kernel or "
               "fusion; slow")
      ->group("Compiler");
  app.add_flag_callback(
         "--no-fusion", [this] { compile.fuse = compile.fuse_extern = false; },
         "schedule every operation alone; elementwise nodes that lowering joined stay joined")
      ->group("Compiler");
  // One value per mention: a list would swallow the model's name when that comes after it.
  app.add_option("--disable-pass", compile.disabled_passes,
                 "graph pass or step of the schedule to leave out (tbx explain --passes lists them)")
      ->allow_extra_args(false)
      ->check([](const std::string& name) {
        std::vector<std::string> all = pass_names();
        return std::find(all.begin(), all.end(), name) != all.end()
                   ? std::string()
                   : fmt::format("there is no pass '{}'; `tbx explain --passes` lists them", name);
      })
      ->group("Compiler");
  app.add_option("--operators", compile.operator_libraries,
                 "shared library with custom operators (docs/custom_operators.md); its code runs in this "
                 "process; repeatable")
      ->allow_extra_args(false)
      ->group("Compiler");
  app.add_option("--cache-dir", compile.cache_dir, "where compiled kernels and plans are kept")
      ->group("Compiler");
  app.add_flag_callback(
         "--no-kept-plans", [this] { compile.keep_plans = false; },
         "compile the model anew, and keep nothing of that for its next start (docs/kernels.md)")
      ->group("Compiler");
}

void ModelOptions::add_state(CLI::App& app) {
  app.add_option("--state", state,
                 "input that the session keeps, and the output that it is in the next run: "
                 "past_key_values.*=present.*, where * stands for the same text; repeatable")
      ->allow_extra_args(false)
      ->each([this](const std::string& text) { compile.state.insert(split_assignment("--state", text)); })
      ->group("Compiler");
  app.add_option(
         "--state-capacity", compile.state_capacity,
         "room for so many along the dimension of them that grows; without it and --state-limit the room "
         "grows as runs need it")
      ->check(at_least_zero())
      ->group("Compiler");
  app.add_option("--state-limit", compile.state_limit,
                 "room that grows as runs need it, from that of --state-capacity up to this")
      ->check(at_least_zero())
      ->group("Compiler");
}

void ModelOptions::add_inputs(CLI::App& app) {
  app.add_option("--input", inputs,
                 "input from a file: name=x.npy, name=x.npz:key, name=x.pb, name=x.png; repeatable. "
                 "Inputs without a file are random: integers from 0 to 7, or what the graph needs of them "
                 "(ids below the length of their table, axes below a rank, counts from 1, summed masks 1)")
      ->allow_extra_args(false)
      ->group("Inputs");
  app.add_option(
         "--dim", dims,
         "size of a symbolic dimension of the inputs: batch=4; repeatable. Default 1, and for one that "
         "is named as a sum (past + length) that sum; where the model "
         "refuses that, sums of other sizes are tried")
      ->allow_extra_args(false)
      ->group("Inputs");
  app.add_option("--seed", seed,
                 "seed of random inputs (default 0) and of the model's random operators (default: another "
                 "one every "
                 "time); equal seeds give equal inputs and results")
      ->check([](const std::string& text) { // CLI11 takes -1 and numbers of more than 64 bits
        uint64_t value = 0;
        const char* end = text.data() + text.size();
        const auto [read, error] = std::from_chars(text.data(), end, value);
        return error == std::errc() && read == end
                   ? std::string()
                   : fmt::format("'{}' is not a whole number from 0 to 2^64 - 1", text);
      })
      ->group("Inputs");
}

void ModelOptions::add_tiered(CLI::App& app) {
  app.add_flag(
         "--tiered", compile.tiered,
         "first runs by the evaluator at once, while the C++ compiler builds kernels behind them, and later "
         "ones by those; what was built when the command ends stays in the cache")
      ->group("Compiler");
}

namespace {

void add_bytes(CLI::App& app, const char* name, int64_t& value, const char* what) {
  app.add_option(name, value, what)
      ->transform(CLI::AsSizeValue(false))
      ->check(at_least_zero())
      ->group("Limits");
}

void add_count(CLI::App& app, const char* name, int64_t& value, const char* what) {
  app.add_option(name, value, what)->check(at_least_zero())->group("Limits");
}

} // namespace

void add_load_limits(CLI::App& app, CompileOptions& to) {
  app.add_flag("--untrusted", to.untrusted,
               "the model comes from a stranger: all limits hold, with the values of docs/security.md; no "
               "--operators, no links to external data")
      ->group("Limits");
  add_bytes(app, "--load-memory", to.load_memory,
            "most bytes of what loading makes of the model; default: --max-memory, where that is given");
  add_count(
      app, "--load-time-limit", to.load_time_limit_ms,
      "milliseconds after which loading ends with an error, without the C++ compiler; default: --time-limit, "
      "where that is given");
  add_bytes(app, "--max-model-bytes", to.max_model_bytes,
            "most bytes of the model file, without external data");
  add_count(app, "--max-nodes", to.max_nodes, "most nodes of the model, functions inlined");
  add_count(app, "--max-nesting", to.max_nesting,
            "most levels of bodies, types and functions inside each other, up to 64");
  add_count(app, "--max-tensors", to.max_tensors, "most initializers, constants and tensors of attributes");
  add_bytes(app, "--max-tensor-bytes", to.max_tensor_bytes, "most bytes of one tensor in the model");
  add_bytes(app, "--max-dense-bytes", to.max_dense_bytes,
            "most bytes of all sparse tensors of the model, made dense");
  app.add_flag("--strict-links", to.strict_links, "refuse external data that is a symbolic or hard link")
      ->group("Limits");
}

void ModelOptions::add_limits(CLI::App& app) {
  add_bytes(app, "--max-memory", compile.max_memory,
            "most bytes of a run's working memory: a number, or 64kb, 512mb, 2gb");
  add_count(app, "--time-limit", compile.time_limit_ms, "milliseconds after which a run ends with an error");
  add_load_limits(app, compile);
  add_count(app, "--compile-time-limit-ms", compile.compile_time_limit_ms,
            "milliseconds that the C++ compiler may take for all kernels; default: 5 minutes");
  add_bytes(app, "--compile-memory", compile.compile_memory,
            "address space of the C++ compiler; default: 4gb");
}

Progress::Progress(const ModelOptions& options) : shown_(isatty(STDERR_FILENO) && !options.quiet) {}
Progress::~Progress() {
  if (shown_) std::fputs("\r\033[K", stderr);
}
void Progress::show(const std::string& stage, size_t done, size_t total) const {
  if (shown_) fmt::print(stderr, "\r\033[K{}{}", stage, total ? fmt::format(" {}/{}", done, total) : "");
}

Session ModelOptions::open() {
  auto progress = std::make_shared<std::optional<Progress>>(std::in_place, *this);
  compile.progress = [progress](const std::string& stage, int done, int total) {
    if (*progress) (*progress)->show(stage, static_cast<size_t>(done), static_cast<size_t>(total));
  };
  compile.log = [](const std::string& message) { say(stderr, "note: {}\n", message); };
  if (seed) compile.seed = static_cast<int64_t>(*seed);
  auto session = Session::compile(model, compile);
  progress->reset();
  Session made = std::move(session).value();
  is_loaded = is_package(model);
  for (const TensorInfo& info : made.inputs()) {
    auto given = [&](const std::string& s) { return s.starts_with(info.name + "="); };
    if (info.any_rank && std::none_of(inputs.begin(), inputs.end(), given))
      compile.log(fmt::format(
          "input '{0}' is {1}[...], of any rank: where no --input {0}=... gives it, it is a scalar",
          info.name, info.type_name));
  }
  return made;
}

std::string how_made(const ModelOptions& options, const Session& session) {
  if (options.is_loaded) return "loaded";
  const CompileStats stats = session.stats();
  return fmt::format("{} in {:.0f} ms", stats.kept_plan ? "started with a kept plan" : "compiled",
                     stats.total_ms);
}

void say_tier(const ModelOptions& options, const Session& session) {
  if (!options.compile.tiered) return;
  const CompileStats stats = session.stats();
  say("the last run had {} kernel(s) in the evaluator, {} compiled\n", stats.evaluated_kernels,
      stats.generated_kernels - stats.evaluated_kernels);
}

int64_t OwnedTensor::numel() const {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

int64_t element_size(int32_t type) { return size_of(static_cast<DType>(type)); }

namespace {

bool is_number(const std::string& s) {
  return !s.empty() && s.find_first_not_of("0123456789") == std::string::npos;
}

/// The integers [first, second) that a random input holds: what the model is known to take, or small ones.
std::pair<int64_t, int64_t> values_in(const IntegerRange& range,
                                      const std::map<std::string, int64_t>& sizes) {
  if (range.below.empty()) return {range.least, range.least + 8};
  int64_t below = INT64_MAX;
  for (const std::string& b : range.below) {
    auto it = sizes.find(b);
    below = std::min<int64_t>(below, is_number(b) ? std::stoll(b) : it != sizes.end() ? it->second : 1);
  }
  return {range.least, std::max(below, range.least + 1)};
}

void fill_random(OwnedTensor& t, uint64_t seed, std::pair<int64_t, int64_t> values, bool distinct) {
  std::mt19937_64 rng(seed + std::hash<std::string>{}(t.name));
  int64_t n = t.numel();
  std::normal_distribution<float> normal;
  auto put = [&]<class T>(T, auto&& make) {
    for (int64_t i = 0; i < n; ++i) reinterpret_cast<T*>(t.bytes.data())[i] = static_cast<T>(make());
  };
  const uint64_t many = static_cast<uint64_t>(values.second) - static_cast<uint64_t>(values.first);
  uint64_t next = 0;
  auto whole = [&] { return values.first + static_cast<int64_t>((distinct ? next++ : rng()) % many); };
  switch (static_cast<DType>(t.type)) {
  case DType::f32: return put(float{}, [&] { return normal(rng); });
  case DType::f64: return put(double{}, [&] { return normal(rng); });
  case DType::boolean: return put(uint8_t{}, [&] { return rng() & 1; });
  case DType::i64:
  case DType::u64: return put(int64_t{}, whole);
  case DType::i32:
  case DType::u32: return put(int32_t{}, whole);
  case DType::i16:
  case DType::u16: return put(int16_t{}, whole);
  case DType::f16:
  case DType::bf16:
    return put(uint16_t{}, [&] { return encode_float(static_cast<DType>(t.type), normal(rng)); });
  case DType::c64: // pairs of parts
    n *= 2;
    return put(float{}, [&] { return normal(rng); });
  case DType::c128: n *= 2; return put(double{}, [&] { return normal(rng); });
  default: break;
  }
  auto type = static_cast<DType>(t.type);
  if (is_low_precision_float(type)) return put(uint8_t{}, [&] { return encode_float(type, normal(rng)); });
  const int64_t all = int64_t{1} << (bits_of(type) - is_signed(type)); // i2 holds 0 and 1 of those above 0
  put(uint8_t{}, [&] { return whole() % all; });
}

/// Sizes of the symbols: from --dim (`given`), and from the shapes of inputs that come from files.
void bind_symbols(std::map<std::string, int64_t>& sizes, const std::map<std::string, int64_t>& given,
                  const TensorInfo& info, const OwnedTensor& read, const std::string& file) {
  if (read.dims.size() != info.dims.size()) return; // the session says what is wrong
  for (size_t d = 0; d < info.dims.size(); ++d) {
    const std::string& name = info.dims[d];
    if (is_number(name)) continue;
    sizes.emplace(name, read.dims[d]);
    if (auto it = given.find(name); it != given.end() && it->second != read.dims[d])
      throw UsageError(fmt::format("--dim {}={}: {} has {} there (dimension {} of '{}')", name, it->second,
                                   file, read.dims[d], d, info.name));
  }
}

/// Exporters name a dimension after what it is made of: "past_length + length". It is that sum unless it is
/// given.
void bind_sums(std::map<std::string, int64_t>& sizes, const std::set<std::string>& symbols) {
  for (const std::string& symbol : symbols) {
    if (sizes.count(symbol) || symbol.find('+') == std::string::npos) continue;
    int64_t sum = 0;
    bool known = true;
    std::istringstream terms(symbol);
    for (std::string term; std::getline(terms, term, '+');) {
      std::erase(term, ' ');
      auto it = sizes.find(term);
      known &= is_number(term) ? term.size() < 10 : symbols.count(term) != 0;
      if (known) sum += is_number(term) ? std::stoll(term) : it != sizes.end() ? it->second : 1;
    }
    if (known) sizes[symbol] = sum;
  }
}

OwnedTensor random_input(const TensorInfo& info, const std::map<std::string, int64_t>& sizes, uint64_t seed) {
  if (info.type == 0 || info.type == OwnedTensor::kString)
    throw UsageError(fmt::format("input '{}' is a {}: {}", info.name, info.type_name,
                                 info.type
                                     ? "random values are for numbers; give --input " + info.name + "=x.npy"
                                     : "the command line only feeds tensors; use the C++ or Python API"));
  OwnedTensor t;
  t.name = info.name;
  t.type = info.type;
  int64_t bytes = std::max<int64_t>(1, element_size(info.type));
  for (const std::string& d : info.dims) {
    auto it = sizes.find(d);
    t.dims.push_back(is_number(d) ? std::stoll(d) : it != sizes.end() ? it->second : 1);
    if (__builtin_mul_overflow(bytes, t.dims.back(), &bytes) || bytes > int64_t{1} << 40)
      throw UsageError(fmt::format(
          "input '{}' would need more than a terabyte; choose smaller sizes with --dim", info.name));
  }
  t.bytes.resize(static_cast<size_t>(bytes));
  fill_random(t, seed, values_in(info.range, sizes), info.range.distinct);
  return t;
}

} // namespace

std::pair<std::string, std::string> split_assignment(const std::string& option, const std::string& text) {
  size_t eq = text.find('=');
  if (eq == std::string::npos || eq == 0 || eq + 1 == text.size())
    throw UsageError(fmt::format("{}: expected name=value, got '{}'", option, text));
  return {text.substr(0, eq), text.substr(eq + 1)};
}

std::map<std::string, int64_t> parse_dims(const std::vector<std::string>& texts) {
  std::map<std::string, int64_t> sizes;
  for (const std::string& text : texts) {
    auto [name, value] = split_assignment("--dim", text);
    int64_t size = 0;
    auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), size);
    if (error != std::errc() || end != value.data() + value.size() || size < 0)
      throw UsageError(fmt::format("--dim: '{}' is not a size, for '{}'", value, name));
    if (!sizes.emplace(name, size).second) throw UsageError(fmt::format("--dim: '{}' is given twice", name));
  }
  return sizes;
}

CLI::Validator at_least_zero() {
  return {[](const std::string& text) {
            double value = 0;
            bool good = CLI::detail::lexical_cast(text, value) && value >= 0;
            return good ? std::string() : fmt::format("'{}' is not a number of at least 0", text);
          },
          ">=0", "at least zero"};
}

std::vector<OwnedTensor> make_inputs(const Session& session, const ModelOptions& options) {
  std::map<std::string, const TensorInfo*> known;
  std::set<std::string> symbols;
  for (const TensorInfo& info : session.inputs()) {
    known[info.name] = &info;
    for (const std::string& d : info.dims)
      if (!is_number(d)) symbols.insert(d);
  }
  const std::map<std::string, int64_t> given = parse_dims(options.dims);
  for (const auto& [name, size] : given) {
    if (!symbols.count(name))
      throw UsageError(symbols.empty() ? fmt::format("--dim {}: the model has no dynamic dimension", name)
                                       : fmt::format("--dim {}: no such dimension; the model's are: {}", name,
                                                     fmt::join(symbols, ", ")));
  }
  std::map<std::string, int64_t> sizes = given;
  std::map<std::string, OwnedTensor> read;
  for (const std::string& s : options.inputs) {
    auto [name, file] = split_assignment("--input", s);
    auto it = known.find(name);
    if (it == known.end()) {
      for (const TensorInfo& constant : session.overridable_initializers())
        if (constant.name == name)
          throw UsageError(
              fmt::format("--input {}: '{}' is an input of the model that has an initializer, which "
                          "is a constant; the option overridable of the C++ and Python API makes "
                          "it an input",
                          s, name));
      std::vector<std::string> names;
      for (const TensorInfo& info : session.inputs()) names.push_back(info.name);
      throw UsageError(fmt::format("--input {}: the model has no input '{}'; its inputs are: {}", s, name,
                                   fmt::join(names, ", ")));
    }
    if (read.count(name)) throw UsageError(fmt::format("--input {}: '{}' is given twice", s, name));
    OwnedTensor t = read_tensor(file, *it->second);
    t.name = name;
    bind_symbols(sizes, given, *it->second, t, file);
    read.emplace(name, std::move(t));
  }
  bind_sums(sizes, symbols);
  std::vector<OwnedTensor> tensors;
  for (const TensorInfo& info : session.inputs()) {
    auto it = read.find(info.name);
    tensors.push_back(it != read.end() ? std::move(it->second)
                                       : random_input(info, sizes, options.seed.value_or(0)));
  }
  return tensors;
}

void find_sizes(const Session& session, const ModelOptions& options, std::vector<OwnedTensor>& inputs,
                const Failure& failure) {
  if (failure.kind != Failure::model_error) throw Exception(failure);
  std::set<std::string> given, open; // names of dimensions
  for (const auto& [name, size] : parse_dims(options.dims)) given.insert(name);
  std::set<std::string> files;
  for (const std::string& s : options.inputs) files.insert(split_assignment("--input", s).first);
  std::set<int64_t> sizes = {1}, sums;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorInfo& info = session.inputs()[i];
    for (size_t d = 0; d < info.dims.size() && d < inputs[i].dims.size(); ++d) {
      if (is_number(info.dims[d])) continue;
      (files.count(info.name) ? given : open).insert(info.dims[d]);
      sizes.insert(inputs[i].dims[d]);
    }
  }
  for (int64_t a : sizes)
    for (int64_t b : sizes) sums.insert(a + b);
  constexpr double kSeconds = 10; // a model may compile for every size
  const auto start = std::chrono::steady_clock::now();
  auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  for (const std::string& name : open)
    for (int64_t size : sums) {
      if (given.count(name) || seconds() > kSeconds) continue;
      ModelOptions other = options;
      other.dims.push_back(fmt::format("{}={}", name, size));
      std::vector<OwnedTensor> tried = make_inputs(session, other);
      if (!session.run_values(values_of(tried))) continue;
      say(stderr, "note: taken as --dim {}, with which the model runs\n", other.dims.back());
      inputs = std::move(tried);
      return;
    }
  std::erase_if(open, [&](const std::string& name) { return given.contains(name); });
  if (!open.empty())
    say(stderr,
        "note: sizes that neither --dim nor a file gives were chosen by tbx, and may not be what the model "
        "needs: {}\n",
        fmt::join(open, ", "));
  std::vector<std::string> drawn; // integers, which may be sizes and places
  for (const TensorInfo& info : session.inputs())
    if (!files.contains(info.name) && is_integer(static_cast<DType>(info.type)))
      drawn.push_back(name_text(info.name));
  if (!drawn.empty())
    say(stderr, "note: of these inputs the values are random: {} (--input {}=FILE gives others)\n",
        fmt::join(drawn, ", "), drawn.front());
  throw Exception(failure);
}

Session::Inputs views(std::vector<OwnedTensor>& inputs) {
  Session::Inputs list;
  for (OwnedTensor& t : inputs) list.emplace_back(t.name, t.view());
  return list;
}

Session::Values values_of(std::vector<OwnedTensor>& inputs) {
  Session::Values values;
  for (OwnedTensor& t : inputs)
    values.emplace_back(
        t.name, t.type == OwnedTensor::kString
                    ? OnnxValue::of_strings(t.strings, t.dims)
                    : OnnxValue{OnnxValue::tensor, t.type, t.dims, t.bytes.data(), nullptr, nullptr, {}});
  return values;
}

bool takes_or_gives_values(const Session& session) {
  auto is_value = [](const TensorInfo& info) { return info.type == 0; };
  return std::any_of(session.inputs().begin(), session.inputs().end(), is_value) ||
         std::any_of(session.outputs().begin(), session.outputs().end(), is_value);
}

double element(const void* data, int32_t type, int64_t i) {
  auto at = [&]<class T>(T) { return static_cast<double>(static_cast<const T*>(data)[i]); };
  auto t = static_cast<DType>(type);
  switch (t) {
  case DType::f32: return at(float{});
  case DType::f64: return at(double{});
  case DType::i8:
  case DType::i4:
  case DType::i2: return at(int8_t{});
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

std::string shape_text(const std::vector<int64_t>& dims) {
  return dims.empty() ? "scalar" : fmt::format("{}", fmt::join(dims, "x"));
}

OwnedTensor copy_of(const std::string& name, int32_t type, const std::vector<int64_t>& dims, const void* data,
                    const std::vector<std::string>* strings) {
  OwnedTensor t{name, type, dims, {}, {}};
  if (strings) t.strings = *strings;
  const auto* bytes = static_cast<const std::byte*>(data);
  if (!strings && t.numel() > 0) t.bytes.assign(bytes, bytes + t.numel() * element_size(type));
  return t;
}

void print_json(const Json& value) { say("{}\n", value.dump(2, ' ', true, Json::error_handler_t::replace)); }

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
