// Any bytes as a model that is compiled for the evaluator and run, on inputs made of the same bytes: outputs,
// or an error that is not ours; within small budgets of memory and time.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "tensorbox/tensorbox.h"
#include "tests/fuzz/model_mutator.h"

namespace {

using namespace tbx;

constexpr int64_t kMaxElements = 1 << 14, kUnknownSize = 3;

void stop_at_defect(const Failure& failure) {
  if (failure.kind != Failure::internal_error) return;
  std::fprintf(stderr, "%s\n", failure.message.c_str());
  std::abort();
}

/// The dimensions of an input, with small numbers for what a run decides; nullopt when it is no small tensor.
std::optional<std::vector<int64_t>> dims_of(const TensorInfo& info) {
  std::vector<int64_t> dims;
  int64_t n = 1;
  for (const std::string& d : info.dims) {
    char* end = nullptr;
    const long long v = std::strtoll(d.c_str(), &end, 10);
    dims.push_back(!d.empty() && *end == 0 ? v : kUnknownSize);
    if (dims.back() < 0 || dims.back() > kMaxElements || (n *= dims.back()) > kMaxElements)
      return std::nullopt;
  }
  return dims;
}

} // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  return tbx::fuzz::mutate_model(data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  CompileOptions options;
  options.compile = options.keep_plans = false;
  options.threads = 1;
  options.untrusted = true;
  options.max_nodes = 10'000;
  options.max_tensor_bytes = options.max_dense_bytes = 1 << 24;
  options.max_memory = options.load_memory = 1 << 26;
  options.time_limit_ms = 500;
  options.load_time_limit_ms = 2000;
  auto session = Session::compile(std::as_bytes(std::span(data, size)), options);
  if (!session.ok()) {
    stop_at_defect(session.error());
    return 0;
  }
  const Session s = std::move(session).value();
  std::vector<std::vector<uint8_t>> memory;
  Session::Inputs inputs;
  for (const TensorInfo& info : s.inputs()) {
    auto dims = dims_of(info);
    if (!dims || info.type == 0 || info.type == 8) return 0;
    // 16 bytes hold an element of any type. Small numbers, of which some are good indices.
    size_t elements = 1;
    for (int64_t d : *dims) elements *= static_cast<size_t>(d);
    std::vector<uint8_t>& bytes = memory.emplace_back(16 * elements);
    for (size_t i = 0; i < bytes.size(); i += 8) bytes[i] = size ? data[(i / 8) % size] % 4 : 0;
    inputs.emplace_back(info.name, TensorView{bytes.data(), info.type, std::move(*dims)});
  }
  auto outputs = s.run(inputs);
  if (!outputs.ok()) stop_at_defect(outputs.error());
  return 0;
}
