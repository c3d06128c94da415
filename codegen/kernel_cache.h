// Kernel cache: shared objects by content hash in a folder that only its owner may touch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>

#include "codegen/build_module.h"

namespace tbx::codegen {

class KernelCache {
public:
  /// Makes the folder (0700) when it is missing. BackendError when it belongs to somebody else, others may
  /// write to it, it is a link, or $TBX_CACHE_LIMIT is no size.
  explicit KernelCache(const Toolchain& toolchain);

  /// Path of a valid object of this key, empty when there is none. Damaged entries are removed. Another
  /// process may remove it at any time: who cannot open it makes it again.
  std::filesystem::path find(const std::string& key) const;
  /// Moves a finished object in place with its check file; safe against other processes doing the same.
  std::filesystem::path insert(const std::string& key, const std::filesystem::path& object) const;
  /// A new empty file of ours in the cache, for the compiler to overwrite.
  std::filesystem::path temporary(const std::string& suffix) const;
  /// Removes the objects that were used least recently when all together are larger than the limit; those of
  /// the keys in `keep` stay, and those used within the last minute. Reads the whole folder.
  void prune(const std::set<std::string>& keep) const;
  const std::filesystem::path& folder() const { return folder_; }

private:
  std::filesystem::path folder_;
  int64_t limit_; ///< bytes
};

/// Bytes that the objects of a cache may have together: $TBX_CACHE_LIMIT, else 1 GiB; 0: no limit. Throws
/// BackendError when the variable is no size.
int64_t cache_limit();

} // namespace tbx::codegen
