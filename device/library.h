// Libraries of an accelerator, opened at run time: one binary runs with and without them.
#pragma once

#include <string>
#include <vector>

namespace tbx::device {

/// A library as it is asked for.
struct LibraryName {
  std::string file;    ///< soname: "libcudnn.so.9"
  std::string purpose; ///< what it does for us, for messages
  std::string install; ///< the way to get it, for messages
};

/// The driver, the run-time compiler, and the libraries of products and convolutions.
const std::vector<LibraryName>& cuda_libraries();

/// Where a library was found.
struct LibraryPlace {
  std::string path;  ///< as the loader names it
  std::string where; ///< "already loaded", "$TBX_CUDA_PATH", "Python packages", "system"
};

/// An open library; it stays loaded until the process ends, as CUDA's own libraries want.
class Library {
public:
  /// Looks in this order: loaded in the process already (a framework's copy: two versions in one process
  /// clash), $TBX_CUDA_PATH, the nvidia packages of the Python environment, the system's places. Throws
  /// BackendError with all places tried.
  static Library open(const LibraryName& name);
  const LibraryPlace& place() const { return place_; }
  /// nullptr when there is none.
  void* symbol(const char* name) const;

private:
  void* handle_ = nullptr;
  LibraryPlace place_;
};

/// Library of that soname in cuda_libraries(), opened once per process.
const Library& cuda_library(const std::string& file);

} // namespace tbx::device
