#include "driver/limits.h"

#include <algorithm>
#include <type_traits>

#include "base/error.h"

namespace tbx::driver {
namespace {

using O = CompileOptions;
const ImportOptions kUsual;
constexpr int64_t kMega = int64_t{1} << 20, kGiga = int64_t{1} << 30;
/// Expressions and text of kernels take some megabytes for any model, whatever a run is allowed.
constexpr int64_t kLeastLoadMemory = 64 * kMega;

} // namespace

std::span<const Limit> limits() {
  static const Limit all[] = {
      {"max_model_bytes", &O::max_model_bytes, kUsual.max_model_bytes, kGiga, "bytes"},
      {"max_nodes", &O::max_nodes, kUsual.max_nodes, 100'000, "nodes"},
      {"max_nesting", &O::max_nesting, kUsual.max_nesting, 24, "levels"},
      {"max_tensors", &O::max_tensors, kUsual.max_tensors, 100'000, "tensors"},
      {"max_tensor_bytes", &O::max_tensor_bytes, kUsual.max_tensor_bytes, 2 * kGiga, "bytes"},
      {"max_dense_bytes", &O::max_dense_bytes, kUsual.max_dense_bytes, 256 * kMega, "bytes"},
      {"load_time_limit_ms", &O::load_time_limit_ms, 0, 60'000, "milliseconds"},
      {"load_memory", &O::load_memory, 0, 2 * kGiga, "bytes"},
      {"time_limit_ms", &O::time_limit_ms, 0, 60'000, "milliseconds"},
      {"max_memory", &O::max_memory, 0, 4 * kGiga, "bytes"},
      {"compile_time_limit_ms", &O::compile_time_limit_ms, 300'000, 60'000, "milliseconds"},
      {"compile_memory", &O::compile_memory, 4 * kGiga, 2 * kGiga, "bytes"},
  };
  return all;
}

CompileOptions with_limits(CompileOptions options) {
  for (const Limit& limit : limits())
    TBX_MODEL(options.*limit.value >= 0, "option {} is {}: expected {}, or 0 for {}", limit.name,
              options.*limit.value, limit.unit, limit.usual > 0 ? "the usual limit" : "no limit");
  TBX_MODEL(options.max_nesting <= kUsual.max_nesting, "option max_nesting is {}: expected at most {}",
            options.max_nesting, kUsual.max_nesting);
  TBX_MODEL(!options.untrusted || options.operator_libraries.empty(),
            "untrusted models may not use operator_libraries: their code runs in this process");
  // What a run may take, loading may take, too.
  if (options.load_time_limit_ms == 0) options.load_time_limit_ms = options.time_limit_ms;
  if (options.load_memory == 0 && options.max_memory > 0)
    options.load_memory = std::max(options.max_memory, kLeastLoadMemory);
  for (const Limit& limit : limits())
    if (int64_t& value = options.*limit.value; value == 0)
      value = options.untrusted ? limit.untrusted : limit.usual;
  options.strict_links |= options.untrusted;
  return options;
}

void set_limits(ImportOptions& to, const CompileOptions& options) {
  auto set = [](auto& limit, int64_t value) {
    if (value > 0) limit = static_cast<std::remove_reference_t<decltype(limit)>>(value);
  };
  set(to.max_model_bytes, options.max_model_bytes);
  set(to.max_nodes, options.max_nodes);
  set(to.max_nesting, options.max_nesting);
  set(to.max_tensors, options.max_tensors);
  set(to.max_tensor_bytes, options.max_tensor_bytes);
  set(to.max_dense_bytes, options.max_dense_bytes);
  to.strict_links = options.strict_links;
}

} // namespace tbx::driver
