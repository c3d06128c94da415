// Kernels -> translation units -> shared objects in the cache -> loaded module.
#include "codegen/build_module.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "base/budget.h"
#include "base/error.h"
#include "codegen/compiler.h"
#include "codegen/kernel_cache.h"
#include "codegen/prelude.h"
#include "codegen/work_folder.h"
#include "runtime/load_object.h"

namespace tbx::codegen {

namespace fs = std::filesystem;

namespace {

/// One translation unit: enough kernels to pay for the start of a compiler, few enough to balance over
/// threads and to be found again in other models. Where there are hundreds of kernels the starts weigh more.
size_t kernels_of_unit(size_t kernels) { return std::clamp<size_t>(kernels / 16, 4, 16); }
constexpr size_t kTextOfKernel = 4 << 10;
/// Longer kernels are compiled with less effort.
constexpr size_t kLongText = 32 << 10;
/// Changes when objects of before are no more what they would be now, for reasons that text and flags do not
/// show.
constexpr const char* kVersion = "tensorbox kernels 2";

struct Unit {
  std::string text, key; ///< the text without its prelude
  std::vector<std::string> functions;
  bool brief = false; ///< compiled so
  std::shared_ptr<void> object;
  std::string bytes; ///< of the object, where they are kept
};

std::string how_compiled(Isa isa, bool brief) {
  std::string how = fmt::format("{} {:016x}", kVersion, prelude_hash(isa));
  for (const std::string& flag : compiler_flags(isa, brief)) how += " " + flag;
  return how;
}

/// Kernels sorted by name fall into the same units whatever the order of the model's operations.
std::vector<Unit> make_units(const std::vector<EmittedKernel>& kernels, Isa isa) {
  std::map<std::string, const EmittedKernel*> distinct;
  for (const EmittedKernel& k : kernels) distinct.emplace(k.function, &k);
  std::vector<Unit> units;
  const size_t most = kernels_of_unit(distinct.size());
  for (auto& [name, k] : distinct) {
    if (units.empty() || units.back().functions.size() == most ||
        units.back().text.size() + k->text.size() > most * kTextOfKernel)
      units.emplace_back();
    units.back().text += k->text;
    units.back().functions.push_back(name);
    units.back().brief |= k->text.size() > kLongText;
  }
  for (Unit& u : units) {
    const std::string how = how_compiled(isa, u.brief);
    XXH128_hash_t h =
        XXH3_128bits_withSeed(u.text.data(), u.text.size(), XXH3_64bits(how.data(), how.size()));
    u.key = fmt::format("{:016x}{:016x}", h.high64, h.low64);
  }
  return units;
}

bool ran_out_of_memory(const std::string& output) {
  for (const char* sign :
       {"out of memory", "memory exhausted", "bad_alloc", "Cannot allocate memory", "failed to map segment"})
    if (output.find(sign) != std::string::npos) return true;
  return false;
}

} // namespace

/// One call of build_module.
class Build {
public:
  Build(const std::vector<EmittedKernel>& kernels, Isa isa, const Toolchain& toolchain)
      : isa_(isa), toolchain_(toolchain), cache_(toolchain), units_(make_units(kernels, isa)) {}
  /// Units without a text, to be found only.
  Build(const std::vector<KernelUnit>& units, const Toolchain& toolchain)
      : isa_(Isa::sse), toolchain_(toolchain), cache_(toolchain) {
    for (const KernelUnit& u : units) {
      Unit& unit = units_.emplace_back();
      unit.key = u.key;
      unit.functions = u.functions;
    }
  }

  /// Loads what is in the cache: made by `compiler`, or by any where that is empty. Returns the units that
  /// are missing. What lies in the cache and does not load is no use to anybody.
  std::vector<size_t> find(const std::string& compiler) {
    std::vector<size_t> missing;
    for (size_t i = 0; i < units_.size(); ++i) {
      Unit& u = units_[i];
      std::string why;
      if (FileDescriptor file = cache_.find(u.key, compiler)) {
        u.object = runtime::load_object(file.get(), cache_.path_of(u.key, compiler), u.functions, why);
        if (u.object)
          keep_bytes(u, file);
        else
          cache_.evict(u.key, compiler);
      }
      if (!u.object) missing.push_back(i);
    }
    return missing;
  }

