#include "importer/model_bytes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/budget.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/shown.h"
#include "importer/seen_files.h"

namespace tbx::importer {

ModelBytes::ModelBytes(const std::filesystem::path& file, SeenFiles* seen) : name_(file.native()) {
  TBX_MODEL(name_.find('\0') == std::string::npos, "the name of the model file {} has a zero byte in it",
            shown(name_));
  // A FIFO or terminal must not hold us up.
  file_ = FileDescriptor(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file_) throw_model_error("cannot open the model file {}: {}", shown(name_), std::strerror(errno));
  const struct stat facts = *this->facts();
  if (!S_ISREG(facts.st_mode))
    throw Error(ErrorKind::model, fmt::format("{} is not a regular file", shown(name_)),
                "write the model to one, or give its bytes");
  if (seen) seen->check("", name_, facts);
  size_ = static_cast<size_t>(facts.st_size);
}

ModelBytes::ModelBytes(FileDescriptor file, std::string name)
    : file_(std::move(file)), name_(std::move(name)), size_(static_cast<size_t>(facts()->st_size)) {}

std::optional<struct stat> ModelBytes::facts() const {
  if (!file_) return std::nullopt;
  struct stat facts;
  if (::fstat(file_.get(), &facts) != 0)
    throw_model_error("cannot read the facts of {}: {}", shown(name_), std::strerror(errno));
  return facts;
}

void ModelBytes::read(size_t at, std::byte* to, size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = ::pread(file_.get(), to, bytes, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_model_error("cannot read the model file {}: {}", shown(name_), std::strerror(errno));
    TBX_MODEL(got > 0, "the model file {} became shorter while it was read", shown(name_));
    at += static_cast<size_t>(got);
    to += got;
    bytes -= static_cast<size_t>(got);
  }
}

void ModelBytes::fill(size_t at) {
  TBX_INTERNAL(at < size_ && file_);
  constexpr size_t kWindow = 64 << 10; // of what lies between weights most is less
  if (!window_) window_ = std::make_unique_for_overwrite<std::byte[]>(kWindow);
  some_ = {};
  const size_t bytes = std::min(kWindow, size_ - at);
  read(at, window_.get(), bytes);
  begin_ = at;
  some_ = {window_.get(), bytes};
}

std::shared_ptr<const std::byte> ModelBytes::copy(size_t at, size_t bytes) {
  TBX_INTERNAL(bytes > 0 && at < size_ && bytes <= size_ - at);
  constexpr size_t kOwnPages = 256 << 10; // a process has some tens of thousands of mappings
  const auto size = static_cast<int64_t>(bytes);
  std::shared_ptr<void> block =
      bytes < kOwnPages ? allocate_aligned(size) : allocate_pages(size, Pages::huge);
  auto* to = static_cast<std::byte*>(block.get());
  constexpr size_t kPiece = 16 << 20; // what is read before the time is looked at
  for (size_t done = 0; done < bytes; done += kPiece) {
    check_stop();
    const size_t piece = std::min(kPiece, bytes - done);
    if (file_)
      read(at + done, to + done, piece);
    else
      std::memcpy(to + done, some_.data() + at + done, piece);
  }
  return {std::move(block), to};
}

} // namespace tbx::importer
