// Kernels -> translation units -> shared objects in the cache -> loaded module.
#include "codegen/build_module.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "base/error.h"
#include "codegen/compiler.h"
#include "codegen/kernel_cache.h"
#include "codegen/prelude.h"

namespace tbx::codegen {

namespace fs = std::filesystem;

namespace {

constexpr int kCompileSeconds = 300;
/// One translation unit: enough kernels to pay for the start of a compiler, few enough to balance over
/// threads and to be found again in other models. Where there are hundreds of kernels the starts weigh more.
size_t kernels_of_unit(size_t kernels) { return std::clamp<size_t>(kernels / 16, 4, 16); }
constexpr size_t kTextOfKernel = 4 << 10;

struct Unit {
  std::string text, key;
  fs::path object;
  bool cached = false;
};

/// Deletes a temporary file unless it was moved away.
struct Temporary {
  fs::path path;
  ~Temporary() { unlink(path.c_str()); }
};

/// Kernels sorted by name fall into the same units whatever the order of the model's operations.
std::vector<Unit> make_units(const std::vector<EmittedKernel>& kernels, Isa isa,
                             const std::string& identity) {
  std::map<std::string, const EmittedKernel*> distinct;
  for (const EmittedKernel& k : kernels) distinct.emplace(k.function, &k);
  std::vector<Unit> units;
  const size_t most = kernels_of_unit(distinct.size());
  size_t in_unit = 0;
  for (auto& [name, k] : distinct) {
    if (units.empty() || in_unit == most ||
        units.back().text.size() + k->text.size() > most * kTextOfKernel) {
      units.emplace_back();
      in_unit = 0;
    }
    units.back().text += k->text;
    ++in_unit;
  }
  for (Unit& u : units) {
    u.text = prelude_for(isa, u.text) + u.text;
    XXH128_hash_t h =
        XXH3_128bits_withSeed(u.text.data(), u.text.size(), XXH3_64bits(identity.data(), identity.size()));
    u.key = fmt::format("{:016x}{:016x}", h.high64, h.low64);
  }
  return units;
}

void compile_unit(Unit& unit, const std::string& compiler, Isa isa, const KernelCache& cache) {
  Temporary source{cache.temporary(".cpp")}, object{cache.temporary(".so")};
  {
    std::ofstream out(source.path, std::ios::binary | std::ios::trunc);
    out << unit.text;
    if (!out.flush()) throw_backend_error("cannot write {}", source.path.string());
  }
  std::vector<std::string> args{compiler};
  for (std::string& flag : compiler_flags(isa)) args.push_back(std::move(flag));
  for (const char* flag : {"-shared", "-nostdlib", "-Wl,--build-id=none", "-o"}) args.emplace_back(flag);
  args.push_back(object.path.string());
  args.push_back(source.path.string());
  args.emplace_back("-lm");
  ProcessResult r = run_process(args, kCompileSeconds);
  if (r.status != 0) {
    // The source stays for the reader of the message.
    fs::path kept = cache.folder() / ("failed-" + unit.key + ".cpp");
    std::error_code ec;
    fs::rename(source.path, kept, ec);
    throw_backend_error("{} {} on {}:\n{}", compiler, r.timed_out ? "took too long" : "failed", kept.string(),
                        r.output.substr(0, 4000));
  }
  unit.object = cache.insert(unit.key, object.path);
}

/// Another process may have removed the object from the cache since it was found there: `make_again` is
/// called then, and leaves it at the same place.
std::shared_ptr<void> open_object(const fs::path& path, const std::function<void()>& make_again) {
  constexpr int kAttempts = 3;
  for (int attempt = 1;; ++attempt) {
    if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL))
      return {handle, [](void* h) { dlclose(h); }};
    const char* why = dlerror();
    std::error_code ec;
    if (attempt == kAttempts || fs::exists(path, ec))
      throw_backend_error(
          "cannot load the kernels in {}: {} (a cache folder mounted noexec? set TBX_CACHE_DIR)",
          path.string(), why ? why : "unknown reason");
    make_again();
  }
}

