// The cache's files: objects with a seal at their end, and the key of the seals.
#include "codegen/kernel_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/memory.h"
#include "base/tensor_pool.h"
#include "codegen/work_folder.h"

namespace tbx::codegen {

namespace fs = std::filesystem;

namespace {

constexpr char kKeyFile[] = "seal.key";
constexpr std::string_view kMagic = "TBXSEAL1"; ///< behind the hash
constexpr size_t kSeal = sizeof(HashTag) + kMagic.size();
constexpr char kPlan[] = ".plan";
constexpr off_t kMaxObject = off_t{1} << 30;

std::string variable(const char* name) {
  const char* v = std::getenv(name);
  return v ? v : "";
}

/// Descriptors 0 to 2 may be closed here: what is printed must not go into a file of the cache.
int above_standard(int fd) {
  if (fd < 0 || fd > 2) return fd;
  const int moved = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  close(fd);
  return moved;
}

/// Where nobody named a folder: in the user's cache. Empty: a service without a home.
fs::path users_folder() {
  if (std::string dir = variable("XDG_CACHE_HOME"); !dir.empty())
    return fs::path(dir) / "tensorbox" / "kernels";
  if (std::string home = variable("HOME"); !home.empty())
    return fs::path(home) / ".cache" / "tensorbox" / "kernels";
  return {};
}

fs::path named_folder(const Toolchain& toolchain) {
  if (!toolchain.cache_dir.empty()) return toolchain.cache_dir;
  return variable("TBX_CACHE_DIR");
}

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

/// Of an object of this name: another one's, renamed, has another.
HashTag seal_of(const HashKey& key, const std::string& name, std::string_view object) {
  std::string all = name + '\n';
  all += object;
  return keyed_hash(key, bytes_of(all));
}

bool write_all(int fd, const std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

/// From the beginning on.
bool read_at(int fd, char* to, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got = pread(fd, to + done, bytes - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += static_cast<size_t>(got);
  }
  return true;
}

std::string seal_text(const HashTag& tag) {
  std::string seal(reinterpret_cast<const char*>(tag.data()), tag.size());
  seal += kMagic;
  return seal;
}

} // namespace

FileDescriptor open_private(int folder, const char* name) {
  // Nobody waits for the other end of a FIFO.
  FileDescriptor file(above_standard(openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)));
  struct stat st {};
  const bool ours = file && fstat(file.get(), &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
                    (st.st_mode & 022) == 0;
  return ours ? std::move(file) : FileDescriptor();
}

std::optional<std::string> read_all(int fd) {
  struct stat st {};
  if (fstat(fd, &st) != 0 || st.st_size > kMaxObject) return std::nullopt;
  std::string bytes(static_cast<size_t>(st.st_size), '\0');
  return read_at(fd, bytes.data(), bytes.size()) ? std::optional(std::move(bytes)) : std::nullopt;
}

fs::path temporary_folder() {
  for (const std::string& dir :
       {variable("TMPDIR"), std::string("/tmp"), std::string("/var/tmp"), std::string("/dev/shm")}) {
    struct stat st {};
    if (!dir.empty() && stat(dir.c_str(), &st) == 0 && S_ISDIR(st.st_mode) &&
        access(dir.c_str(), W_OK | X_OK) == 0)
      return dir;
  }
  return {};
}

KernelCache::KernelCache(const Toolchain& toolchain) : limit_(cache_limit()) {
  std::vector<fs::path> candidates;
  if (fs::path named = named_folder(toolchain); !named.empty())
    candidates.push_back(named);
  else if (fs::path users = users_folder(); !users.empty())
    candidates.push_back(users);
  if (fs::path temporary = temporary_folder(); !temporary.empty())
    candidates.push_back(temporary / fmt::format("tensorbox-{}", geteuid()));
  std::string wrong;
  for (const fs::path& folder : candidates) {
    const std::string why = use(folder);
    if (why.empty()) {
      if (!wrong.empty() && toolchain.log)
        toolchain.log(fmt::format("{}; kernels are kept in {}", wrong, folder_.string()));
      return;
    }
    wrong += (wrong.empty() ? "" : "; ") + why;
  }
  throw_backend_error(
      "no folder for compiled kernels: {}; set TBX_CACHE_DIR to a folder of your own that can be "
      "written to",
      wrong.empty() ? "there is neither a home nor a folder for temporary files" : wrong);
}

std::string KernelCache::use(const fs::path& folder) {
  std::error_code ec;
  folder_ = fs::absolute(folder, ec);
  if (ec) folder_ = folder;
  if (folder_.has_parent_path())
    fs::create_directories(folder_.parent_path(), ec); // mkdir says what is wrong
  if (mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST)
    return fmt::format("cannot make the kernel cache {}: {}", folder_.string(), std::strerror(errno));
  at_ =
      FileDescriptor(above_standard(open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)));
  struct stat st {};
  if (!at_ && (errno == ENOTDIR || errno == ELOOP))
    return fs::is_symlink(folder_, ec)
               ? fmt::format("the kernel cache {} is a symbolic link, which is not followed "
                             "(name the folder that it leads to)",
                             folder_.string())
               : fmt::format("the kernel cache {} is not a folder", folder_.string());
  if (!at_ || fstat(at_.get(), &st) != 0)
    return fmt::format("cannot open the kernel cache {}: {}", folder_.string(), std::strerror(errno));
  if (st.st_uid != geteuid())
    return fmt::format("the kernel cache {} belongs to user {}", folder_.string(), st.st_uid);
  if (st.st_mode & 077)
    return fmt::format("the kernel cache {} is open to other users (mode {:o}; chmod 700 closes it)",
                       folder_.string(), st.st_mode & 0777);
  can_write_ = faccessat(at_.get(), ".", W_OK | X_OK, AT_EACCESS) == 0;
  return read_key();
}

bool KernelCache::has_key() {
  const FileDescriptor file = open_private(at_.get(), kKeyFile);
  struct stat st {};
  if (!file || fstat(file.get(), &st) != 0 || (st.st_mode & 077) != 0) return false;
  std::optional<std::string> bytes = read_all(file.get());
  if (!bytes || bytes->size() != key_.size()) return false;
  std::memcpy(key_.data(), bytes->data(), key_.size());
  return true;
}

std::string KernelCache::read_key() {
  if (has_key()) return {};
  // None, or not one to be trusted: what was sealed with it is made again. One process at a time replaces it,
  // or it would be another's good one; the lock ends with the descriptor.
  const FileDescriptor lock(above_standard(openat(at_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  while (lock && flock(lock.get(), LOCK_EX) != 0 && errno == EINTR) {
  }
  if (has_key()) return {};
  std::array<char, 8> random{};
  std::string key(key_.size(), '\0');
  bool made = getrandom(key.data(), key.size(), 0) == static_cast<ssize_t>(key.size()) &&
              getrandom(random.data(), random.size(), 0) == static_cast<ssize_t>(random.size());
  const std::string name = fmt::format(".tmp-key-{:016x}", XXH3_64bits(random.data(), random.size()));
  if (made) {
    const FileDescriptor file(above_standard(
        openat(at_.get(), name.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600)));
    made = file && write_all(file.get(), key) && renameat(at_.get(), name.c_str(), at_.get(), kKeyFile) == 0;
  }
  if (made && has_key()) return {};
  const int error = errno;
  unlinkat(at_.get(), name.c_str(), 0);
  return fmt::format("cannot write the key of the kernel cache {}: {}", folder_.string(),
                     std::strerror(error));
}

fs::path KernelCache::path_of(const std::string& key, const std::string& compiler) const {
  return folder_ / fmt::format("{}-{}.so", key, compiler);
}

/// Without a compiler: the name of the object that was used last.
std::string KernelCache::name_of(const std::string& key, const std::string& compiler) {
  if (!compiler.empty()) return fmt::format("{}-{}.so", key, compiler);
  if (!any_) {
    any_.emplace();
    std::map<std::string, timespec> used;
    const int own = openat(at_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR* entries = own < 0 ? nullptr : fdopendir(own);
    if (!entries && own >= 0) close(own);
    while (const dirent* e = entries ? readdir(entries) : nullptr) {
      const std::string name = e->d_name;
      struct stat st {};
      if (!is_object_name(name) || fstatat(own, e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
      const std::string of = name.substr(0, kKeyLength);
      auto [it, fresh] = used.try_emplace(of, st.st_mtim);
      const auto older = [](timespec a, timespec b) {
        return std::pair(a.tv_sec, a.tv_nsec) < std::pair(b.tv_sec, b.tv_nsec);
      };
      if (!fresh && !older(it->second, st.st_mtim)) continue;
      it->second = st.st_mtim;
      (*any_)[of] = name;
    }
    if (entries) closedir(entries);
  }
  auto it = any_->find(key);
  return it == any_->end() ? "" : it->second;
}

FileDescriptor KernelCache::find(const std::string& key, const std::string& compiler) {
  const std::string name = name_of(key, compiler);
  if (name.empty()) return FileDescriptor();
  FileDescriptor file = open_private(at_.get(), name.c_str());
  if (!file) return file;
  std::optional<std::string> bytes = read_all(file.get());
  if (!bytes) return FileDescriptor();
  const std::string_view all = *bytes;
  if (all.size() > kSeal && all.ends_with(kMagic)) {
    const size_t size = all.size() - kSeal;
    const HashTag expected = seal_of(key_, name, all.substr(0, size));
    if (std::memcmp(expected.data(), all.data() + size, expected.size()) == 0) {
      futimens(file.get(), nullptr); // used now, for prune
      return file;
    }
  }
  unlinkat(at_.get(), name.c_str(), 0); // damaged, or sealed with another key
  return FileDescriptor();
}

std::optional<std::string> object_bytes(int fd) {
  std::optional<std::string> bytes = read_all(fd);
  if (bytes && bytes->size() > kSeal && bytes->ends_with(kMagic)) bytes->resize(bytes->size() - kSeal);
  return bytes;
}

std::optional<std::string> KernelCache::read(const std::string& key, const std::string& compiler) {
  const FileDescriptor file = find(key, compiler);
  return file ? object_bytes(file.get()) : std::nullopt;
}

void KernelCache::evict(const std::string& key, const std::string& compiler) {
  if (const std::string name = name_of(key, compiler); !name.empty()) unlinkat(at_.get(), name.c_str(), 0);
}

std::string KernelCache::insert(const std::string& key, const std::string& compiler, int folder,
                                const char* object) const {
  const std::string name = fmt::format("{}-{}.so", key, compiler);
  const FileDescriptor file(
      above_standard(openat(folder, object, O_RDWR | O_APPEND | O_NOFOLLOW | O_CLOEXEC)));
  std::optional<std::string> bytes = file ? read_all(file.get()) : std::nullopt;
  if (bytes && fchmod(file.get(), 0700) == 0 &&
      write_all(file.get(), seal_text(seal_of(key_, name, *bytes))) && move_in(folder, object, name))
    return {};
  return fmt::format("cannot write to the kernel cache {}: {}", folder_.string(), std::strerror(errno));
}

/// Puts a file in place under its name.
bool KernelCache::move_in(int folder, const char* file, const std::string& name) const {
  if (renameat(folder, file, at_.get(), name.c_str()) == 0) return true;
  // An empty folder in its place goes; what somebody else put there stays.
  return errno == EISDIR && unlinkat(at_.get(), name.c_str(), AT_REMOVEDIR) == 0 &&
         renameat(folder, file, at_.get(), name.c_str()) == 0;
}

std::shared_ptr<const std::byte> KernelCache::find_plan(const std::string& key, size_t& size,
                                                        std::string& wrong) {
  const std::string name = key + kPlan, hashed_first = name + '\n';
  const FileDescriptor file = open_private(at_.get(), name.c_str());
  struct stat st {};
  if (!file || fstat(file.get(), &st) != 0 || st.st_size > kMaxObject) return nullptr;
  // The name lies right before the contents, which are aligned: the seal is of both.
  static_assert(kKeyLength + sizeof kPlan <= kTensorAlignment);
  const auto bytes = static_cast<size_t>(st.st_size);
  const std::shared_ptr<void> block = allocate_aligned(static_cast<int64_t>(kTensorAlignment + bytes));
  char* const contents = static_cast<char*>(block.get()) + kTensorAlignment;
  std::memcpy(contents - hashed_first.size(), hashed_first.data(), hashed_first.size());
  const bool whole = bytes > kSeal && read_at(file.get(), contents, bytes);
  if (whole && std::string_view(contents, bytes).ends_with(kMagic)) {
    size = bytes - kSeal;
    const HashTag expected = keyed_hash(
        key_, std::as_bytes(std::span(contents - hashed_first.size(), hashed_first.size() + size)));
    if (std::memcmp(expected.data(), contents + size, expected.size()) == 0) {
      futimens(file.get(), nullptr); // used now, for prune
      return {block, reinterpret_cast<const std::byte*>(contents)};
    }
  }
  wrong = fmt::format("the kept plan {} is damaged", (folder_ / name).string());
  evict_plan(key);
  return nullptr;
}

std::string KernelCache::insert_plan(const std::string& key, std::string bytes) const {
  const std::string name = key + kPlan;
  try {
    const WorkFolder work(folder_);
    const FileDescriptor file(above_standard(
        openat(work.descriptor(), "plan", O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600)));
    bytes += seal_text(seal_of(key_, name, bytes));
    if (file && write_all(file.get(), bytes) && move_in(work.descriptor(), "plan", name)) {
      prune({});
      return {};
    }
  } catch (const Error& e) {
    return e.message();
  }
  return fmt::format("cannot write to the kernel cache {}: {}", folder_.string(), std::strerror(errno));
}

uint64_t KernelCache::plan_seed() const {
  constexpr std::string_view kFor = "keys of kept plans";
  const HashTag tag = keyed_hash(key_, std::as_bytes(std::span(kFor)));
  uint64_t seed;
  std::memcpy(&seed, tag.data(), sizeof seed);
  return seed;
}

void KernelCache::evict_plan(const std::string& key) const { unlinkat(at_.get(), (key + kPlan).c_str(), 0); }

} // namespace tbx::codegen
