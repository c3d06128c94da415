#include "codegen/device_binary.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "base/error.h"
#include "codegen/compiler.h"
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

std::string device_binary(const std::vector<EmittedKernel>& kernels, const device::Properties& properties,
                          const Toolchain& toolchain) {
  std::string text = prelude_cuda();
  std::set<std::string> names;
  for (const EmittedKernel& k : kernels)
    if (names.insert(k.function).second) text += k.text;
  if (properties.architecture.starts_with("sm_")) return device::cuda::compile(text, properties.architecture);
  return emulated_object(device::fake::emulated_source(text, {names.begin(), names.end()}), toolchain);
}

device::LaunchShape launch_shape(const EmittedKernel& kernel, int64_t tasks,
                                 const device::Properties& properties) {
  constexpr int64_t kMostBlocks = INT32_MAX, kBlocksPerMultiprocessor = 8;
  device::LaunchShape shape;
  shape.threads = static_cast<uint32_t>(kernel.block_threads);
  const int64_t teams = kernel.team == Team::block  ? 1
                        : kernel.team == Team::warp ? kernel.block_threads / 32
                                                    : kernel.block_threads;
  int64_t blocks = (tasks + teams - 1) / teams;
  const bool scratch = !kernel.scratch_bytes.is(0);
  blocks = std::min(blocks, scratch ? properties.multiprocessors * kBlocksPerMultiprocessor : kMostBlocks);
  shape.blocks = static_cast<uint32_t>(std::max<int64_t>(1, blocks));
  return shape;
}

int64_t scratch_of_launch(const EmittedKernel& kernel, const device::LaunchShape& shape,
                          int64_t scratch_bytes) {
  return scratch_bytes * shape.blocks * (kernel.team == Team::warp ? shape.threads / 32 : 1);
}

} // namespace tbx::codegen