[[noreturn]] void throw_no_compiler() {
  throw_backend_error("no C++ compiler: set TBX_CXX or install g++ or clang++");
}

int compile_jobs(const Toolchain& toolchain, size_t units) {
  int jobs = toolchain.jobs > 0 ? toolchain.jobs : static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(jobs, 1, static_cast<int>(std::max<size_t>(1, units)));
}

/// Runs `work(i)` for i in [0, n) on `jobs` threads; rethrows the first exception after all have stopped.
void parallel_for(size_t n, int jobs, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  auto loop = [&] {
    for (size_t i = next++; i < n; i = next++) {
      try {
        work(i);
      } catch (...) {
        std::scoped_lock lock(mutex);
        if (!error) error = std::current_exception();
        next = n;
      }
    }
  };
  std::vector<std::thread> threads;
  for (int t = 1; t < jobs; ++t) threads.emplace_back(loop);
  loop();
  for (std::thread& t : threads) t.join();
  if (error) std::rethrow_exception(error);
}

} // namespace

runtime::Kernel Module::kernel(const std::string& name) const {
  for (const auto& handle : handles_)
    if (void* f = dlsym(handle.get(), name.c_str()))
      return {reinterpret_cast<runtime::KernelFunction>(f), nullptr};
  return {};
}

runtime::KernelFunction Module::find(const std::string& function) const {
  if (runtime::Kernel k = kernel(function)) return k.native;
  throw_backend_error("the built module has no kernel {}", function);
}

bool have_compiler(const Toolchain& toolchain) {
  static std::mutex mutex;
  static std::map<std::string, bool> known;
  std::string compiler = find_compiler(toolchain);
  if (compiler.empty()) return false;
  std::scoped_lock lock(mutex);
  auto [it, fresh] = known.try_emplace(compiler, false);
  if (fresh) it->second = run_process({compiler, "-x", "c++", "-fsyntax-only", "/dev/null"}, 20).status == 0;
  return it->second;
}

std::shared_ptr<Module> build_module(const std::vector<EmittedKernel>& kernels, Isa isa,
                                     const Toolchain& toolchain,
                                     const std::function<void(int, int)>& progress) {
  auto module = std::make_shared<Module>();
  if (kernels.empty()) return module;
  KernelCache cache(toolchain);
  std::string compiler = find_compiler(toolchain);
  std::string identity = compiler_identity(compiler);
  for (const std::string& flag : compiler_flags(isa)) identity += " " + flag;
  std::vector<Unit> units = make_units(kernels, isa, identity);

  std::vector<size_t> missing;
  for (size_t i = 0; i < units.size(); ++i) {
    units[i].object = cache.find(units[i].key);
    units[i].cached = !units[i].object.empty();
    if (!units[i].cached) missing.push_back(i);
  }
  module->cached = static_cast<int>(units.size() - missing.size());
  module->compiled = static_cast<int>(missing.size());
  if (!missing.empty() && compiler.empty()) throw_no_compiler();
  std::atomic<int> done{module->cached};
  std::mutex mutex;
  const int total = static_cast<int>(units.size());
  if (progress) progress(done, total);
  parallel_for(missing.size(), compile_jobs(toolchain, missing.size()), [&](size_t i) {
    compile_unit(units[missing[i]], compiler, isa, cache);
    std::scoped_lock lock(mutex);
    if (progress) progress(++done, total);
  });
  std::set<std::string> keys;
  for (Unit& u : units) {
    module->handles_.push_back(open_object(u.object, [&] {
      if (compiler.empty()) throw_no_compiler();
      compile_unit(u, compiler, isa, cache);
      if (std::exchange(u.cached, false)) {
        --module->cached;
        ++module->compiled;
      }
    }));
    module->objects.push_back(u.object);
    keys.insert(u.key);
  }
  if (module->compiled > 0) cache.prune(keys); // it has grown
  return module;
}

} // namespace tbx::codegen
