// SeenFiles: the files that a model was read from, which must be the same when it is read again.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <ctime>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace tbx::importer {

/// Sessions read their model again for what a run brings: from another file than at first they would compute
/// with parts of two models. A file is known by device, number, size and time of its last change. May be
/// asked by several threads.
class SeenFiles {
public:
  /// The open file `role` ("": the model, else a location of external data) with these facts. The first one
  /// of a role is noted; ModelError when a later one is another, or was changed. `name` is for the message.
  void check(const std::string& role, const std::string& name, const struct stat& facts);
  /// Locations of the external data so far.
  std::vector<std::string> locations() const;
  /// The file with these facts is one of them, changed or not.
  bool has(const struct stat& facts) const;
  /// The same files, unchanged, for the same roles.
  bool has_same_as(const SeenFiles& other) const;
  /// A file was changed less than `seconds` ago: the clock of the files may not tell a change after this.
  bool changed_lately(int64_t seconds) const;

private:
  struct Facts {
    dev_t device;
    ino_t number;
    off_t size;
    int64_t changed_s, changed_ns;
    bool operator==(const Facts&) const = default;
  };
  mutable std::mutex mutex_;
  std::map<std::string, Facts> seen_;
};

} // namespace tbx::importer
