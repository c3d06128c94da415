// What kernels are built with, and where they are kept.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace tbx::codegen {

struct Toolchain {
  std::string compiler; ///< absolute path, or empty: search $TBX_CXX, then c++, g++, clang++ on PATH
  std::filesystem::path
      cache_dir; ///< empty: $TBX_CACHE_DIR, then ${XDG_CACHE_HOME:-~/.cache}/tensorbox/kernels
  int jobs = 0;  ///< parallel compilations; 0: threads of the machine
  int64_t time_limit_ms = 300'000;         ///< of all compilations while a model is loaded, 0: none
  int64_t memory_limit = int64_t{4} << 30; ///< bytes of address space of a compiler process, 0: none
  bool gives_way = false;                  ///< compilers leave the processor to threads of usual priority
  bool keep_bytes = false;                 ///< modules keep the bytes of their objects, for packages
  std::function<bool()> interrupted;       ///< asked while the compiler is waited for; true: it is stopped
  std::function<void(const std::string&)> log; ///< what was done instead of what could not be
};

} // namespace tbx::codegen
