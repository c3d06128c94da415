#include "runtime/load_object.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

namespace tbx::runtime {

namespace {

/// The loader maps what the headers say; where a file ends before, the first access to it is a SIGBUS. A
/// linker that was killed leaves such files.
bool is_whole(int fd) {
  Elf64_Ehdr head{};
  struct stat st {};
  if (fstat(fd, &st) != 0 || pread(fd, &head, sizeof head, 0) != sizeof head) return false;
  const auto size = static_cast<uint64_t>(st.st_size);
  auto inside = [&](uint64_t at, uint64_t bytes) { return at <= size && bytes <= size - at; };
  if (std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
      head.e_type != ET_DYN || head.e_phentsize != sizeof(Elf64_Phdr) || head.e_phnum == 0 ||
      !inside(head.e_shoff, uint64_t{head.e_shnum} * head.e_shentsize))
    return false;
  std::vector<Elf64_Phdr> parts(head.e_phnum);
  const size_t bytes = parts.size() * sizeof(Elf64_Phdr);
  if (pread(fd, parts.data(), bytes, static_cast<off_t>(head.e_phoff)) != static_cast<ssize_t>(bytes))
    return false;
  for (const Elf64_Phdr& p : parts)
    if (!inside(p.p_offset, p.p_filesz)) return false;
  return true;
}

/// The loader takes a name that it knows for the same object, and numbers of descriptors are used again:
/// every name is spelled as none before, in "/." and "/", which mean nothing.
std::string name_of(int fd) {
  static std::atomic<uint64_t> serial{0};
  std::string name = "/proc/self/fd";
  for (uint64_t n = ++serial; n > 0; n >>= 1) name += n & 1 ? "/." : "/";
  return name + "/" + std::to_string(fd);
}

} // namespace

std::shared_ptr<void> load_object(int fd, const std::filesystem::path& path,
                                  const std::vector<std::string>& functions, std::string& why) {
  if (!is_whole(fd)) {
    why = "it is no whole shared object";
    return nullptr;
  }
  void* handle = dlopen(name_of(fd).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle && access("/proc/self/fd", F_OK) != 0) handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* error = dlerror();
    why = error ? error : "unknown reason";
    return nullptr;
  }
  std::shared_ptr<void> object(handle, [](void* h) { dlclose(h); });
  for (const std::string& f : functions)
    if (!dlsym(handle, f.c_str())) {
      why = fmt::format("it has no function {}", f);
      return nullptr;
    }
  return object;
}

} // namespace tbx::runtime
