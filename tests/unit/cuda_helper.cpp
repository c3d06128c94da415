#include "cuda_helper.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "codegen/compiler.h"

namespace tbx::test {

namespace fs = std::filesystem;

namespace {

/// The few functions of the driver that running a kernel needs, loaded where there is a driver.
class Gpu {
public:
  Gpu() {
    library_ = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library_ || call<unsigned>("cuInit", 0u) != 0 || call<int*, int>("cuDeviceGet", &device_, 0) != 0)
      return;
    void* context = nullptr;
    if (call<void**, int>("cuDevicePrimaryCtxRetain", &context, device_) != 0) return;
    call<void*>("cuCtxSetCurrent", context);
    call<int*, int, int>("cuDeviceGetAttribute", &major_, 75, device_);
    call<int*, int, int>("cuDeviceGetAttribute", &minor_, 76, device_);
  }
  std::string architecture() const { return major_ ? fmt::format("sm_{}{}", major_, minor_) : ""; }

  void load(const std::string& cubin) {
    ASSERT_EQ((call<void**, const char*>("cuModuleLoad", &module_, cubin.c_str())), 0);
  }

  int64_t run(const codegen::EmittedKernel& e, const KernelRun& r) {
    void* function = nullptr;
    EXPECT_EQ(
        (call<void**, void*, const char*>("cuModuleGetFunction", &function, module_, e.function.c_str())), 0);
    constexpr unsigned block = 96;
    int64_t wanted = e.block_per_task ? r.tasks : (r.tasks + block - 1) / block;
    // Few enough that blocks and threads have several points each.
    auto grid = static_cast<unsigned>(std::clamp<int64_t>(wanted, 1, 5));
    std::vector<uint64_t> memory, pointers;
    auto device_copy = [&](const void* data, size_t bytes) {
      memory.push_back(0);
      EXPECT_EQ((call<uint64_t*, size_t>("cuMemAlloc_v2", &memory.back(), std::max<size_t>(bytes, 8))), 0);
      if (data && bytes) {
        EXPECT_EQ((call<uint64_t, const void*, size_t>("cuMemcpyHtoD_v2", memory.back(), data, bytes)), 0);
      }
      return memory.back();
    };
    for (size_t b = 0; b < r.buffers.size(); ++b)
      pointers.push_back(kGuard +
                         device_copy(static_cast<char*>(r.buffers[b]) - kGuard, r.bytes[b] + 2 * kGuard));
    int64_t error = 0, begin = 0, end = r.tasks;
    uint64_t buffers = device_copy(pointers.data(), pointers.size() * 8),
             sizes = device_copy(r.sizes.data(), r.sizes.size() * 8),
             scratch = device_copy(nullptr, static_cast<size_t>(r.scratch_bytes) * grid),
             failed = device_copy(&error, sizeof error);
    void* args[] = {&buffers, &sizes, &begin, &end, &scratch, &failed};
    EXPECT_EQ(
        (call<void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
              void**>("cuLaunchKernel", function, grid, 1, 1, block, 1, 1, 0, nullptr, args, nullptr)),
        0);
    EXPECT_EQ(call<>("cuCtxSynchronize"), 0);
    for (size_t b = 0; b < r.buffers.size(); ++b)
      call<void*, uint64_t, size_t>("cuMemcpyDtoH_v2", static_cast<char*>(r.buffers[b]) - kGuard, memory[b],
                                    r.bytes[b] + 2 * kGuard);
    call<void*, uint64_t, size_t>("cuMemcpyDtoH_v2", &error, failed, sizeof error);
    for (uint64_t m : memory) call<uint64_t>("cuMemFree_v2", m);
    return error;
  }

private:
  template <class... A> int call(const char* name, A... args) {
    auto f = reinterpret_cast<int (*)(A...)>(dlsym(library_, name));
    return f ? f(args...) : -1;
  }

  void *library_ = nullptr, *module_ = nullptr;
  int device_ = 0, major_ = 0, minor_ = 0;
};

} // namespace

std::string find_nvcc() {
  const char* home = std::getenv("CUDA_HOME");
  fs::path nvcc = fs::path(home ? home : "/usr/local/cuda") / "bin/nvcc";
  return fs::exists(nvcc) ? nvcc.string() : "";
}

void run_cuda_cases(const std::vector<std::shared_ptr<KernelCase>>& cases) {
  const std::string nvcc = find_nvcc();
  if (nvcc.empty()) GTEST_SKIP() << "no nvcc";
  std::string text = codegen::prelude_cuda();
  std::vector<codegen::EmittedKernel> emitted;
  for (const auto& k : cases) {
    verify(k->kernel);
    emitted.push_back(codegen::emit_cuda(k->kernel));
    bool repeated = std::any_of(emitted.begin(), emitted.end() - 1,
                                [&](auto& e) { return e.function == emitted.back().function; });
    if (!repeated) text += emitted.back().text;
  }
  std::string pattern = (fs::temp_directory_path() / "tbx-cuda-XXXXXX").string();
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  const fs::path folder = pattern, source = folder / "kernels.cu";
  std::ofstream(source) << text;
  static Gpu gpu;
  std::vector<std::string> architectures{"sm_80", "sm_90"};
  if (!gpu.architecture().empty() && gpu.architecture() != "sm_80" && gpu.architecture() != "sm_90")
    architectures.push_back(gpu.architecture());
  for (const std::string& arch : architectures) {
    fs::path cubin = folder / (arch + ".cubin");
    // Little optimisation: it is half of the time.
    std::vector<std::string> args{nvcc, "-std=c++17",   "-arch=" + arch, "-cubin",
                                  "-w", "--fmad=false", "-Xptxas",       "-O1",
                                  "-o", cubin.string(), source.string()};
    auto r = codegen::run_process(args, 240);
    EXPECT_EQ(r.status, 0) << arch << ":\n" << r.output.substr(0, 3000);
    if (r.status != 0 || arch != gpu.architecture()) continue;
    gpu.load(cubin.string());
    for (size_t i = 0; i < cases.size(); ++i)
      compare_with_evaluator(*cases[i], emitted[i],
                             [&](const KernelRun& run) { return gpu.run(emitted[i], run); });
  }
  fs::remove_all(folder);
  testing::Test::RecordProperty("gpu", gpu.architecture());
  if (!gpu.architecture().empty()) fmt::print("[          ] ran on a GPU of {}\n", gpu.architecture());
}

} // namespace tbx::test
