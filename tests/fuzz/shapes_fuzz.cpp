// A valid model, compiled, at sizes that nobody thought of: most dimensions of its inputs become symbols, and
// runs of 0, 1, smaller and larger sizes are held against plain loops, in which no library computes.
// Initializers with the names of inputs are what the inputs are made of; the version of the model chooses
// symbols and sizes. With TBX_CXXFLAGS=-fsanitize=address,undefined kernels are watched, too.
// (tests/error/fuzz_shapes.py does the same from Python, and asks ONNX Runtime.)
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/tensor.h"
#include "tensorbox/tensorbox.h"
#include "tests/fuzz/model_mutator.h"
#include "tests/fuzz/runs.h"

namespace {

using namespace tbx;

constexpr int kRuns = 64;
constexpr int64_t kMaxElements = 1 << 16;

struct Input {
  std::string name;
  int32_t type = 0;
  std::vector<std::string> symbols; ///< of each dimension; empty: it stays as it is
  std::vector<int64_t> dims;        ///< the model's own
  std::string bytes;
};

size_t below(std::mt19937_64& random, size_t n) { return n ? random() % n : 0; }

/// Bytes of an element; 0 for what is smaller than one, and for strings.
size_t element_bytes(int32_t type) {
  const auto known = dtype_from_number(type);
  return known && bits_of(*known) % 8 == 0 ? static_cast<size_t>(bits_of(*known)) / 8 : 0;
}

/// Takes the values of the inputs out of the model and puts symbols into it. Empty where it is not for us.
std::vector<Input> open_up(onnx::ModelProto& model, std::mt19937_64& random) {
  onnx::GraphProto& graph = *model.mutable_graph();
  std::map<std::string, onnx::TensorProto> values;
  for (const onnx::TensorProto& t : graph.initializer()) values[t.name()] = t;
  const bool share = below(random, 5) < 3;
  std::vector<Input> inputs;
  for (onnx::ValueInfoProto& info : *graph.mutable_input()) {
    const auto value = values.find(info.name());
    if (value == values.end() || !info.type().has_tensor_type() || !value->second.has_raw_data()) return {};
    Input input{info.name(), value->second.data_type(), {}, {}, value->second.raw_data()};
    int64_t n = 1;
    for (int64_t d : value->second.dims()) {
      input.dims.push_back(d);
      if (d < 0 || (n *= d) > kMaxElements) return {};
    }
    if (input.bytes.size() != static_cast<size_t>(n) * element_bytes(input.type) ||
        !element_bytes(input.type))
      return {};
    onnx::TensorShapeProto& shape = *info.mutable_type()->mutable_tensor_type()->mutable_shape();
    if (shape.dim_size() != static_cast<int>(input.dims.size())) return {};
    for (int k = 0; k < shape.dim_size(); ++k) {
      auto& dim = *shape.mutable_dim(k);
      std::string symbol = dim.dim_param();
      if (dim.has_dim_value() && below(random, 8) != 0) {
        symbol = share && below(random, 10) != 0 ? "n" + std::to_string(dim.dim_value())
                                                 : info.name() + "_" + std::to_string(k);
        dim.set_dim_param(symbol);
      }
      input.symbols.push_back(symbol);
    }
    inputs.push_back(std::move(input));
  }
  auto& all = *graph.mutable_initializer();
  for (int i = all.size() - 1; i >= 0; --i)
    for (const Input& input : inputs)
      if (all[i].name() == input.name) {
        all.DeleteSubrange(i, 1);
        break;
      }
  graph.clear_value_info();
  for (onnx::ValueInfoProto& info : *graph.mutable_output())
    if (info.type().has_tensor_type()) info.mutable_type()->mutable_tensor_type()->clear_shape();
  return inputs;
}

int64_t other_size(std::mt19937_64& random, int64_t n) {
  const int64_t sizes[] = {0, 0, 1, 1, 2, n - 1, n, n + 1, n / 2, 2 * n, 2 * n + 1, 17, 33};
  return std::max<int64_t>(0, sizes[below(random, std::size(sizes))]);
}

/// At first the model's own sizes, then other ones for one symbol, then for all.
std::map<std::string, int64_t> sizes_of(const std::vector<Input>& inputs, std::mt19937_64& random, int run) {
  std::map<std::string, int64_t> sizes;
  for (const Input& in : inputs)
    for (size_t k = 0; k < in.dims.size(); ++k)
      if (!in.symbols[k].empty()) sizes.emplace(in.symbols[k], in.dims[k]);
  if (run == 0 || sizes.empty()) return sizes;
  const size_t one = below(random, sizes.size());
  size_t i = 0;
  for (auto& [symbol, n] : sizes)
    if (run % 2 == 0 || i++ == one) n = other_size(random, n);
  return sizes;
}

/// The bytes of an input of these dims: the model's own values over and over, now and then one that no index
/// may be.
std::string filled(const Input& in, const std::vector<int64_t>& dims, std::mt19937_64& random) {
  size_t n = 1;
  for (int64_t d : dims) n *= static_cast<size_t>(d);
  const size_t element = element_bytes(in.type);
  std::string bytes(n * element, 0);
  if (!in.bytes.empty())
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = in.bytes[i % in.bytes.size()];
  if ((in.type == 7 || in.type == 6) && n > 0 && below(random, 8) == 0) {
    const int64_t awkward[] = {-1, static_cast<int64_t>(n), 1000, -1000, INT32_MAX};
    const int64_t v = awkward[below(random, std::size(awkward))];
    std::memcpy(bytes.data() + below(random, n) * element, &v, element);
  }
  return bytes;
}

[[noreturn]] void fail(const char* what, const std::string& text) {
  std::fprintf(stderr, "==== %s: %s\n", what, text.c_str());
  std::abort();
}

size_t numel_of(const OutputTensor& t) {
  size_t n = 1;
  for (int64_t d : t.dims) n *= static_cast<size_t>(d);
  return n;
}

/// `n` elements that are equal but for rounding: by so much of their own size and of the largest one's.
bool close_floats(size_t n, double tolerance, auto&& a, auto&& b) {
  double scale = 0;
  for (size_t i = 0; i < n; ++i)
    if (const double y = b(i); std::isfinite(y)) scale = std::max(scale, std::abs(y));
  for (size_t i = 0; i < n; ++i) {
    const double x = a(i), y = b(i);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    if (!(std::abs(x - y) <= tolerance * (std::abs(y) + scale) + 1e-6)) return false;
  }
  return true;
}

/// Whether a result is the reference's but for rounding, of whatever type it is: floats by two units of their
/// last place at least, quantised integers (8 and 16 bits) by one, all else not at all.
bool close(const OutputTensor& a, const OutputTensor& b) {
  if (a.type != b.type || a.dims != b.dims) return false;
  if (a.strings || b.strings) return a.strings && b.strings && *a.strings == *b.strings;
  const auto type = static_cast<DType>(a.type);
  const size_t n = numel_of(a);
  if (n == 0) return true;
  auto reader = [&](const OutputTensor& t, DType as, size_t count) {
    Tensor view{as, {static_cast<int64_t>(count)}, static_cast<const std::byte*>(t.data), {}};
    return [view](size_t i) { return element_as_double(view, static_cast<int64_t>(i)); };
  };
  constexpr double kWide = 2e-3;
  if (is_complex(type)) {
    const DType part = type == DType::c64 ? DType::f32 : DType::f64;
    return close_floats(2 * n, kWide, reader(a, part, 2 * n), reader(b, part, 2 * n));
  }
  if (bits_of(type) < 8) return std::memcmp(a.data, b.data, (n * bits_of(type) + 7) / 8) == 0; // packed
  if (is_float(type)) {
    const double places = 4 * std::ldexp(1.0, -significand_bits(type));
    return close_floats(n, std::max(kWide, places), reader(a, type, n), reader(b, type, n));
  }
  if (is_integer(type) && bits_of(type) <= 16) {
    const auto x = reader(a, type, n), y = reader(b, type, n);
    for (size_t i = 0; i < n; ++i)
      if (std::abs(x(i) - y(i)) > 1) return false;
    return true;
  }
  return std::memcmp(a.data, b.data, n * element_bytes(a.type)) == 0;
}

bool is_random(const onnx::ModelProto& model) {
  for (const onnx::NodeProto& node : model.graph().node()) {
    const std::string& op = node.op_type();
    if (op.starts_with("Random") || op == "Bernoulli" || op == "Multinomial" || op == "Dropout") return true;
  }
  return false;
}

bool is_late(const Failure& f) {
  return f.message.find("limit") != std::string::npos || f.message.find("memory") != std::string::npos;
}

} // namespace

