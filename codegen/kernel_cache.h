// Kernel cache: shared objects by content hash in a folder that only its owner may touch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/keyed_hash.h"
#include "base/mapped_file.h"
#include "codegen/toolchain.h"

namespace tbx::codegen {

/// An object is named after what it is made from and after the compiler that made it:
/// <hash of source, flags and ISA>-<hash of the compiler>.so. With a compiler only its own objects count, so
/// that a new compiler's code comes into use; where there is none, that of any compiler does.
///
/// Objects end with a seal: a hash of name and contents under a key that lies in the cache and that nobody
/// else can read. Files are opened once, and what was opened is what is checked and loaded.
class KernelCache {
public:
  /// The folder that the toolchain or the environment names, or one of the user's; where that cannot be used,
  /// which the toolchain's log is told, one in the folder for temporary files. BackendError when there is
  /// none, or $TBX_CACHE_LIMIT is no size.
  explicit KernelCache(const Toolchain& toolchain);

  /// The object of this key that `compiler` made (empty: any compiler), open and checked.
  FileDescriptor find(const std::string& key, const std::string& compiler);
  /// The contents of the object of this key that `compiler` made, without the seal; nothing when there is
  /// none.
  std::optional<std::string> read(const std::string& key, const std::string& compiler);
  /// Where such an object lies or would lie.
  std::filesystem::path path_of(const std::string& key, const std::string& compiler) const;
  /// Seals a finished object of the open `folder` and moves it in place; safe against other processes doing
  /// the same. Returns what went wrong, empty: nothing.
  std::string insert(const std::string& key, const std::string& compiler, int folder,
                     const char* object) const;
  /// A kept plan lies beside the objects under the name <key>.plan, sealed like them. Its bytes, aligned as
  /// constants are; none where there is none. One that is damaged is removed, and `wrong` says so.
  std::shared_ptr<const std::byte> find_plan(const std::string& key, size_t& size, std::string& wrong);
  /// Writes a plan under its name, whole or not at all, and makes room where the cache is over its limit.
  /// Returns what went wrong, empty: nothing.
  std::string insert_plan(const std::string& key, std::string bytes) const;
  void evict_plan(const std::string& key) const;
  /// What keys of plans are hashed with, of this folder: who does not read the key of its seals cannot make a
  /// model whose plan has the name of another's.
  uint64_t plan_seed() const;
  /// Removes an object that cannot be used.
  void evict(const std::string& key, const std::string& compiler);
  /// Removes the objects and plans that were used least recently when all together are larger than
  /// the limit; those of the keys in `keep` stay, and those used within the last minute. Reads the whole
  /// folder.
  void prune(const std::set<std::string>& keep) const;

  const std::filesystem::path& folder() const { return folder_; }
  bool can_write() const { return can_write_; }

private:
  /// Why the folder cannot be used; empty: it is open now.
  std::string use(const std::filesystem::path& folder);
  bool has_key();
  std::string read_key();
  std::string name_of(const std::string& key, const std::string& compiler);
  bool move_in(int folder, const char* file, const std::string& name) const;

  std::filesystem::path folder_;
  FileDescriptor at_;
  HashKey key_{};
  bool can_write_ = false;
  int64_t limit_;                                         ///< bytes
  std::optional<std::map<std::string, std::string>> any_; ///< without a compiler: names by key
};

/// The object in an open file, without a seal; nothing when it cannot be read.
std::optional<std::string> object_bytes(int fd);

constexpr size_t kKeyLength = 32;      ///< hexadecimal digits, of keys
constexpr size_t kCompilerLength = 16; ///< and of what stands for compilers
bool is_object_name(std::string_view name);
bool is_plan_name(std::string_view name);

/// A regular file that belongs to us and that nobody else can change, open for reading; else none.
FileDescriptor open_private(int folder, const char* name);
/// Its contents; nothing when it cannot be read, or is larger than any object is.
std::optional<std::string> read_all(int fd);

/// Bytes that the objects of a cache may have together: $TBX_CACHE_LIMIT, else 1 GiB; 0: no limit. Throws
/// BackendError when the variable is no size.
int64_t cache_limit();
/// A folder for temporary files that exists: $TMPDIR, /tmp, /var/tmp or /dev/shm; empty: none.
std::filesystem::path temporary_folder();

} // namespace tbx::codegen
