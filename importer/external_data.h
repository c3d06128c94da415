// External tensor data: files beside the model, opened under strict path rules and mapped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "importer/model_bytes.h"

namespace tbx::importer {

class SeenFiles;

/// The folder that external data may be read from, and the files mapped so far.
///
/// A location is relative, without `..`. It may pass through links as long as the file it ends at lies below
/// the folder in which the model was named, or below the folder of the real model file (the Hugging Face
/// cache holds snapshots/x/model.onnx -> blobs/1 and snapshots/x/model.onnx_data -> blobs/2). All checks are
/// made on the open descriptor. With `strict_links` there must be no symbolic link on the way, and the file
/// must have one hard link only.
class ExternalData {
public:
  /// No folder: every external reference is an error.
  ExternalData() = default;
  /// `seen` is asked whether files are those of before; none: nothing is.
  static ExternalData beside_model(const std::filesystem::path& model_file, bool strict_links,
                                   std::shared_ptr<SeenFiles> seen = {});
  static ExternalData below(const std::filesystem::path& folder, bool strict_links,
                            std::shared_ptr<SeenFiles> seen = {});

  struct Slice {
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> owner;
    std::string location;            ///< of the file
    std::span<const std::byte> file; ///< all of it
  };
  using Entries = std::vector<std::pair<std::string, std::string>>;
  /// The bytes that TensorProto.external_data's key-value `entries` describe, which must be `expected_bytes`
  /// many.
  Slice read(const std::string& tensor, const Entries& entries, int64_t expected_bytes);
  /// The whole file at a location, mapped, under the same rules.
  std::shared_ptr<const MappedFile> file(const std::string& location) {
    return file_at(location, location).mapped;
  }
  /// The same, to be read in order: what is read so takes no memory.
  ModelBytes bytes(const std::string& location) const { return {open(location, location), location}; }

private:
  struct File {
    std::shared_ptr<const MappedFile> mapped;
    std::string sha1; ///< empty: not asked for yet
  };
  File& file_at(const std::string& tensor, const std::string& location);
  FileDescriptor open(const std::string& tensor, const std::string& location) const;

  std::filesystem::path folder_;      ///< as named; empty: no external data
  std::filesystem::path real_folder_; ///< canonical folder of the real model file
  bool strict_links_ = false;
  std::shared_ptr<SeenFiles> seen_;
  std::map<std::string, File> files_;
};

} // namespace tbx::importer
