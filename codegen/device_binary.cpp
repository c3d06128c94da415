#include "codegen/device_binary.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <thread>

#include "base/error.h"
#include "codegen/compiler.h"
#include "codegen/kernel_cache.h"
#include "codegen/work_folder.h"
#include "device/cuda/nvrtc.h"
#include "device/fake/emulator.h"

namespace tbx::codegen {

namespace fs = std::filesystem;

namespace {

constexpr int kSeconds = 240;

/// Removed with all that is in it at the end of the scope.
struct TemporaryFolder {
  fs::path path;
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "tbx-emulated-XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw_backend_error("cannot make a folder {}", pattern);
    path = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ec;
    fs::remove_all(path, ec);
  }
};

/// Without optimisation that takes long: emulation is for tests.
std::string emulated_object(const std::string& text, const Toolchain& toolchain) {
  const std::string compiler = find_compiler(toolchain);
  if (compiler.empty())
    throw_backend_error("the fake device needs a C++ compiler: set TBX_CXX or install g++");
  const TemporaryFolder folder;
  const fs::path source = folder.path / "kernels.cpp", object = folder.path / "kernels.so";
  std::ofstream(source, std::ios::binary) << text;
  const ProcessResult r = run_process({compiler, "-std=c++20", "-O1", "-fwrapv", "-fno-strict-aliasing",
                                       "-fno-math-errno", "-ffp-contract=off", "-fno-exceptions", "-fPIC",
                                       "-w", "-shared", "-o", object.string(), source.string(), "-lm"},
                                      kSeconds);
  if (r.status != 0)
    throw_backend_error("{} refuses emulated kernels:\n{}", compiler, r.output.substr(0, 4000));
  std::ifstream in(object, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

} // namespace

namespace {

/// Prelude and distinct kernels.
std::string source_of(const std::vector<EmittedKernel>& kernels, std::set<std::string>& names) {
  std::string text = prelude_cuda();
  for (const EmittedKernel& k : kernels)
    if (names.insert(k.function).second) text += k.text;
  return text;
}

bool is_gpu(const device::Properties& properties) { return properties.architecture.starts_with("sm_"); }

/// Kernels in few texts: NVRTC reads one text at a time, whoever asks, and the prelude of each takes longer
/// than most kernels. What it has read it compiles side by side, with several threads for each text.
std::vector<std::string> in_parts(const std::vector<EmittedKernel>& kernels) {
  const size_t most = std::max(1u, std::thread::hardware_concurrency() / 2);
  std::vector<std::string> parts;
  std::set<std::string> seen;
  for (const EmittedKernel& k : kernels) {
    if (!seen.insert(k.function).second) continue;
    if (parts.size() < most)
      parts.push_back(prelude_cuda() + k.text);
    else
      parts[(seen.size() - 1) % most] += k.text;
  }
  if (parts.empty()) parts.push_back(prelude_cuda());
  return parts;
}

std::string compiled(const std::vector<EmittedKernel>& kernels, const std::string& text,
                     const std::set<std::string>& names, const device::Properties& properties,
                     const Toolchain& toolchain) {
  if (is_gpu(properties)) return device::cuda::compile_all(in_parts(kernels), properties.architecture);
  return emulated_object(device::fake::emulated_source(text, {names.begin(), names.end()}), toolchain);
}

/// Keeps the binary for others; that it cannot be kept is no error.
void keep(KernelCache& cache, const std::string& key, const std::string& compiler, const std::string& binary,
          const Toolchain& toolchain) {
  if (!cache.can_write()) return;
  std::string wrong;
  try {
    const WorkFolder work(cache.folder());
    std::ofstream out(work.path() / "device.so", std::ios::binary | std::ios::trunc);
    out << binary;
    out.close();
    wrong = out ? cache.insert(key, compiler, work.descriptor(), "device.so")
                : "cannot write to the kernel cache";
  } catch (const Error& e) {
    wrong = e.message();
  }
  if (wrong.empty())
    cache.prune({key});
  else if (toolchain.log)
    toolchain.log(wrong);
}

} // namespace

std::string device_binary(const std::vector<EmittedKernel>& kernels, const device::Properties& properties,
                          const Toolchain& toolchain) {
  std::set<std::string> names;
  const std::string text = source_of(kernels, names);
  return compiled(kernels, text, names, properties, toolchain);
}

std::string device_source(const std::vector<EmittedKernel>& kernels) {
  std::set<std::string> names;
  return source_of(kernels, names);
}

namespace {

/// What a binary is called in the cache: its text and how it is compiled, and the compiler, as with kernels
/// of the host.
struct Name {
  std::string key, compiler;
};

std::string compiler_name(const std::string& architecture, const Toolchain& toolchain) {
  if (!architecture.starts_with("sm_")) return compiler_identity(find_compiler(toolchain));
  const std::string identity = device::cuda::nvrtc_identity();
  return fmt::format("{:016x}", XXH3_64bits(identity.data(), identity.size()));
}

Name name_of(const std::string& text, const std::string& architecture, const Toolchain& toolchain) {
  Name name{{}, compiler_name(architecture, toolchain)};
  const std::string all = text + device::fake::emulated_source("", {});
  const XXH128_hash_t h =
      XXH3_128bits_withSeed(all.data(), all.size(), XXH3_64bits(architecture.data(), architecture.size()));
  name.key = fmt::format("{:016x}{:016x}", h.high64, h.low64);
  return name;
}

class KeptBinaries final : public device::cuda::BinaryCache {
public:
  explicit KeptBinaries(const Toolchain& toolchain) { toolchain_.cache_dir = toolchain.cache_dir; }
  std::optional<std::string> find(const std::string& source, const std::string& architecture) override {
    const Name name = name_of(source, architecture, toolchain_);
    return KernelCache(toolchain_).read(name.key, name.compiler);
  }
  void keep(const std::string& source, const std::string& architecture, const std::string& binary) override {
    const Name name = name_of(source, architecture, toolchain_);
    KernelCache cache(toolchain_);
    codegen::keep(cache, name.key, name.compiler, binary, toolchain_);
  }

private:
  Toolchain toolchain_;
};

} // namespace

DeviceBinary cached_device_binary(const std::vector<EmittedKernel>& kernels,
                                  const device::Properties& properties, const Toolchain& toolchain) {
  std::set<std::string> names;
  const std::string text = source_of(kernels, names);
  const Name name = name_of(text, properties.architecture, toolchain);
  KernelCache cache(toolchain);
  if (std::optional<std::string> found = cache.read(name.key, name.compiler))
    return {*std::move(found), name.key, true};
  std::string binary = compiled(kernels, text, names, properties, toolchain);
  keep(cache, name.key, name.compiler, binary, toolchain);
  return {std::move(binary), name.key, false};
}

std::optional<std::string> kept_device_binary(const std::string& key, const device::Properties& properties,
                                              const Toolchain& toolchain) {
  return KernelCache(toolchain).read(key, compiler_name(properties.architecture, toolchain));
}

std::shared_ptr<device::cuda::BinaryCache> binary_cache(const Toolchain& toolchain) {
  return std::make_shared<KeptBinaries>(toolchain);
}

int64_t most_blocks(bool scratch, const device::Properties& properties) {
  constexpr int64_t kBlocksPerMultiprocessor = 8;
  return scratch ? properties.multiprocessors * kBlocksPerMultiprocessor : INT32_MAX;
}

int teams_of_block(const EmittedKernel& kernel) {
  return kernel.team == Team::block  ? 1
         : kernel.team == Team::warp ? kernel.block_threads / 32
                                     : kernel.block_threads;
}

device::LaunchShape launch_shape(const EmittedKernel& kernel, int64_t tasks,
                                 const device::Properties& properties) {
  device::LaunchShape shape;
  shape.threads = static_cast<uint32_t>(kernel.block_threads);
  shape.shared_bytes = static_cast<uint32_t>(kernel.shared_bytes);
  const int64_t teams = teams_of_block(kernel), blocks = (tasks + teams - 1) / teams;
  shape.blocks = static_cast<uint32_t>(
      std::clamp<int64_t>(blocks, 1, most_blocks(!kernel.scratch_bytes.is(0), properties)));
  return shape;
}

int64_t scratch_of_launch(const EmittedKernel& kernel, const device::LaunchShape& shape,
                          int64_t scratch_bytes) {
  return scratch_bytes * shape.blocks * (kernel.team == Team::warp ? shape.threads / 32 : 1);
}

} // namespace tbx::codegen
