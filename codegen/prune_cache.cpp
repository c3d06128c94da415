// The kernel cache's limit: objects and plans that were used least recently go first.
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <ctime>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "codegen/kernel_cache.h"

namespace tbx::codegen {
namespace {

constexpr int64_t kDefaultLimit = int64_t{1} << 30;
/// Another process that found an object in the cache is about to open it. One that takes longer than this
/// compiles again.
constexpr time_t kUsedJustNow = 60;
/// Nothing is written for that long: its process has died.
constexpr time_t kAbandoned = 3600;

bool is_hash(std::string_view text, size_t size) {
  return text.size() == size && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

struct Entry {
  std::string name;
  int64_t bytes = 0;
  time_t used = 0;
};

/// Objects, those of versions before seals with their check files, and what was left by a compilation that
/// failed: nothing else in the folder, which may be one of the user's, is ours to remove.
bool is_old(std::string_view name) {
  const size_t dot = std::min(name.find('.'), name.size());
  return is_hash(name.substr(0, dot), kKeyLength) &&
         (name.substr(dot) == ".so" || name.substr(dot) == ".sum");
}
bool is_failed(std::string_view name) {
  constexpr std::string_view kBegin = "failed-", kEnd = ".cpp";
  return name.starts_with(kBegin) && name.ends_with(kEnd) && name.size() == 32 + kBegin.size() + kEnd.size();
}

} // namespace

bool is_object_name(std::string_view name) {
  return name.size() == kKeyLength + 1 + kCompilerLength + 3 && name.ends_with(".so") &&
         name[kKeyLength] == '-' && is_hash(name.substr(0, kKeyLength), kKeyLength) &&
         is_hash(name.substr(kKeyLength + 1, kCompilerLength), kCompilerLength);
}

bool is_plan_name(std::string_view name) {
  return name.size() == kKeyLength + 5 && name.ends_with(".plan") &&
         is_hash(name.substr(0, kKeyLength), kKeyLength);
}

int64_t cache_limit() {
  const char* variable = std::getenv("TBX_CACHE_LIMIT");
  std::string_view text = variable ? variable : "";
  if (text.empty()) return kDefaultLimit;
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string unit(end, text.data() + text.size());
  for (char& c : unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  int shift = unit.empty() || unit == "b" ? 0
              : unit == "kb"              ? 10
              : unit == "mb"              ? 20
              : unit == "gb"              ? 30
                                          : -1;
  if (error != std::errc() || value < 0 || shift < 0 || value > (INT64_MAX >> shift))
    throw_backend_error("TBX_CACHE_LIMIT is '{}': expected bytes, or a size like 512mb or 2gb; 0: no limit",
                        text);
  return value << shift;
}

void KernelCache::prune(const std::set<std::string>& keep) const {
  if (limit_ == 0) return;
  const int at = openat(at_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* folder = at < 0 ? nullptr : fdopendir(at);
  if (!folder) {
    if (at >= 0) close(at);
    return;
  }
  const time_t now = time(nullptr);
  std::vector<Entry> entries;
  int64_t total = 0;
  while (const dirent* file = readdir(folder)) {
    const std::string_view name = file->d_name;
    struct stat st {};
    if (fstatat(at, file->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode)) continue;
    if (name.starts_with(".tmp-")) {
      if (now - st.st_mtime > kAbandoned) unlinkat(at, file->d_name, 0);
    } else if (is_object_name(name) || is_plan_name(name) || is_old(name) || is_failed(name)) {
      entries.push_back({std::string(name), st.st_size, st.st_mtime});
      total += st.st_size;
    }
  }
  if (total > limit_) {
    // Some room is left, for the next models not to come here again at once.
    const int64_t wanted = limit_ - limit_ / 10;
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::tie(a.used, a.name) < std::tie(b.used, b.name);
    });
    for (const Entry& e : entries) {
      if (total <= wanted || now - e.used < kUsedJustNow) break;
      if (is_object_name(e.name) && keep.contains(e.name.substr(0, kKeyLength))) continue;
      unlinkat(at, e.name.c_str(), 0);
      total -= e.bytes;
    }
  }
  closedir(folder);
}

} // namespace tbx::codegen
