// The part of the C interface (include/tensorbox/c.h) that compiles.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

#include "driver/limits.h"
#include "package/c_handles.h"

namespace tbx::driver {
namespace {

/// "a=b,c=d": calls put(a, b), put(c, d).
template <class Put> void each_pair(const char* option, const char* given, const char* expected, Put put) {
  for (const std::string& pair : package::listed(given)) {
    const size_t equals = pair.find('=');
    if (equals == std::string::npos)
      package::refuse(std::string("option ") + option + " is '" + pair + "', expected " + expected);
    put(pair.substr(0, equals), pair.substr(equals + 1));
  }
}

int64_t number(const char* option, const std::string& name, const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0)
    package::refuse(fmt::format("option {} has '{}={}', expected NAME=NUMBER", option, name, text));
  return value;
}

void set_limit(CompileOptions& to, const std::string& name, const std::string& text) {
  std::vector<const char*> names;
  for (const Limit& limit : limits()) {
    if (name == limit.name) {
      to.*limit.value = number("limits", name, text);
      return;
    }
    names.push_back(limit.name);
  }
  package::refuse(fmt::format("option limits has no '{}'; there are: {}", name, fmt::join(names, ", ")));
}

CompileOptions compile_options(const tbx_options& o) {
  CompileOptions compile;
  compile.threads = o.threads;
  compile.private_threads = o.private_threads != 0;
  compile.compile = o.evaluate == 0;
  compile.isa = o.isa ? o.isa : "";
  compile.max_memory = o.max_memory;
  compile.time_limit_ms = o.time_limit_ms;
  compile.device = o.device ? o.device : "";
  compile.state_capacity = o.state_capacity;
  compile.state_limit = o.state_limit;
  compile.tiered = o.tiered != 0;
  compile.precision = o.precision ? o.precision : compile.precision;
  compile.disabled_passes = package::listed(o.disabled_passes);
  compile.log = package::log_of(o);
  if (o.seed) compile.seed = *o.seed;
  compile.untrusted = o.untrusted != 0;
  for (const char* const* path = o.operator_libraries; path && *path; ++path)
    compile.operator_libraries.emplace_back(*path);
  compile.cache_dir = o.cache_dir ? o.cache_dir : "";
  compile.keep_plans = o.no_kept_plans == 0;
  compile.external_data_dir = o.external_data_dir ? o.external_data_dir : "";
  each_pair("state", o.state, "INPUT=OUTPUT",
            [&](const std::string& in, const std::string& out) { compile.state[in] = out; });
  each_pair("dims", o.dims, "NAME=SIZE", [&](const std::string& name, const std::string& size) {
    compile.dims[name] = number("dims", name, size);
  });
  each_pair("limits", o.limits, "NAME=NUMBER",
            [&](const std::string& name, const std::string& text) { set_limit(compile, name, text); });
  return compile;
}

} // namespace
} // namespace tbx::driver

tbx_session* tbx_compile(const char* onnx_file, const tbx_options* options, tbx_error** error) {
  return tbx::package::session_or_error(
      [&]() -> tbx::Result<tbx::Session> {
        if (!onnx_file) tbx::package::refuse("the name of the model is NULL");
        const tbx_options o = tbx::package::known_options(options);
        if (o.external_data_dir)
          tbx::package::refuse("option external_data_dir is of tbx_compile_bytes: a file has its own folder");
        return tbx::Session::compile(onnx_file, tbx::driver::compile_options(o));
      },
      error);
}

tbx_session* tbx_compile_bytes(const void* onnx_bytes, size_t size, const tbx_options* options,
                               tbx_error** error) {
  return tbx::package::session_or_error(
      [&]() -> tbx::Result<tbx::Session> {
        if (!onnx_bytes) tbx::package::refuse("the model is NULL");
        return tbx::Session::compile({static_cast<const std::byte*>(onnx_bytes), size},
                                     tbx::driver::compile_options(tbx::package::known_options(options)));
      },
      error);
}
