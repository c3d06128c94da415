// MappedFile: the bytes of a regular file, mapped read-only into memory.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace tbx {

/// Stays mapped as long as an owner lives; constants of a Graph are views of it.
class MappedFile {
public:
  /// ModelError when the file cannot be opened or is not a regular file. Links are followed: the user named
  /// it.
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path& path);
  /// Maps an open descriptor (which stays the caller's). `name` is for messages.
  static std::shared_ptr<const MappedFile> map(int fd, const std::string& name);

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

private:
  MappedFile(const std::byte* data, size_t size) : data_(data), size_(size) {}
  const std::byte* data_;
  size_t size_;
};

/// Closes a file descriptor at the end of its scope.
class FileDescriptor {
public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  ~FileDescriptor();
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

private:
  int fd_;
};

} // namespace tbx
