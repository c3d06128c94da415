// A folder for the files of one compilation, which ends with it: also where its process is killed, then by
// the next.
#pragma once

#include <filesystem>
#include <string>

namespace tbx::codegen {

class WorkFolder {
public:
  /// In `parent`, after those that dead processes left there were removed. Throws BackendError where it
  /// cannot be made.
  explicit WorkFolder(const std::filesystem::path& parent);
  WorkFolder(const WorkFolder&) = delete;
  ~WorkFolder();

  const std::filesystem::path& path() const { return path_; }
  /// Of the folder itself: its files are opened below it, whatever its path means by then.
  int descriptor() const { return fd_; }

private:
  std::filesystem::path path_;
  int fd_ = -1;
};

} // namespace tbx::codegen
