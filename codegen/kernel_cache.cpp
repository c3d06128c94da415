// The cache's files: <key>.so, and <key>.sum with the hash of its bytes.
#include "codegen/kernel_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>

#include "base/error.h"

namespace tbx::codegen {

namespace fs = std::filesystem;

namespace {

std::string variable(const char* name) {
  const char* v = std::getenv(name);
  return v ? v : "";
}

/// False with errno when it is not there and cannot be made.
bool make_folder(const fs::path& folder) {
  std::error_code ignored; // mkdir says what is wrong
  if (folder.has_parent_path()) fs::create_directories(folder.parent_path(), ignored);
  return mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST;
}

/// Where nobody named a folder: in the user's cache, or, where that cannot be written to (a service without a
/// home, a container whose files are read-only), in the folder for temporary files.
fs::path default_folder() {
  fs::path folder;
  if (std::string dir = variable("XDG_CACHE_HOME"); !dir.empty())
    folder = fs::path(dir) / "tensorbox" / "kernels";
  else if (std::string home = variable("HOME"); !home.empty())
    folder = fs::path(home) / ".cache" / "tensorbox" / "kernels";
  if (!folder.empty() && make_folder(folder) && access(folder.c_str(), W_OK | X_OK) == 0) return folder;
  return fs::temp_directory_path() / fmt::format("tensorbox-{}", getuid());
}

fs::path chosen_folder(const Toolchain& toolchain) {
  if (!toolchain.cache_dir.empty()) return toolchain.cache_dir;
  std::string dir = variable("TBX_CACHE_DIR");
  return dir.empty() ? default_folder() : fs::path(dir);
}

/// The whole of a regular file that we own and nobody else can change; nullopt otherwise.
std::optional<std::string> read_private(const fs::path& path) {
  int fd = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  struct stat st {};
  std::optional<std::string> bytes;
  if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & 022) == 0 &&
      st.st_size < (off_t{1} << 30)) {
    bytes.emplace(static_cast<size_t>(st.st_size), '\0');
    size_t done = 0;
    while (done < bytes->size()) {
      ssize_t got = read(fd, bytes->data() + done, bytes->size() - done);
      if (got <= 0) break;
      done += static_cast<size_t>(got);
    }
    if (done != bytes->size()) bytes.reset();
  }
  close(fd);
  return bytes;
}

std::string checksum(const std::string& bytes) {
  XXH128_hash_t h = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x} {}\n", h.high64, h.low64, bytes.size());
}

} // namespace

KernelCache::KernelCache(const Toolchain& toolchain)
    : folder_(chosen_folder(toolchain)), limit_(cache_limit()) {
  std::error_code ec;
  folder_ = fs::absolute(folder_, ec);
  if (!make_folder(folder_))
    throw_backend_error(
        "cannot make the kernel cache {}: {}; set TBX_CACHE_DIR to a folder that can be written to",
        folder_.string(), std::strerror(errno));
  struct stat st {};
  if (lstat(folder_.c_str(), &st) != 0 || !S_ISDIR(st.st_mode))
    throw_backend_error("the kernel cache {} is not a folder", folder_.string());
  if (st.st_uid != geteuid())
    throw_backend_error("the kernel cache {} belongs to user {}; set TBX_CACHE_DIR to a folder of your own",
                        folder_.string(), st.st_uid);
  if (st.st_mode & 077)
    throw_backend_error(
        "the kernel cache {} is open to other users (mode {:o}); chmod 700 it or set TBX_CACHE_DIR",
        folder_.string(), st.st_mode & 0777);
}

fs::path KernelCache::find(const std::string& key) const {
  fs::path object = folder_ / (key + ".so"), sum = folder_ / (key + ".sum");
  auto bytes = read_private(object);
  if (!bytes) return {};
  auto expected = read_private(sum);
  if (expected && *expected == checksum(*bytes)) {
    utimensat(AT_FDCWD, object.c_str(), nullptr, AT_SYMLINK_NOFOLLOW); // used now, for prune
    return object;
  }
  // Another process may be between its two renames: a missing check file is no reason to remove the object.
  if (expected) {
    unlink(sum.c_str());
    unlink(object.c_str());
  }
  return {};
}

fs::path KernelCache::temporary(const std::string& suffix) const {
  static std::atomic<unsigned> serial{0};
  std::random_device random;
  for (int attempt = 0; attempt < 100; ++attempt) {
    fs::path path = folder_ / fmt::format(".tmp-{}-{}-{:08x}{}", getpid(), serial++, random(), suffix);
    int fd = open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0) {
      close(fd);
      return path;
    }
    if (errno != EEXIST)
      throw_backend_error(
          "cannot write to the kernel cache {}: {}; set TBX_CACHE_DIR to a folder that can be written to",
          folder_.string(), std::strerror(errno));
  }
  throw_backend_error("cannot find a free name in the kernel cache {}", folder_.string());
}

fs::path KernelCache::insert(const std::string& key, const fs::path& object) const {
  chmod(object.c_str(), 0700);
  auto bytes = read_private(object);
  if (!bytes) throw_backend_error("the compiler left no usable file {}", object.string());
  fs::path sum = temporary(".sum");
  std::string text = checksum(*bytes);
  int fd = open(sum.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOFOLLOW);
  bool written = fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (fd >= 0) written &= close(fd) == 0;
  fs::path at = folder_ / (key + ".so");
  if (!written || rename(object.c_str(), at.c_str()) != 0 ||
      rename(sum.c_str(), (folder_ / (key + ".sum")).c_str()) != 0) {
    int error = errno;
    unlink(sum.c_str());
    throw_backend_error("cannot write to the kernel cache {}: {}", folder_.string(), std::strerror(error));
  }
  return at;
}

} // namespace tbx::codegen
