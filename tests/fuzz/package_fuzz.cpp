// Any bytes as a package, loaded and run in the evaluator: outputs, or an error that is not ours. The mutator
// knows the file: parts are changed and their checksums made right again. Native kernels are code, which no
// loader can check: packages of the corpus have none (save a session with compile = false), and what has some
// is not run.
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "package/package_file.h"
#include "tensorbox/tensorbox.h"

namespace {

using namespace tbx;

constexpr int64_t kMaxElements = 1 << 14, kUnknownSize = 3;

/// The file as package/package_file.cpp writes it.
struct Header {
  char magic[8];
  uint32_t version, parts;
  uint64_t bytes, checksum;
};
struct Entry {
  uint32_t kind, unused;
  uint64_t offset, size, checksum;
};
constexpr uint32_t kConstants = 1, kObject = 3;
constexpr uint64_t kPage = 4096, kAlign = 64;

struct Part {
  uint32_t kind;
  std::string bytes;
};

std::optional<std::vector<Part>> parts_of(const std::string& file) {
  Header h;
  if (file.size() < sizeof h) return std::nullopt;
  std::memcpy(&h, file.data(), sizeof h);
  if (h.parts == 0 || h.parts > 1000 || file.size() < sizeof h + h.parts * sizeof(Entry)) return std::nullopt;
  std::vector<Part> parts;
  for (uint32_t i = 0; i < h.parts; ++i) {
    Entry e;
    std::memcpy(&e, file.data() + sizeof h + i * sizeof e, sizeof e);
    if (e.offset > file.size() || e.size > file.size() - e.offset) return std::nullopt;
    parts.push_back({e.kind, file.substr(e.offset, e.size)});
  }
  return parts;
}

/// The parts as a file with right checksums.
std::string file_of(const std::string& old, const std::vector<Part>& parts) {
  Header h;
  std::memcpy(&h, old.data(), sizeof h);
  h.version = package::kVersion; // a package of an older corpus would be refused for that alone
  h.parts = static_cast<uint32_t>(parts.size());
  std::string file(sizeof h + parts.size() * sizeof(Entry), 0);
  std::vector<Entry> table;
  for (const Part& p : parts) {
    const uint64_t align = p.kind == kConstants ? kPage : kAlign;
    file.resize((file.size() + align - 1) / align * align);
    table.push_back({p.kind, 0, file.size(), p.bytes.size(), XXH3_64bits(p.bytes.data(), p.bytes.size())});
    file += p.bytes;
  }
  h.bytes = file.size();
  h.checksum = XXH3_64bits_withSeed(&h, offsetof(Header, checksum),
                                    XXH3_64bits(table.data(), table.size() * sizeof(Entry)));
  std::memcpy(file.data(), &h, sizeof h);
  std::memcpy(file.data() + sizeof h, table.data(), table.size() * sizeof(Entry));
  return file;
}

/// A number of the part becomes another one, or a piece of it goes, comes twice, or moves.
void change(std::string& bytes, std::mt19937_64& random) {
  auto below = [&](size_t n) { return n ? random() % n : 0; };
  if (bytes.empty()) return;
  const size_t at = below(bytes.size());
  const int64_t awkward[] = {0,  1,  -1, 2,       3,         4,         7,         8,         16,       64,
                             99, -7, 24, 1 << 20, INT32_MAX, 1LL << 31, 1LL << 40, INT64_MAX, INT64_MIN};
  const size_t widths[] = {1, 4, 8};
  switch (below(6)) {
  case 0: bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8))); return;
  case 1: {
    const size_t n = std::min(widths[below(3)], bytes.size() - at);
    const int64_t v = awkward[below(std::size(awkward))];
    std::memcpy(bytes.data() + at, &v, n);
    return;
  }
  case 2: bytes[at] = static_cast<char>(bytes[at] + (below(2) ? 1 : -1)); return;
  case 3: { // over another piece
    const size_t from = below(bytes.size()), most = std::min(bytes.size() - at, bytes.size() - from);
    std::memmove(bytes.data() + at, bytes.data() + from, 1 + below(std::min<size_t>(most, 64)));
    return;
  }
  case 4: bytes.erase(at, 1 + below(32)); return;
  default: bytes.insert(at, bytes.substr(below(bytes.size()), 1 + below(32)));
  }
}

/// The dimensions of an input, with small numbers for what a run decides; nullopt when it is no small tensor.
std::optional<std::vector<int64_t>> dims_of(const TensorInfo& info) {
  std::vector<int64_t> dims;
  int64_t n = 1;
  for (const std::string& d : info.dims) {
    char* end = nullptr;
    const long long v = std::strtoll(d.c_str(), &end, 10);
    dims.push_back(!d.empty() && *end == 0 ? v : kUnknownSize);
    if (dims.back() < 0 || dims.back() > kMaxElements || (n *= dims.back()) > kMaxElements)
      return std::nullopt;
  }
  return dims;
}

void stop_at_defect(const Failure& failure) {
  if (failure.kind != Failure::internal_error) return;
  std::fprintf(stderr, "%s\n", failure.message.c_str());
  std::abort();
}

/// A file without a name.
class MemoryFile {
public:
  MemoryFile(const uint8_t* data, size_t size) : fd_(::memfd_create("package", MFD_CLOEXEC)) {
    if (fd_ < 0 || ::write(fd_, data, size) != static_cast<ssize_t>(size)) std::abort();
  }
  MemoryFile(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(fd_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

private:
  int fd_;
};

} // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  const std::string old(reinterpret_cast<const char*>(data), size);
  auto parts = parts_of(old);
  if (seed % 16 == 0 || !parts) return LLVMFuzzerMutate(data, size, max_size);
  std::mt19937_64 random(seed);
  for (size_t n = 1 + random() % 3; n > 0; --n) change((*parts)[random() % parts->size()].bytes, random);
  const std::string made = file_of(old, *parts);
  if (made.size() > max_size) return size;
  std::memcpy(data, made.data(), made.size());
  return made.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (const auto parts = parts_of({reinterpret_cast<const char*>(data), size}))
    for (const Part& p : *parts)
      if (p.kind == kObject) return 0;
  const MemoryFile file(data, size);
  auto session = Session::load(file.path(),
                               {.threads = 1, .evaluate = true, .max_memory = 1 << 26, .time_limit_ms = 500});
  if (!session.ok()) {
    stop_at_defect(session.error());
    return 0;
  }
  const Session s = std::move(session).value();
  std::vector<std::vector<uint8_t>> memory;
  Session::Inputs inputs;
  for (const TensorInfo& info : s.inputs()) {
    auto dims = dims_of(info);
    if (!dims || info.type == 0 || info.type == 8) return 0;
    std::vector<uint8_t>& bytes = memory.emplace_back(16 * kMaxElements); // elements of any type
    for (size_t i = 0; i < bytes.size(); i += 8) bytes[i] = size ? data[(i / 8) % size] % 4 : 0;
    inputs.emplace_back(info.name, TensorView{bytes.data(), info.type, std::move(*dims)});
  }
  for (int turn = 0; turn < 3; ++turn) {
    auto outputs = s.run(inputs);
    if (!outputs.ok()) stop_at_defect(outputs.error());
    if (s.state_length() == 0) break; // else another run goes on behind what it left
  }
  return 0;
}
