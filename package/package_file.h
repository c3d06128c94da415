// Package file: parts with checksums behind a table. Everything is found damaged before any of it is used,
// and constants are used where the file is mapped.
//
// The file: a header, a table of parts, the parts, each at a multiple of 64 bytes (constants: of 4096). The
// header's checksum covers itself and the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/tensor_pool.h"
#include "package/package_index.h"

namespace tbx::package {

/// Raised with every change of what a file holds or means.
inline constexpr uint32_t kVersion = 15;

enum class PartKind : uint32_t {
  index,
  constants,
  plan,
  object,
  programs,
  values,
  binary, ///< machine code of a device
  source  ///< text of kernels of a device
};
const char* name_of(PartKind kind);

/// Collects the parts of a package; equal ones are held once.
class PackageWriter {
public:
  int32_t add(PartKind kind, std::string bytes);
  TensorPool& tensors() { return tensors_; }
  /// Writes all of it: whole or not at all. Throws BackendError. Returns the size.
  int64_t write(const std::filesystem::path& file, const PackageIndex& index) const;
  int64_t bytes_of(PartKind kind) const;

private:
  struct Part {
    PartKind kind;
    std::string bytes;
  };
  std::vector<Part> parts_;
  TensorPool tensors_;
};

/// Whether they begin as a package does.
bool is_package(std::span<const std::byte> bytes);

/// An open package, all of whose parts are as they were written.
class Package {
public:
  /// Throws Error (model) that says what is wrong.
  static std::shared_ptr<const Package> open(const std::filesystem::path& file);

  const PackageIndex& index() const { return index_; }
  /// Throws Error (model) where there is no such part.
  std::span<const std::byte> part(int32_t number, PartKind kind) const;
  TensorMemory tensors() const;

private:
  struct Entry {
    PartKind kind;
    std::span<const std::byte> bytes;
  };
  std::shared_ptr<const void> mapping_;
  std::vector<Entry> parts_;
  std::span<const std::byte> constants_;
  PackageIndex index_;
};

} // namespace tbx::package
