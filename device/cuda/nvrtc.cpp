#include "device/cuda/nvrtc.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/error.h"
#include "base/side_by_side.h"
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
/// mathematical functions. Minimal: without textures and the runtime's functions, which no text of ours has.
const std::vector<const char*>& options() {
  static const std::vector<const char*> o{
      "--std=c++17", "--fmad=false", "--device-as-default-execution-space",
      "-w",          "--minimal",    "--split-compile=4"};
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

namespace {

constexpr std::string_view kJoined = "tbx parts"; ///< in front of several parts: their number and lengths

std::mutex cache_mutex;
std::shared_ptr<BinaryCache>& current_cache() {
  static std::shared_ptr<BinaryCache> cache;
  return cache;
}

} // namespace

std::string compile_all(std::span<const std::string> sources, std::string_view architecture) {
  if (sources.size() == 1) return compile(sources[0], architecture);
  std::vector<std::string> parts(sources.size());
  nvrtc(); // found once, and what is missing is said once
  rethrow_first(
      side_by_side(sources.size(), [&](size_t i) { parts[i] = compile(sources[i], architecture); }));
  std::string all(kJoined);
  auto number = [&](uint64_t n) { all.append(reinterpret_cast<const char*>(&n), sizeof n); };
  number(parts.size());
  for (const std::string& part : parts) number(part.size());
  for (const std::string& part : parts) all += part;
  return all;
}

std::vector<std::string_view> parts_of(std::string_view binary) {
  if (!binary.starts_with(kJoined)) return {binary};
  std::string_view rest = binary.substr(kJoined.size());
  auto number = [&] {
    uint64_t n = 0;
    if (rest.size() < sizeof n) throw_backend_error("machine code of kernels is cut off");
    std::memcpy(&n, rest.data(), sizeof n);
    rest.remove_prefix(sizeof n);
    return n;
  };
  const uint64_t count = number();
  if (count > rest.size() / sizeof count) throw_backend_error("machine code of kernels is cut off");
  std::vector<uint64_t> lengths(count);
  for (uint64_t& length : lengths) length = number();
  std::vector<std::string_view> parts;
  for (const uint64_t length : lengths) {
    if (length > rest.size()) throw_backend_error("machine code of kernels is cut off");
    parts.push_back(rest.substr(0, length));
    rest.remove_prefix(length);
  }
  return parts;
}

void set_binary_cache(std::shared_ptr<BinaryCache> cache) {
  std::scoped_lock lock(cache_mutex);
  current_cache() = std::move(cache);
}

std::shared_ptr<BinaryCache> binary_cache() {
  std::scoped_lock lock(cache_mutex);
  return current_cache();
}

std::string compile_cached(const std::string& source, const std::string& architecture) {
  const std::shared_ptr<BinaryCache> cache = binary_cache();
  if (cache)
    if (std::optional<std::string> found = cache->find(source, architecture)) return *std::move(found);
  std::string binary = compile(source, architecture);
  if (cache) cache->keep(source, architecture, binary);
  return binary;
}

} // namespace tbx::device::cuda
