#include "package/package_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/archive.h"
#include "base/mapped_file.h"
#include "base/rounding.h"
#include "base/shown.h"
#include "base/write_file.h"
#include "package/package_fields.h"

namespace tbx::package {
namespace {

constexpr std::array<char, 8> kMagic = {'T', 'B', 'X', 'P', 'K', 'G', '\r', '\n'};
constexpr uint64_t kAlign = kTensorAlignment, kPage = 4096;
constexpr uint32_t kMostParts = 1 << 20;

struct Header {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion, parts = 0;
  uint64_t bytes = 0;    ///< of the whole file
  uint64_t checksum = 0; ///< of the table, and under it of what is before this
};
struct PartEntry {
  uint32_t kind = 0, unused = 0;
  uint64_t offset = 0, size = 0, checksum = 0;
};

uint64_t checksum_of(const Header& h, std::span<const PartEntry> table) {
  const uint64_t of_table = XXH3_64bits(table.data(), table.size_bytes());
  return XXH3_64bits_withSeed(&h, offsetof(Header, checksum), of_table);
}

uint64_t checksum_of(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

uint64_t checksum_of(const TensorPool& pool) {
  const std::unique_ptr<XXH3_state_t, void (*)(XXH3_state_t*)> state(
      XXH3_createState(), [](XXH3_state_t* s) { XXH3_freeState(s); });
  XXH3_64bits_reset(state.get());
  pool.for_each_piece(
      [&](std::span<const std::byte> piece) { XXH3_64bits_update(state.get(), piece.data(), piece.size()); });
  return XXH3_64bits_digest(state.get());
}

[[noreturn]] void damaged(const std::string& what) {
  throw Error(ErrorKind::model, "the package is damaged: " + what, "copy or compile it again");
}

/// Callers look types up by their numbers.
void check_signature(const PackageIndex& index) {
  for (const auto* entries : {&index.inputs, &index.outputs, &index.overridable_initializers})
    for (const TensorInfo& info : *entries)
      if (info.type != 0 && !dtype_from_number(info.type))
        damaged(fmt::format("'{}' is of element type {}, which does not exist", info.name, info.type));
}

template <class T> T read_at(std::span<const std::byte> bytes, uint64_t offset) {
  T v;
  std::memcpy(static_cast<void*>(&v), bytes.data() + offset, sizeof v);
  return v;
}

} // namespace

bool is_package(std::span<const std::byte> bytes) {
  return bytes.size() >= kMagic.size() && std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

const char* name_of(PartKind kind) {
  switch (kind) {
  case PartKind::index: return "index";
  case PartKind::constants: return "constants";
  case PartKind::plan: return "plan";
  case PartKind::object: return "native kernels";
  case PartKind::programs: return "kernels for the evaluator";
  case PartKind::values: return "plan of values";
  case PartKind::binary: return "kernels of a GPU";
  case PartKind::source: return "text of a GPU's kernels";
  }
  return "?";
}

int32_t PackageWriter::add(PartKind kind, std::string bytes) {
  for (size_t i = 0; i < parts_.size(); ++i)
    if (parts_[i].kind == kind && parts_[i].bytes == bytes) return static_cast<int32_t>(i);
  parts_.push_back({kind, std::move(bytes)});
  return static_cast<int32_t>(parts_.size()) - 1;
}

int64_t PackageWriter::bytes_of(PartKind kind) const {
  if (kind == PartKind::constants) return static_cast<int64_t>(tensors_.bytes());
  int64_t n = 0;
  for (const Part& p : parts_)
    if (p.kind == kind) n += static_cast<int64_t>(p.bytes.size());
  return n;
}

int64_t PackageWriter::write(const std::filesystem::path& file, const PackageIndex& index) const {
  TensorPool& tensors = const_cast<TensorPool&>(tensors_); // of the defaults, which the index has
  const std::string index_bytes = archive::write(index, tensors);
  std::vector<PartEntry> table;
  Header h;
  h.parts = static_cast<uint32_t>(parts_.size() + 2);
  uint64_t at = sizeof(Header) + h.parts * sizeof(PartEntry);
  auto place = [&](PartKind kind, uint64_t size, uint64_t checksum, uint64_t align) {
    at = round_up(at, align);
    table.push_back({static_cast<uint32_t>(kind), 0, at, size, checksum});
    at += size;
  };
  for (const Part& p : parts_)
    place(p.kind, p.bytes.size(), checksum_of(std::as_bytes(std::span(p.bytes))), kAlign);
  place(PartKind::index, index_bytes.size(), checksum_of(std::as_bytes(std::span(index_bytes))), kAlign);
  place(PartKind::constants, tensors.bytes(), checksum_of(tensors), kPage);
  h.bytes = at;
  h.checksum = checksum_of(h, table);

  write_whole(file, [&](int fd) {
    auto put = [&](const void* from, uint64_t size, uint64_t offset) {
      return write_at(fd, static_cast<const std::byte*>(from), static_cast<int64_t>(size),
                      static_cast<int64_t>(offset));
    };
    bool good = put(&h, sizeof h, 0) && put(table.data(), table.size() * sizeof(PartEntry), sizeof h);
    for (size_t i = 0; i < parts_.size(); ++i)
      good = good && put(parts_[i].bytes.data(), parts_[i].bytes.size(), table[i].offset);
    good = good && put(index_bytes.data(), index_bytes.size(), table[parts_.size()].offset);
    uint64_t offset = table.back().offset;
    tensors.for_each_piece([&](std::span<const std::byte> piece) {
      good = good && put(piece.data(), piece.size(), offset);
      offset += piece.size();
    });
    return good && ::ftruncate(fd, static_cast<off_t>(h.bytes)) == 0; // the last part may be empty
  });
  return static_cast<int64_t>(h.bytes);
}

std::shared_ptr<const Package> Package::open(const std::filesystem::path& file) {
  const auto mapped = MappedFile::open(file);
  const std::span<const std::byte> bytes = mapped->bytes();
  if (!is_package(bytes)) throw_model_error("{} is no package", shown(file.native()));
  const size_t start = offsetof(Header, parts);
  Header h;
  if (bytes.size() < start) damaged("it is cut off in its header");
  std::memcpy(static_cast<void*>(&h), bytes.data(), start);
  if (h.version != kVersion)
    throw Error(ErrorKind::model,
                fmt::format("the package has version {} of the format, this tensorbox ({}) reads version {}",
                            h.version, TBX_VERSION, kVersion),
                "compile it again with this tensorbox");
  if (bytes.size() < sizeof h) damaged("it is cut off in its header");
  h = read_at<Header>(bytes, 0);
  const uint64_t table_bytes = uint64_t{h.parts} * sizeof(PartEntry);
  if (h.parts > kMostParts || bytes.size() - sizeof h < table_bytes)
    damaged("it is cut off in its table of parts");
  std::vector<PartEntry> table(h.parts);
  if (!table.empty()) std::memcpy(static_cast<void*>(table.data()), bytes.data() + sizeof h, table_bytes);
  if (checksum_of(h, table) != h.checksum) damaged("the checksum of its table of parts is wrong");
  if (h.bytes != bytes.size())
    damaged(fmt::format("it has {} bytes, {} were written", bytes.size(), h.bytes));

  auto package = std::make_shared<Package>();
  package->mapping_ = mapped;
  std::span<const std::byte> index;
  for (size_t i = 0; i < table.size(); ++i) {
    const PartEntry& p = table[i];
    const auto kind = static_cast<PartKind>(p.kind);
    if (p.kind > static_cast<uint32_t>(PartKind::source)) damaged(fmt::format("part {} is of no kind", i));
    const std::string name = fmt::format("part {} ({})", i, name_of(kind));
    if (p.offset % kAlign != 0 || p.offset > bytes.size() || p.size > bytes.size() - p.offset)
      damaged(name + " lies outside of the file");
    const std::span<const std::byte> part = bytes.subspan(p.offset, p.size);
    if (checksum_of(part) != p.checksum) damaged("the checksum of " + name + " is wrong");
    package->parts_.push_back({kind, part});
    if (kind == PartKind::index) index = part;
    if (kind == PartKind::constants) package->constants_ = part;
  }
  package->index_ = archive::read<PackageIndex>(index, package->tensors());
  check_signature(package->index_);
  return package;
}

std::span<const std::byte> Package::part(int32_t number, PartKind kind) const {
  if (number < 0 || static_cast<size_t>(number) >= parts_.size() ||
      parts_[static_cast<size_t>(number)].kind != kind)
    damaged(fmt::format("it has no part {} of kind {}", number, name_of(kind)));
  return parts_[static_cast<size_t>(number)].bytes;
}

TensorMemory Package::tensors() const { return {constants_, mapping_, true}; }

} // namespace tbx::package

namespace tbx {

bool is_package(const std::string& file) {
  std::array<char, package::kMagic.size()> start{};
  // A pipe that nobody writes to is no package: who opens the model then says what it is.
  const FileDescriptor fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  return fd && ::pread(fd.get(), start.data(), start.size(), 0) == static_cast<ssize_t>(start.size()) &&
         start == package::kMagic;
}

} // namespace tbx
