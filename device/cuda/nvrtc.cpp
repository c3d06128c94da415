#include "device/cuda/nvrtc.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "device/library.h"

namespace tbx::device::cuda {

namespace {

using Program = struct _nvrtcProgram*;

// Declared here for the same reason as the driver's functions. Results are nvrtcResult; 0: success.
struct Nvrtc {
  int (*nvrtcVersion)(int*, int*);
  int (*nvrtcCreateProgram)(Program*, const char*, const char*, int, const char* const*, const char* const*);
  int (*nvrtcCompileProgram)(Program, int, const char* const*);
  int (*nvrtcGetProgramLogSize)(Program, size_t*);
  int (*nvrtcGetProgramLog)(Program, char*);
  int (*nvrtcGetCUBINSize)(Program, size_t*);
  int (*nvrtcGetCUBIN)(Program, char*);
  int (*nvrtcDestroyProgram)(Program*);
  const char* (*nvrtcGetErrorString)(int);
};

const Nvrtc& nvrtc() {
  static const Nvrtc table = [] {
    const Library& library = cuda_library("libnvrtc.so.13");
    Nvrtc t{};
    auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library.symbol(name));
      if (!function) throw_backend_error("{} has no function {}", library.place().path, name);
    };
#define FIND(name) find(t.name, #name)
    FIND(nvrtcVersion), FIND(nvrtcCreateProgram), FIND(nvrtcCompileProgram), FIND(nvrtcGetProgramLogSize);
    FIND(nvrtcGetProgramLog), FIND(nvrtcGetCUBINSize), FIND(nvrtcGetCUBIN), FIND(nvrtcDestroyProgram);
    FIND(nvrtcGetErrorString);
#undef FIND
    return t;
  }();
  return table;
}

/// Products and sums are not contracted: results are those of the evaluator and of generated C++ but for the
/// mathematical functions.
const std::vector<const char*>& options() {
  static const std::vector<const char*> o{"--std=c++17", "--fmad=false",
                                          "--device-as-default-execution-space", "-w"};
  return o;
}

void check_nvrtc(int result, const char* what) {
  if (result != 0) throw_backend_error("{} failed: {}", what, nvrtc().nvrtcGetErrorString(result));
}

} // namespace

std::string nvrtc_identity() {
  int major = 0, minor = 0;
  check_nvrtc(nvrtc().nvrtcVersion(&major, &minor), "nvrtcVersion");
  std::string text = fmt::format("nvrtc {}.{}", major, minor);
  for (const char* option : options()) text += fmt::format(" {}", option);
  return text;
}

std::string compile(std::string_view source, std::string_view architecture) {
  const Nvrtc& n = nvrtc();
  struct Owner {
    Program program = nullptr;
    ~Owner() {
      if (program) nvrtc().nvrtcDestroyProgram(&program);
    }
  } owner;
  const std::string text(source), target = fmt::format("--gpu-architecture={}", architecture);
  check_nvrtc(n.nvrtcCreateProgram(&owner.program, text.c_str(), "kernels.cu", 0, nullptr, nullptr),
        "nvrtcCreateProgram");
  std::vector<const char*> flags = options();
  flags.push_back(target.c_str());
  if (int r = n.nvrtcCompileProgram(owner.program, static_cast<int>(flags.size()), flags.data()); r != 0) {
    size_t size = 0;
    n.nvrtcGetProgramLogSize(owner.program, &size);
    std::string log(size, '\0');
    if (size > 0) n.nvrtcGetProgramLog(owner.program, log.data());
    throw_backend_error("NVRTC refuses kernels for {}: {}\n{}", architecture, n.nvrtcGetErrorString(r),
                        log.c_str());
  }
  size_t size = 0;
  check_nvrtc(n.nvrtcGetCUBINSize(owner.program, &size), "nvrtcGetCUBINSize");
  std::string cubin(size, '\0');
  check_nvrtc(n.nvrtcGetCUBIN(owner.program, cubin.data()), "nvrtcGetCUBIN");
  return cubin;
}

} // namespace tbx::device::cuda
