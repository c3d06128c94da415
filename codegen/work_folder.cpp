// Named .tmp-tensorbox-XXXXXX. Its process holds a lock on it (flock), which the system drops with the
// process, however that ends: who gets the lock of another folder may remove it. Process numbers would say
// nothing to the processes of another container that use the same cache.
#include "codegen/work_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace tbx::codegen {

namespace {

constexpr std::string_view kPrefix = ".tmp-tensorbox-";
constexpr int kFolder = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

/// Calls `each` with the names in a folder, `last`, and closes it. Needs no further descriptor: there may be
/// none left.
template <class F, class G> void for_names(int folder, F&& each, G&& last) {
  DIR* entries = fdopendir(folder);
  if (!entries) {
    close(folder);
    return;
  }
  while (const dirent* e = readdir(entries))
    if (std::string_view name = e->d_name; name != "." && name != "..") each(e->d_name);
  last();
  closedir(entries);
}

/// What a compiler leaves are files; folders in it would not be ours. Its lock ends when it is gone.
void remove_with_files(int parent, const char* name, int folder) {
  for_names(
      folder, [&](const char* file) { unlinkat(folder, file, 0); },
      [&] { unlinkat(parent, name, AT_REMOVEDIR); });
}

void sweep(int parent) {
  const auto remove = [&](const char* name) {
    if (!std::string_view(name).starts_with(kPrefix)) return;
    const int fd = openat(parent, name, kFolder);
    if (fd < 0) return;
    struct stat st {};
    if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0)
      remove_with_files(parent, name, fd);
    else
      close(fd);
  };
  for_names(parent, remove, [] {});
}

} // namespace

WorkFolder::WorkFolder(const std::filesystem::path& parent) {
  const int at = open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (at >= 0) sweep(at); // closes it
  // Another session may take it for one that was left, between its making and its lock: once more, then. It
  // is gone before it is opened, or before it is locked, or locked by the other.
  for (int attempt = 0; at >= 0 && fd_ < 0 && attempt < 100; ++attempt) {
    std::string name = (parent / (std::string(kPrefix) + "XXXXXX")).string();
    if (!mkdtemp(name.data())) break;
    const int fd = open(name.c_str(), kFolder);
    struct stat st {};
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &st) == 0 && st.st_nlink > 0) {
      path_ = name;
      fd_ = fd;
      break;
    }
    const int error = errno;
    if (fd >= 0) close(fd);
    if (fd < 0 && error == ENOENT) continue;
    if (fd < 0 || error == ENOLCK || error == EOPNOTSUPP) {
      rmdir(name.c_str());
      errno = error;
      break;
    }
  }
  const int error = errno;
  if (fd_ < 0)
    throw_backend_error("cannot make a folder for the compiler in {}: {}", parent.string(),
                        std::strerror(error));
}

WorkFolder::~WorkFolder() { remove_with_files(AT_FDCWD, path_.c_str(), fd_); }

} // namespace tbx::codegen
