#include "device/library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>

#include "base/error.h"

namespace tbx::device {

namespace fs = std::filesystem;

namespace {

std::string path_of(void* handle) {
  link_map* map = nullptr;
  return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map ? map->l_name : "";
}

/// <root>/lib/python*/{site,dist}-packages/nvidia/*/lib
void add_packages(const fs::path& root, std::vector<fs::path>& out) {
  std::error_code ec;
  for (const auto& python : fs::directory_iterator(root / "lib", ec)) {
    if (!python.path().filename().string().starts_with("python")) continue;
    for (const char* packages : {"site-packages", "dist-packages"}) {
      std::vector<fs::path> found;
      for (const auto& package : fs::directory_iterator(python.path() / packages / "nvidia", ec))
        if (fs::is_directory(package.path() / "lib", ec)) found.push_back(package.path() / "lib");
      std::sort(found.begin(), found.end()); // the folder's own order is nobody's choice
      out.insert(out.end(), found.begin(), found.end());
    }
  }
}

/// Folders of the Python environment in use: $VIRTUAL_ENV, the user's own packages, that of python3 on PATH.
std::vector<fs::path> python_folders() {
  std::vector<fs::path> out;
  if (const char* environment = std::getenv("VIRTUAL_ENV")) add_packages(environment, out);
  if (const char* home = std::getenv("HOME")) add_packages(fs::path(home) / ".local", out);
  const char* path = std::getenv("PATH");
  std::string_view rest = path ? path : "";
  while (!rest.empty()) {
    const size_t colon = std::min(rest.find(':'), rest.size());
    const fs::path folder = rest.substr(0, colon);
    rest.remove_prefix(std::min(colon + 1, rest.size()));
    if (!folder.is_absolute() || access((folder / "python3").c_str(), X_OK) != 0) continue;
    add_packages(folder.parent_path(), out);
    break; // the first one is what `python3` starts
  }
  return out;
}

std::vector<fs::path> given_folders() {
  const char* given = std::getenv("TBX_CUDA_PATH");
  if (!given || !*given) return {};
  const fs::path root = given;
  return {root, root / "lib64", root / "lib", root / "targets/x86_64-linux/lib"};
}

} // namespace

const std::vector<LibraryName>& cuda_libraries() {
  static const std::vector<LibraryName> names{
      {"libcuda.so.1", "the driver", "install NVIDIA's driver (580 or newer)"},
      {"libnvrtc.so.13", "compiles kernels", "pip install nvidia-cuda-nvrtc"},
      {"libcublasLt.so.13", "matrix products", "pip install nvidia-cublas"},
      {"libcudnn.so.9", "convolutions and attention", "pip install nvidia-cudnn-cu13"},
  };
  return names;
}

Library Library::open(const LibraryName& name) {
  Library out;
  std::string tried;
  auto attempt = [&](const std::string& file, int flags, const char* where) {
    out.handle_ = dlopen(file.c_str(), flags | RTLD_LOCAL);
    if (out.handle_) {
      out.place_ = {path_of(out.handle_), where};
    } else if (const char* why = dlerror(); why && !(flags & RTLD_NOLOAD)) {
      tried += fmt::format("\n  {}: {}", where, why);
    }
    return out.handle_ != nullptr;
  };
  auto attempt_folders = [&](const std::vector<fs::path>& folders, const char* where) {
    std::error_code ec;
    return std::any_of(folders.begin(), folders.end(), [&](const fs::path& folder) {
      const fs::path file = folder / name.file;
      return fs::exists(file, ec) && attempt(file.string(), RTLD_NOW, where);
    });
  };
  if (attempt(name.file, RTLD_NOW | RTLD_NOLOAD, "already loaded")) return out;
  if (attempt_folders(given_folders(), "$TBX_CUDA_PATH")) return out;
  if (attempt_folders(python_folders(), "Python packages")) return out;
  if (attempt(name.file, RTLD_NOW, "system")) return out;
  throw Error(ErrorKind::backend, fmt::format("{} ({}) was not found:{}", name.file, name.purpose, tried),
              fmt::format("{}, or name its folder in TBX_CUDA_PATH", name.install));
}

void* Library::symbol(const char* name) const { return dlsym(handle_, name); }

const Library& cuda_library(const std::string& file) {
  static std::mutex mutex;
  static std::map<std::string, Library> opened;
  std::scoped_lock lock(mutex);
  if (auto it = opened.find(file); it != opened.end()) return it->second;
  for (const LibraryName& name : cuda_libraries())
    if (name.file == file) return opened.emplace(file, Library::open(name)).first->second;
  TBX_INTERNAL(false && "a library of cuda_libraries()");
  return opened.begin()->second;
}

} // namespace tbx::device
