#include "importer/seen_files.h"

#include <algorithm>

#include "base/error.h"
#include "base/shown.h"

namespace tbx::importer {

void SeenFiles::check(const std::string& role, const std::string& name, const struct stat& facts) {
  const Facts now{facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec};
  const std::lock_guard lock(mutex_);
  const auto [it, first] = seen_.try_emplace(role, now);
  if (!first && it->second != now)
    throw Error(ErrorKind::model,
                fmt::format("the file {} is not what it was when the model was loaded", shown(name)),
                "the model is read again for shapes or values that it was not compiled for: leave its files "
                "as they are while a session of it lives, or load it anew");
}

std::vector<std::string> SeenFiles::locations() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> all;
  for (const auto& [role, facts] : seen_)
    if (!role.empty()) all.push_back(role);
  return all;
}

bool SeenFiles::has(const struct stat& facts) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(seen_.begin(), seen_.end(), [&](const auto& entry) {
    return entry.second.device == facts.st_dev && entry.second.number == facts.st_ino;
  });
}

bool SeenFiles::has_same_as(const SeenFiles& other) const {
  const std::scoped_lock lock(mutex_, other.mutex_);
  return seen_ == other.seen_;
}

bool SeenFiles::changed_lately(int64_t seconds) const {
  const std::lock_guard lock(mutex_);
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return std::any_of(seen_.begin(), seen_.end(),
                     [&](const auto& entry) { return entry.second.changed_s > now.tv_sec - seconds; });
}

} // namespace tbx::importer
