// Kernel cache: shared objects by content hash in a folder that only its owner may touch.
#pragma once

#include <filesystem>
#include <string>

#include "codegen/build_module.h"

namespace tbx::codegen {

class KernelCache {
public:
  /// Makes the folder (0700) when it is missing. BackendError when it belongs to somebody else, others may
  /// write to it, or it is a link.
  explicit KernelCache(const Toolchain& toolchain);

  /// Path of a valid object of this key, empty when there is none. Damaged entries are removed.
  std::filesystem::path find(const std::string& key) const;
  /// Moves a finished object in place with its check file; safe against other processes doing the same.
  std::filesystem::path insert(const std::string& key, const std::filesystem::path& object) const;
  /// A new empty file of ours in the cache, for the compiler to overwrite.
  std::filesystem::path temporary(const std::string& suffix) const;
  const std::filesystem::path& folder() const { return folder_; }

private:
  std::filesystem::path folder_;
};

} // namespace tbx::codegen
