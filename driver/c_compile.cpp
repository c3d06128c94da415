// The part of the C interface (include/tensorbox/c.h) that compiles.
#include <charconv>

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

int64_t size_of_dim(const std::string& name, const std::string& text) {
  int64_t size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error != std::errc() || end != text.data() + text.size() || size < 0)
    package::refuse("option dims has '" + name + "=" + text + "', expected NAME=SIZE");
  return size;
}

} // namespace
} // namespace tbx::driver

using namespace tbx::driver;

tbx_session* tbx_compile(const char* onnx_file, const tbx_options* options, tbx_error** error) {
  return tbx::package::session_or_error(
      [&]() -> tbx::Result<tbx::Session> {
        if (!onnx_file) tbx::package::refuse("the name of the model is NULL");
        const tbx_options o = tbx::package::known_options(options);
        tbx::CompileOptions compile;
        compile.threads = o.threads;
        compile.private_threads = o.private_threads != 0;
        compile.compile = o.evaluate == 0;
        compile.isa = o.isa ? o.isa : "";
        compile.max_memory = o.max_memory;
        compile.time_limit_ms = o.time_limit_ms;
        compile.device = o.device ? o.device : "";
        compile.state_capacity = o.state_capacity;
        compile.tiered = o.tiered != 0;
        compile.precision = o.precision ? o.precision : compile.precision;
        compile.disabled_passes = tbx::package::listed(o.disabled_passes);
        compile.log = tbx::package::log_of(o);
        each_pair("state", o.state, "INPUT=OUTPUT",
                  [&](const std::string& in, const std::string& out) { compile.state[in] = out; });
        each_pair("dims", o.dims, "NAME=SIZE", [&](const std::string& name, const std::string& size) {
          compile.dims[name] = size_of_dim(name, size);
        });
        return tbx::Session::compile(onnx_file, compile);
      },
      error);
}
