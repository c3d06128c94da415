// ModelBytes: the bytes of a model, in a file or in memory, read in order and in pieces.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"

namespace tbx::importer {

class SeenFiles;

/// A file is read, not mapped: one that somebody shortens meanwhile is an error, and later nothing to us.
class ModelBytes {
public:
  explicit ModelBytes(std::span<const std::byte> bytes) : size_(bytes.size()), some_(bytes) {}
  /// ModelError when the file cannot be opened, is no regular file, or is not the one of `seen` (may be
  /// null). Links are followed: the user named it.
  ModelBytes(const std::filesystem::path& file, SeenFiles* seen);
  /// An open regular file. `name` is for messages.
  ModelBytes(FileDescriptor file, std::string name);

  size_t size() const { return size_; }
  /// Of the file, now; nothing of bytes in memory. ModelError where the system does not tell.
  std::optional<struct stat> facts() const;
  /// Bytes from `at` < size() on, at least one, valid until the next call. ModelError when the file is
  /// shorter by now.
  std::span<const std::byte> from(size_t at) {
    if (at - begin_ >= some_.size()) fill(at);
    return some_.subspan(at - begin_);
  }
  /// A copy of `bytes` > 0 bytes from `at` on, all of them below size(): 64-byte aligned memory of its own,
  /// which goes back to the system with its last owner.
  std::shared_ptr<const std::byte> copy(size_t at, size_t bytes);

private:
  void fill(size_t at);
  void read(size_t at, std::byte* to, size_t bytes);

  FileDescriptor file_{-1}; ///< none: all is in memory
  std::string name_;        ///< of the file, for messages
  size_t size_ = 0;
  std::span<const std::byte> some_;     ///< of all bytes
  size_t begin_ = 0;                    ///< where those begin
  std::unique_ptr<std::byte[]> window_; ///< they are in, of a file
};

} // namespace tbx::importer
