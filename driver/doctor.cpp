#include "driver/doctor.h"

#include <fmt/format.h>

#include <functional>
#include <utility>

#include "base/error.h"
#include "codegen/compiler.h"
#include "codegen/kernel_cache.h"
#include "codegen/process.h"
#include "device/device.h"
#include "device/library.h"

namespace tbx::driver {
namespace {

/// Versions as the libraries count them: 13000 is CUDA 13.0, 91900 cuDNN 9.19.0.
std::string version_of(const device::Library& library, const std::string& file) {
  if (file.starts_with("libnvrtc")) {
    auto* ask = reinterpret_cast<int (*)(int*, int*)>(library.symbol("nvrtcVersion"));
    int major = 0, minor = 0;
    return ask && ask(&major, &minor) == 0 ? fmt::format("{}.{}", major, minor) : "";
  }
  if (file.starts_with("libcuda")) {
    auto* ask = reinterpret_cast<int (*)(int*)>(library.symbol("cuDriverGetVersion"));
    int v = 0;
    return ask && ask(&v) == 0 ? fmt::format("CUDA {}.{}", v / 1000, v % 1000 / 10) : "";
  }
  const char* name = file.starts_with("libcudnn") ? "cudnnGetVersion" : "cublasLtGetVersion";
  auto* ask = reinterpret_cast<size_t (*)()>(library.symbol(name));
  if (!ask) return "";
  const size_t v = ask();
  return fmt::format("{}.{}.{}", v / 10000, v % 10000 / 100, v % 100);
}

/// The first line of what a compiler says of itself.
std::string version_of_compiler(const std::string& path) {
  const codegen::ProcessResult said = codegen::run_process({path, "--version"}, 10);
  return said.status == 0 ? said.output.substr(0, said.output.find('\n')) : "";
}

/// `look` fills the rest in, or throws what is wrong.
Finding finding(std::string what, std::string purpose, const std::function<void(Finding&)>& look) {
  Finding f{std::move(what), std::move(purpose), false, {}, {}, {}};
  try {
    look(f);
    f.found = true;
  } catch (const Error& e) {
    f.problem = e.message() + (e.hint().empty() ? "" : "; " + e.hint());
  }
  return f;
}

} // namespace

std::vector<Finding> look_around() {
  std::vector<Finding> all;
  all.push_back(finding("C++ compiler", "kernels for the CPU", [](Finding& f) {
    f.where = codegen::find_compiler({});
    if (const std::string fault = codegen::compiler_fault({}); !fault.empty())
      throw_backend_error("{}", fault);
    f.version = version_of_compiler(f.where);
  }));
  all.push_back(finding("kernel cache", "kernels that were compiled", [](Finding& f) {
    codegen::Toolchain toolchain;
    toolchain.log = [&](const std::string& note) {
      f.problem = note;
    }; // the folder that was asked for cannot be used
    f.where = codegen::KernelCache(toolchain).folder().string();
  }));
  for (const device::LibraryName& name : device::cuda_libraries())
    all.push_back(finding(name.file, name.purpose, [&](Finding& f) {
      const device::Library& library = device::cuda_library(name.file);
      f.where = fmt::format("{} ({})", library.place().path, library.place().where);
      f.version = version_of(library, name.file);
    }));
  for (int number = 0;; ++number) {
    const std::string name = fmt::format("cuda:{}", number);
    Finding f = finding(name, "a GPU", [&](Finding& f) {
      const device::Properties p = device::open(name)->properties();
      f.where = fmt::format("{}, {} multiprocessors, {:.0f} GiB", p.name, p.multiprocessors,
                            static_cast<double>(p.memory_bytes) / (1 << 30));
      f.version = p.architecture;
    });
    const bool fake = f.version == "emulated";
    if (f.found || number == 0) all.push_back(f);
    if (!f.found || fake) break;
  }
  return all;
}

} // namespace tbx::driver
