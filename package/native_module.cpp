#include "package/native_module.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/write_file.h"
#include "runtime/load_object.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

namespace tbx::package {
namespace {

/// The loader takes files. One in memory has no name that anybody else could put something under; where the
/// system has none, a private one that is unlinked at once.
FileDescriptor nameless_file() {
  int fd = memfd_create("tensorbox-kernels", MFD_CLOEXEC | MFD_EXEC);
  if (fd < 0 && errno == EINVAL) fd = memfd_create("tensorbox-kernels", MFD_CLOEXEC); // before Linux 6.3
  if (fd >= 0) return FileDescriptor(fd);
  const char* folder = std::getenv("TMPDIR");
  std::string name = std::string(folder && *folder ? folder : "/tmp") + "/tensorbox-kernels-XXXXXX";
  fd = mkostemp(name.data(), O_CLOEXEC);
  if (fd >= 0) unlink(name.c_str());
  return FileDescriptor(fd);
}

} // namespace

NativeModule::NativeModule(const std::vector<std::span<const std::byte>>& objects) {
  for (const std::span<const std::byte> object : objects) {
    const FileDescriptor file = nameless_file();
    if (!file || !write_at(file.get(), object.data(), static_cast<int64_t>(object.size()), 0))
      throw_backend_error("no memory or temporary file for the kernels of the package: {}",
                          std::strerror(errno));
    std::string why;
    handles_.push_back(runtime::load_object(file.get(), {}, {}, why));
    if (!handles_.back())
      throw Error(
          ErrorKind::backend, "the native kernels of the package cannot be loaded: " + why,
          "a system that forbids code in files without a name? Load it with its kernels in the evaluator");
  }
}

runtime::Kernel NativeModule::kernel(const std::string& name) const {
  for (const auto& handle : handles_)
    if (void* f = dlsym(handle.get(), name.c_str()))
      return {reinterpret_cast<runtime::KernelFunction>(f), nullptr};
  return {};
}

} // namespace tbx::package
