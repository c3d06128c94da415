#include "cuda_helper.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "codegen/device_binary.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/nvrtc.h"
#include "device/fake/fake_device.h"
#include "device/library.h"

namespace tbx::test {

namespace {

/// nullptr where there is none.
device::Device* gpu() {
  static const std::shared_ptr<device::Device> device = []() -> std::shared_ptr<device::Device> {
    try {
      return device::make_cuda_device(0);
    } catch (const Error&) { // no driver or no GPU
      return nullptr;
    }
  }();
  return device.get();
}

bool have_nvrtc() {
  static const bool have = [] {
    try {
      device::cuda_library("libnvrtc.so.13");
      return true;
    } catch (const Error&) {
      return false;
    }
  }();
  return have;
}

/// Runs a kernel on memory of the device, guard zones included, and brings all of it back.
int64_t run_on(device::Device& device, const device::Module& module, const codegen::EmittedKernel& e,
               const KernelRun& r, const ir::KernelProgram& program) {
  const auto threads = static_cast<unsigned>(e.block_threads);
  const int64_t wanted = e.team == codegen::Team::block ? r.tasks : (r.tasks + threads - 1) / threads;
  // Few enough that blocks and threads have several points each.
  const auto blocks = static_cast<unsigned>(std::clamp<int64_t>(wanted, 1, 5));
  auto stream = device.make_stream();
  std::vector<std::unique_ptr<device::Memory>> memory;
  auto device_copy = [&](const void* data, size_t bytes) {
    memory.push_back(device.allocate(bytes));
    if (data) stream->upload(memory.back()->data(), data, bytes);
    return memory.back()->data();
  };
  std::vector<void*> pointers;
  for (size_t b = 0; b < r.buffers.size(); ++b) {
    void* copy = device_copy(static_cast<char*>(r.buffers[b]) - kGuard, r.bytes[b] + 2 * kGuard);
    if (program.buffers[b].access != ir::Access::row_local)
      pointers.push_back(static_cast<char*>(copy) + kGuard);
  }
  int64_t begin = 0, end = r.tasks;
  const auto told = device.allocate_staging(3 * sizeof(int64_t)); // a FailedCheck
  std::memset(told->data(), 0, told->bytes());
  const int64_t report[] = {0, reinterpret_cast<intptr_t>(told->data())};
  const std::vector<char> garbage(static_cast<size_t>(r.state_bytes), 0x55);
  void* scratch = r.state_bytes > 0 ? device_copy(garbage.data(), garbage.size())
                                    : device_copy(nullptr, static_cast<size_t>(codegen::scratch_of_launch(
                                                               e, {blocks, threads}, r.scratch_bytes)));
  void* failed = device_copy(report, sizeof report);
  std::vector<void*> arguments;
  for (void*& p : pointers) arguments.push_back(&p);
  std::vector<int64_t> sizes = r.sizes;
  for (int64_t& s : sizes) arguments.push_back(&s);
  for (void* p : {static_cast<void*>(&begin), static_cast<void*>(&end), static_cast<void*>(&scratch),
                  static_cast<void*>(&failed)})
    arguments.push_back(p);
  auto start = [&](int64_t from, int64_t to) {
    begin = from, end = to;
    stream->launch(module.kernel(e.function), {blocks, threads, static_cast<unsigned>(e.shared_bytes)},
                   arguments);
  };
  if (r.state_bytes > 0) start(r.state_bytes / 8, 0);
  start(0, r.tasks);
  for (size_t b = 0; b < r.buffers.size(); ++b)
    stream->download(static_cast<char*>(r.buffers[b]) - kGuard, memory[b]->data(), r.bytes[b] + 2 * kGuard);
  stream->synchronize();
  return *static_cast<const int64_t*>(told->data());
}

} // namespace

void run_cuda_cases(const std::vector<std::shared_ptr<KernelCase>>& cases, Gpu target) {
  if (!codegen::have_compiler()) GTEST_SKIP() << "no compiler";
  auto fake = device::make_fake_device();
  std::vector<device::Device*> devices{fake.get()};
  if (gpu()) devices.push_back(gpu());
  target.shared_bytes = fake->properties().shared_bytes_block;
  for (device::Device* device : devices)
    target.shared_bytes = std::min(target.shared_bytes, device->properties().shared_bytes_block);
  std::vector<codegen::EmittedKernel> emitted;
  for (const auto& k : cases) {
    verify(k->kernel);
    emitted.push_back(codegen::emit_cuda(k->kernel, target));
  }
  for (device::Device* device : devices) {
    SCOPED_TRACE(device->properties().name);
    auto module = device->load(codegen::device_binary(emitted, device->properties()));
    for (size_t i = 0; i < cases.size(); ++i)
      compare_with_evaluator(*cases[i], emitted[i], [&](const KernelRun& run) {
        return run_on(*device, *module, emitted[i], run, cases[i]->kernel);
      });
  }
  if (gpu()) fmt::print("[          ] ran on {}\n", gpu()->properties().name);
  if (!have_nvrtc()) GTEST_SKIP() << "the emulator ran them; compiled for no GPU: there is no NVRTC";
  for (const char* architecture : {"sm_75", "sm_90"}) {
    device::Properties properties;
    properties.architecture = architecture;
    EXPECT_NO_THROW(codegen::device_binary(emitted, properties)) << architecture;
  }
}

} // namespace tbx::test
