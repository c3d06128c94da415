// Build: source -> loaded module of kernels, through a private, content-addressed disk cache. Sixth stage.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "codegen/compiler.h"
#include "codegen/emit.h"
#include "codegen/toolchain.h"
#include "runtime/module.h"

namespace tbx::codegen {

/// The same with the compiler and the cache that the environment names now: for who builds later.
Toolchain resolved(Toolchain toolchain);

/// What is compiled as one: the name of its object in the cache without the compiler's, and the kernels in
/// it.
struct KernelUnit {
  std::string key;
  std::vector<std::string> functions;
};

/// Shared objects kept loaded as long as this lives; function pointers by kernel name.
class Module : public runtime::Module {
public:
  runtime::Kernel kernel(const std::string& name) const override;
  /// Throws BackendError when there is no such kernel.
  runtime::KernelFunction find(const std::string& function) const;
  std::vector<std::filesystem::path> objects; ///< the cached files
  std::vector<std::string> bytes;             ///< of the objects, with Toolchain::keep_bytes
  std::vector<KernelUnit> units;
  int compiled = 0, cached = 0; ///< translation units built now / found in the cache

private:
  friend class Build;
  std::vector<std::shared_ptr<void>> handles_;
};

/// Compiles the distinct kernels in a few translation units in parallel, or finds them in the cache.
/// `progress(done, total)` may be empty. Throws BackendError with the compiler's message and the path of the
/// source that failed, or what is short, and the option that gives more.
std::shared_ptr<Module> build_module(const std::vector<EmittedKernel>& kernels, Isa isa,
                                     const Toolchain& toolchain = {},
                                     const std::function<void(int, int)>& progress = {});

/// The kernels as this toolchain's compiler left them in the cache; null when one is not there. Starts no
/// process.
std::shared_ptr<Module> cached_module(const std::vector<EmittedKernel>& kernels, Isa isa,
                                      const Toolchain& toolchain);

/// The same as any compiler left them: for machines without a compiler.
std::shared_ptr<Module> find_module(const std::vector<EmittedKernel>& kernels, Isa isa,
                                    const Toolchain& toolchain);

/// Units of a module of before, as this toolchain's compiler left them in the cache, or where there is none,
/// any; null when one is not there.
std::shared_ptr<Module> module_of_units(const std::vector<KernelUnit>& units, const Toolchain& toolchain);

/// Another text where the same kernels have other units.
std::string units_identity(Isa isa);

} // namespace tbx::codegen
