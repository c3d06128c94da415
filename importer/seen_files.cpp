#include "importer/seen_files.h"

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

} // namespace tbx::importer