  void compile(std::vector<size_t> missing, const std::string& compiler, const std::string& identity,
               const std::function<void()>& built) {
    open_work(missing);
    // The longest first, or the last one is waited for alone.
    std::stable_sort(missing.begin(), missing.end(),
                     [&](size_t a, size_t b) { return units_[a].text.size() > units_[b].text.size(); });
    std::vector<Command> commands;
    for (size_t i : missing) {
      Command c{{compiler}, work_->path().string()};
      for (std::string& flag : compiler_flags(isa_, units_[i].brief)) c.args.push_back(std::move(flag));
      for (const char* flag : {"-shared", "-nostdlib", "-Wl,--build-id=none", "-o"})
        c.args.emplace_back(flag);
      c.args.push_back((work_->path() / object_name(i)).string());
      c.args.push_back((work_->path() / source_name(i)).string());
      c.args.emplace_back("-lm");
      commands.push_back(std::move(c));
    }
    const int threads = static_cast<int>(std::thread::hardware_concurrency());
    // What was waited for before, for other parts of the model, counts.
    const int64_t time = toolchain_.time_limit_ms > 0
                             ? std::max<int64_t>(1, toolchain_.time_limit_ms - waited_outside_ms())
                             : 0;
    const ProcessLimits limits{time, toolchain_.memory_limit, toolchain_.gives_way};
    run_processes(
        commands, std::max(1, toolchain_.jobs > 0 ? toolchain_.jobs : threads), limits,
        [&](size_t n, const ProcessResult& r) {
          take(missing[n], r, compiler, identity);
          built();
        },
        [&] {
          if (toolchain_.interrupted && toolchain_.interrupted())
            throw_backend_error("the compilation was interrupted");
        });
  }

  std::shared_ptr<Module> module(size_t compiled, const std::string& identity) {
    auto m = std::make_shared<Module>();
    m->compiled = static_cast<int>(compiled);
    m->cached = static_cast<int>(units_.size() - compiled);
    std::set<std::string> keys;
    for (Unit& u : units_) {
      m->handles_.push_back(std::move(u.object));
      if (toolchain_.keep_bytes) m->bytes.push_back(std::move(u.bytes));
      if (!identity.empty()) m->objects.push_back(cache_.path_of(u.key, identity));
      keys.insert(u.key);
      m->units.push_back({std::move(u.key), std::move(u.functions)});
    }
    if (compiled > 0 && in_cache_) cache_.prune(keys); // it has grown
    return m;
  }

  size_t size() const { return units_.size(); }

private:
  static std::string source_name(size_t i) { return fmt::format("unit{}.cpp", i); }
  static std::string object_name(size_t i) { return fmt::format("unit{}.so", i); }

  /// A folder with the sources: in the cache, from where objects are moved in place, or where that has no
  /// room, in the folder for temporary files; the objects are this process's alone, then.
  void open_work(const std::vector<size_t>& missing) {
    std::vector<fs::path> places;
    if (cache_.can_write()) places.push_back(cache_.folder());
    if (fs::path temporary = temporary_folder(); !temporary.empty()) places.push_back(temporary);
    std::string wrong = cache_.can_write()
                            ? ""
                            : fmt::format("cannot write to the kernel cache {}", cache_.folder().string());
    for (const fs::path& place : places) {
      try {
        work_.reset();
        work_.emplace(place);
        in_cache_ = place == cache_.folder();
        for (size_t i : missing) {
          const fs::path path = work_->path() / source_name(i);
          std::ofstream out(path, std::ios::binary | std::ios::trunc);
          out << prelude_for(isa_, units_[i].text) << units_[i].text;
          if (!out.flush()) throw_backend_error("cannot write {}: {}", path.string(), std::strerror(errno));
        }
        if (!wrong.empty())
          note(fmt::format("{}; kernels are compiled in {} and not kept", wrong, place.string()));
        return;
      } catch (const Error& e) {
        wrong += (wrong.empty() ? "" : "; ") + e.message();
      }
    }
    throw_backend_error("no folder to compile kernels in: {}",
                        wrong.empty() ? "none can be written to" : wrong);
  }

  void keep_bytes(Unit& u, const FileDescriptor& file) const {
    if (!toolchain_.keep_bytes) return;
    std::optional<std::string> bytes = object_bytes(file.get());
    if (!bytes) throw_backend_error("a compiled object cannot be read: {}", std::strerror(errno));
    u.bytes = std::move(*bytes);
  }

  void take(size_t i, const ProcessResult& r, const std::string& compiler, const std::string& identity) {
    Unit& u = units_[i];
    const bool may_be_whole = r.status == 0 || (r.unknown && r.output.find("error:") == std::string::npos);
    if (!may_be_whole) fail(i, r, compiler);
    std::string why = "there is none";
    if (FileDescriptor file = open_private(work_->descriptor(), object_name(i).c_str())) {
      u.object = runtime::load_object(file.get(), work_->path() / object_name(i), u.functions, why);
      if (u.object) keep_bytes(u, file);
    }
    if (!u.object)
      throw_backend_error(
          "{} on {} left an object that cannot be used: {}{}{} (a cache folder mounted noexec? set "
          "TBX_CACHE_DIR)",
          compiler, keep_source(i), why, r.output.empty() ? "" : "\n", r.output.substr(0, 4000));
    if (!in_cache_) return;
    // What loads is good enough for others, too; where it cannot be kept it serves us.
    if (std::string wrong = cache_.insert(u.key, identity, work_->descriptor(), object_name(i).c_str());
        !wrong.empty())
      note(wrong);
  }

