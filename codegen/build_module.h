// Build: source -> loaded module of kernels, through a private, content-addressed disk cache. Sixth stage.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "codegen/emit.h"
#include "runtime/module.h"

namespace tbx::codegen {

struct Toolchain {
  std::string compiler; ///< absolute path, or empty: search $TBX_CXX, then c++, g++, clang++ on PATH
  std::filesystem::path
      cache_dir; ///< empty: $TBX_CACHE_DIR, then ${XDG_CACHE_HOME:-~/.cache}/tensorbox/kernels
  int jobs = 0;  ///< parallel compilations; 0: threads of the machine
};

/// True when a working compiler is found (probed once per process).
bool have_compiler(const Toolchain& toolchain = {});

/// Shared objects kept loaded as long as this lives; function pointers by kernel name.
class Module : public runtime::Module {
public:
  runtime::Kernel kernel(const std::string& name) const override;
  /// Throws BackendError when there is no such kernel.
  runtime::KernelFunction find(const std::string& function) const;
  std::vector<std::filesystem::path> objects; ///< the cached files, for `tbx compile`
  int compiled = 0, cached = 0;               ///< translation units built now / found in the cache

private:
  friend std::shared_ptr<Module> build_module(const std::vector<EmittedKernel>&, Isa, const Toolchain&,
                                              const std::function<void(int, int)>&);
  std::vector<std::shared_ptr<void>> handles_;
};

/// Compiles the distinct kernels in a few translation units in parallel. `progress(done, total)` may be
/// empty. Throws BackendError with the compiler's message and the path of the source that failed.
std::shared_ptr<Module> build_module(const std::vector<EmittedKernel>& kernels, Isa isa,
                                     const Toolchain& toolchain = {},
                                     const std::function<void(int, int)>& progress = {});

} // namespace tbx::codegen
