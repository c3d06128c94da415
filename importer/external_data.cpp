#include "importer/external_data.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/sha1.h"
#include "graph/names.h"
#include "importer/seen_files.h"

namespace tbx::importer {
namespace {

namespace fs = std::filesystem;
constexpr int kOpenFlags =
    O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY; // a FIFO or terminal must not hold us up

fs::path canonical_or_empty(const fs::path& path) {
  std::error_code failed;
  fs::path result = fs::canonical(path.empty() ? fs::path(".") : path, failed);
  return failed ? fs::path() : result;
}

bool is_below(const fs::path& file, const fs::path& folder) {
  if (folder.empty()) return false;
  std::string prefix = folder.native();
  if (prefix.back() != '/') prefix += '/';
  return file.native().starts_with(prefix);
}

/// The kernel's own name of an open file: no later change of links can make it lie.
fs::path path_of(int fd) {
  std::error_code failed;
  fs::path path = fs::read_symlink("/proc/self/fd/" + std::to_string(fd), failed);
  return failed ? fs::path() : path;
}

void check_location(const std::string& tensor, const std::string& location) {
  auto refuse = [&](const char* why) {
    throw Error(ErrorKind::model,
                fmt::format("tensor {}: external data location {} {}", shown(tensor), shown(location), why),
                "external data must lie in the model's own folder or below it");
  };
  if (location.empty()) refuse("is empty");
  if (location.find('\0') != std::string::npos) refuse("contains a NUL character");
  fs::path path(location);
  if (path.is_absolute()) refuse("is an absolute path");
  for (const fs::path& part : path)
    if (part == "..") refuse("contains '..'");
}

int64_t parse_size(const std::string& tensor, const char* key, const std::string& text) {
  uint64_t value = 0;
  auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || status != std::errc() || end != text.data() + text.size() || value > INT64_MAX)
    throw_model_error("tensor {}: external data {} {} is not a valid size", shown(tensor), key, shown(text));
  return static_cast<int64_t>(value);
}

} // namespace

ExternalData ExternalData::beside_model(const fs::path& model_file, bool strict_links,
                                        std::shared_ptr<SeenFiles> seen) {
  ExternalData result = below(model_file.parent_path(), strict_links, std::move(seen));
  result.real_folder_ = canonical_or_empty(model_file).parent_path();
  return result;
}

ExternalData ExternalData::below(const fs::path& folder, bool strict_links, std::shared_ptr<SeenFiles> seen) {
  ExternalData result;
  result.folder_ = folder.empty() ? fs::path(".") : folder;
  result.strict_links_ = strict_links;
  result.seen_ = std::move(seen);
  return result;
}

ExternalData::Slice ExternalData::read(const std::string& tensor, const Entries& entries,
                                       int64_t expected_bytes) {
  std::optional<std::string> location, offset, length, checksum;
  for (const auto& [key, value] : entries) {
    auto* slot = key == "location"   ? &location
                 : key == "offset"   ? &offset
                 : key == "length"   ? &length
                 : key == "checksum" ? &checksum
                                     : nullptr;
    TBX_MODEL(slot, "tensor {}: unknown external data key {}", shown(tensor), shown(key));
    TBX_MODEL(!*slot, "tensor {}: external data key {} is given twice", shown(tensor), shown(key));
    *slot = value;
  }
  TBX_MODEL(location, "tensor {}: external data has no location", shown(tensor));
  if (folder_.empty())
    throw Error(ErrorKind::model,
                fmt::format("tensor {} is external data in {}, but the model was given as bytes",
                            shown(tensor), shown(*location)),
                "load the model from its file, or give its folder as external_data_dir");
  int64_t start = offset ? parse_size(tensor, "offset", *offset) : 0;
  if (length) {
    int64_t bytes = parse_size(tensor, "length", *length);
    TBX_MODEL(bytes == expected_bytes, "tensor {}: external data has {} bytes, its type and shape need {}",
              shown(tensor), bytes, expected_bytes);
  }

  File& file = file_at(tensor, *location);
  const std::span<const std::byte> bytes = file.mapped->bytes();
  auto size = static_cast<int64_t>(bytes.size());
  TBX_MODEL(start <= size && expected_bytes <= size - start,
            "tensor {}: external data at offset {} with {} bytes goes past the end of {} ({} bytes)",
            shown(tensor), start, expected_bytes, shown(*location), size);
  if (checksum) { // of the whole file
    std::string wanted = *checksum;
    std::transform(wanted.begin(), wanted.end(), wanted.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (file.sha1.empty()) file.sha1 = sha1_hex(bytes);
    if (wanted != file.sha1)
      throw Error(
          ErrorKind::model,
          fmt::format("tensor {}: the SHA-1 of external data file {} is {}, its checksum in the model is {}",
                      shown(tensor), shown(*location), file.sha1, shown(*checksum)),
          "the file is not the one that the model was saved with");
  }
  return {bytes.subspan(start, expected_bytes), file.mapped, *location, bytes};
}

ExternalData::File& ExternalData::file_at(const std::string& tensor, const std::string& location) {
  File& file = files_[location];
  if (!file.mapped) file.mapped = MappedFile::map(open(tensor, location).get(), location);
  return file;
}

FileDescriptor ExternalData::open(const std::string& tensor, const std::string& location) const {
  check_location(tensor, location);
  auto refuse = [&](const std::string& why) {
    throw Error(ErrorKind::model,
                fmt::format("tensor {}: external data file {} {}", shown(tensor), shown(location), why),
                "external data must be a regular file in the model's own folder or below it");
  };
  FileDescriptor folder(::open(folder_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder)
    refuse(fmt::format("cannot be reached, its folder cannot be opened: {}", std::strerror(errno)));

  // The kernel resolves the path and refuses to leave the folder, whatever happens to links meanwhile.
  open_how how{};
  how.flags = kOpenFlags;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | (strict_links_ ? RESOLVE_NO_SYMLINKS : 0);
  FileDescriptor file(
      static_cast<int>(::syscall(SYS_openat2, folder.get(), location.c_str(), &how, sizeof how)));
  if (!file) {
    // It leaves the folder, or the kernel (or a sandbox) has no openat2. Open it and see where that led.
    if (errno == ELOOP && strict_links_)
      refuse("is a symbolic link, or lies behind one, which strict_links forbids");
    bool leaves = errno == EXDEV;
    if (!leaves && errno != ENOSYS && errno != EPERM)
      refuse(fmt::format("cannot be opened: {}", std::strerror(errno)));
    fs::path named = canonical_or_empty(folder_);
    auto allowed = [&](const fs::path& path) {
      if (strict_links_) return path == (named / location).lexically_normal();
      return is_below(path, named) || is_below(path, real_folder_);
    };
    if (!allowed(canonical_or_empty(folder_ / location)))
      refuse(strict_links_ ? "is a link, which strict_links forbids, or is missing"
                           : "is a link that leaves the model's folder, or is missing");
    file = FileDescriptor(::openat(folder.get(), location.c_str(), kOpenFlags));
    if (!file) refuse(fmt::format("cannot be opened: {}", std::strerror(errno)));
    if (!allowed(path_of(file.get()))) refuse("is a link that leaves the model's folder");
  }

  struct stat facts;
  if (::fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) refuse("is not a regular file");
  if (strict_links_ && facts.st_nlink != 1) refuse("has several hard links, which strict_links forbids");
  if (seen_) seen_->check(location, location, facts);
  return file;
}

} // namespace tbx::importer
