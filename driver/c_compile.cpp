// The part of the C interface (include/tensorbox/c.h) that compiles.
#include "package/c_handles.h"

tbx_session* tbx_compile(const char* onnx_file, const tbx_options* options, tbx_error** error) {
  return tbx::package::session_or_error(
      [&]() -> tbx::Result<tbx::Session> {
        if (!onnx_file)
          return tbx::Failure{tbx::Failure::model_error, "ModelError: the name of the model is NULL"};
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
        for (std::string rest = o.state ? o.state : ""; !rest.empty();) {
          const std::string pair = rest.substr(0, rest.find(','));
          rest.erase(0, pair.size() + 1);
          const size_t equals = pair.find('=');
          if (equals == std::string::npos)
            return tbx::Failure{tbx::Failure::model_error,
                                "ModelError: option state is '" + pair + "', expected INPUT=OUTPUT"};
          compile.state[pair.substr(0, equals)] = pair.substr(equals + 1);
        }
        return tbx::Session::compile(onnx_file, compile);
      },
      error);
}
