#include "base/write_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/shown.h"

namespace tbx {

void write_whole(const std::filesystem::path& path, const std::function<bool(int fd)>& write) {
  std::error_code none;
  if (const auto there = std::filesystem::status(path, none);
      std::filesystem::exists(there) && !std::filesystem::is_regular_file(there))
    throw_backend_error("cannot write {}: it is no regular file", shown(path.native()));
  std::filesystem::path unfinished = path;
  unfinished += fmt::format(".{}.unfinished", ::getpid());
  FileDescriptor fd(::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!fd) throw_backend_error("cannot write {}: {}", shown(path.native()), std::strerror(errno));
  auto fail = [&](int reason) {
    ::unlink(unfinished.c_str());
    throw_backend_error("cannot write {}: {}", shown(path.native()), std::strerror(reason));
  };
  try {
    if (!write(fd.get()) || ::fsync(fd.get()) != 0 || ::rename(unfinished.c_str(), path.c_str()) != 0)
      fail(errno);
  } catch (...) {
    ::unlink(unfinished.c_str());
    throw;
  }
}

bool write_at(int fd, const std::byte* bytes, int64_t size, int64_t offset) {
  while (size > 0) {
    ssize_t written = ::pwrite(fd, bytes, static_cast<size_t>(size), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes += written, size -= written, offset += written;
  }
  return true;
}

} // namespace tbx