  [[noreturn]] void fail(size_t i, const ProcessResult& r, const std::string& compiler) {
    const std::string source = keep_source(i);
    if (in_cache_) cache_.prune({});
    if (r.timed_out)
      throw Error(
          ErrorKind::backend,
          fmt::format("{} took longer than the limit of {} ms for the kernels of a model; it ended on {}",
                      compiler, toolchain_.time_limit_ms, source),
          "raise compile_time_limit_ms if the machine is slow");
    const bool silent = r.output.empty(); // as one is that a signal ends, or that has no memory to begin with
    const std::string said = silent ? " without a word" : ":\n" + r.output.substr(0, 4000);
    const std::string text = fmt::format("{} failed on {}{}", compiler, source, said);
    if (toolchain_.memory_limit > 0 && (silent || ran_out_of_memory(r.output)))
      throw Error(ErrorKind::backend, text,
                  fmt::format("the compiler has a limit of {} bytes, which compile_memory raises",
                              toolchain_.memory_limit));
    throw Error(ErrorKind::backend, text);
  }

  /// The source stays for the reader of the message.
  std::string keep_source(size_t i) {
    const fs::path kept =
        (in_cache_ ? cache_.folder() : temporary_folder()) / ("failed-" + units_[i].key + ".cpp");
    return rename((work_->path() / source_name(i)).c_str(), kept.c_str()) == 0 ? kept.string()
                                                                               : "generated code";
  }

  void note(const std::string& text) {
    if (toolchain_.log && notes_.insert(text).second) toolchain_.log(text);
  }

  Isa isa_;
  const Toolchain& toolchain_;
  KernelCache cache_;
  std::vector<Unit> units_;
  std::optional<WorkFolder> work_;
  bool in_cache_ = false;
  std::set<std::string> notes_;
};

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

Toolchain resolved(Toolchain toolchain) {
  toolchain.compiler = find_compiler(toolchain);
  toolchain.cache_dir = KernelCache(toolchain).folder();
  return toolchain;
}

std::shared_ptr<Module> build_module(const std::vector<EmittedKernel>& kernels, Isa isa,
                                     const Toolchain& toolchain,
                                     const std::function<void(int, int)>& progress) {
  if (kernels.empty()) return std::make_shared<Module>();
  Build build(kernels, isa, toolchain);
  const std::string compiler = find_compiler(toolchain);
  if (compiler.empty()) throw_backend_error("{}", compiler_fault(toolchain));
  const std::string identity = compiler_identity(compiler);
  const std::vector<size_t> missing = build.find(identity);
  const int total = static_cast<int>(build.size());
  int done = total - static_cast<int>(missing.size());
  if (progress) progress(done, total);
  if (!missing.empty())
    build.compile(missing, compiler, identity, [&] {
      ++done;
      if (progress) progress(done, total);
    });
  return build.module(missing.size(), identity);
}

/// `what`: kernels and their isa, or units.
template <class... What>
static std::shared_ptr<Module> module_in_cache(const Toolchain& toolchain, const std::string& identity,
                                               const What&... what) {
  try {
    Build build(what..., toolchain);
    return build.find(identity).empty() ? build.module(0, identity) : nullptr;
  } catch (const Error& e) { // no cache
    if (e.kind() == ErrorKind::internal) throw;
    return nullptr;
  }
}

std::shared_ptr<Module> cached_module(const std::vector<EmittedKernel>& kernels, Isa isa,
                                      const Toolchain& toolchain) {
  const std::string compiler = find_compiler(toolchain);
  if (compiler.empty()) return nullptr;
  std::vector<std::string> notes; // who builds them all the same notes it again
  Toolchain quiet = toolchain;
  quiet.log = [&](const std::string& note) { notes.push_back(note); };
  if (kernels.empty()) return std::make_shared<Module>();
  auto found = module_in_cache(quiet, compiler_identity(compiler), kernels, isa);
  if (found && toolchain.log)
    for (const std::string& note : notes) toolchain.log(note);
  return found;
}

std::shared_ptr<Module> find_module(const std::vector<EmittedKernel>& kernels, Isa isa,
                                    const Toolchain& toolchain) {
  if (kernels.empty()) return std::make_shared<Module>();
  return module_in_cache(toolchain, "", kernels, isa);
}

std::shared_ptr<Module> module_of_units(const std::vector<KernelUnit>& units, const Toolchain& toolchain) {
  if (units.empty()) return std::make_shared<Module>();
  const std::string compiler = find_compiler(toolchain);
  return module_in_cache(toolchain, compiler.empty() ? "" : compiler_identity(compiler), units);
}

std::string units_identity(Isa isa) { return how_compiled(isa, false) + '\n' + how_compiled(isa, true); }

} // namespace tbx::codegen