/// Another version, which means other symbols and sizes; one time in four the model changes, too.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  onnx::ModelProto model;
  if (!model.ParseFromArray(data, static_cast<int>(size))) return size;
  if (seed % 4 == 0) fuzz::ModelMutator(seed).mutate(model);
  model.set_model_version(seed);
  const std::string made = model.SerializeAsString();
  if (made.size() > max_size) return size;
  std::memcpy(data, made.data(), made.size());
  return made.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  onnx::ModelProto model;
  if (!model.ParseFromArray(data, static_cast<int>(size))) return 0;
  std::mt19937_64 random(static_cast<uint64_t>(model.model_version()));
  const std::vector<Input> inputs = open_up(model, random);
  if (inputs.empty()) return 0;
  const std::string bytes = model.SerializeAsString();
  CompileOptions options;
  options.keep_plans = false;
  options.threads = 1;
  options.untrusted = true;
  options.max_memory = 1 << 28;
  options.time_limit_ms = 2000;
  std::vector<Session> sessions;
  for (bool reference : {true, false}) {
    options.reference = reference;
    auto session = Session::compile(std::as_bytes(std::span(bytes)), options);
    if (!session.ok() && session.error().kind == Failure::internal_error)
      fail("load", session.error().message);
    if (!session.ok()) return 0;
    sessions.push_back(std::move(session).value());
  }
  const bool random_results = is_random(model);
  for (int run = 0; run < kRuns; ++run) {
    const auto sizes = sizes_of(inputs, random, run);
    std::vector<std::string> memory;
    Session::Inputs given;
    std::string shapes;
    for (const Input& in : inputs) {
      std::vector<int64_t> dims = in.dims;
      int64_t n = 1;
      for (size_t k = 0; k < dims.size(); ++k) {
        if (!in.symbols[k].empty()) dims[k] = sizes.at(in.symbols[k]);
        n = std::min(n * dims[k], kMaxElements + 1);
      }
      if (n > kMaxElements) dims = in.dims;
      memory.push_back(filled(in, dims, random));
      shapes += " " + in.name + "[";
      for (int64_t d : dims) shapes += std::to_string(d) + " ";
      shapes += "]";
      given.emplace_back(in.name, TensorView{memory.back().data(), in.type, std::move(dims)});
    }
    for (size_t i = 0; i < given.size(); ++i) given[i].second.data = memory[i].data();
    auto wanted = sessions[0].run(given);
    auto got = sessions[1].run(given);
    fuzz::count_run();
    for (const auto* r : {&wanted, &got})
      if (!r->ok() && r->error().kind == Failure::internal_error)
        fail("run", shapes + ": " + r->error().message);
    if ((!wanted.ok() && is_late(wanted.error())) || (!got.ok() && is_late(got.error()))) continue;
    if (wanted.ok() != got.ok())
      fail("one of two refuses", shapes + ": " + (wanted.ok() ? "compiled: " : "reference: ") +
                                     (wanted.ok() ? got : wanted).error().message);
    if (!wanted.ok() || random_results) continue;
    const auto &references = wanted.value(), &results = got.value();
    for (size_t i = 0; i < references.size(); ++i)
      if (!close(results[i], references[i])) fail("results differ", shapes + ": output " + results[i].name);
  }
  return 0;
}
