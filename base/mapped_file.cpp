#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/shown.h"

namespace tbx {

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

std::shared_ptr<const MappedFile> MappedFile::open(const std::filesystem::path& path) {
  TBX_MODEL(path.native().find('\0') == std::string::npos,
            "the name of the model file {} has a zero byte in it", shown(path.native()));
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) throw_model_error("cannot open the model file {}: {}", shown(path.native()), std::strerror(errno));
  return map(fd.get(), path.native());
}

std::shared_ptr<const MappedFile> MappedFile::map(int fd, const std::string& name) {
  struct stat facts;
  if (::fstat(fd, &facts) != 0)
    throw_model_error("cannot read the facts of {}: {}", shown(name), std::strerror(errno));
  TBX_MODEL(S_ISREG(facts.st_mode), "{} is not a regular file", shown(name));
  auto size = static_cast<size_t>(facts.st_size);
  void* data = nullptr;
  if (size > 0) { // an empty mapping is an error of its own
    data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
      throw_model_error("cannot map {} into memory: {}", shown(name), std::strerror(errno));
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(static_cast<const std::byte*>(data), size));
}

MappedFile::~MappedFile() {
  if (size_ > 0) ::munmap(const_cast<std::byte*>(data_), size_);
}

} // namespace tbx
