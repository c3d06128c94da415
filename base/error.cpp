#include "base/error.h"

#include "base/printable.h"

namespace tbx {

namespace {

/// Bytes of a message: it may list names, which a model makes as many and as long as it likes.
constexpr size_t kMaxMessage = 32 << 10;

} // namespace

const char* name_of(ErrorKind kind) {
  switch (kind) {
  case ErrorKind::model: return "ModelError";
  case ErrorKind::unsupported: return "UnsupportedError";
  case ErrorKind::backend: return "BackendError";
  case ErrorKind::internal: return "InternalError";
  }
  return "InternalError";
}

Error::Error(ErrorKind kind, std::string message, std::string hint)
    : std::runtime_error(message), kind_(kind), message_(std::move(message)), hint_(std::move(hint)) {
  compose();
}

void Error::set_where(std::string where) {
  if (!where_.empty()) return;
  where_ = std::move(where);
  compose();
}

void Error::add_where(const std::string& where) {
  constexpr size_t kMaxText = 1000; // of deeply nested bodies the inner ones are named
  if (where.empty() || where == where_ || where_.size() > kMaxText) return;
  where_ += (where_.empty() ? "" : ", in ") + where;
  compose();
}

void Error::compose() {
  full_ = fmt::format("{}: ", name_of(kind_));
  if (!where_.empty()) full_ += where_ + ": ";
  full_ += std::string_view(message_).substr(0, kMaxMessage);
  if (message_.size() > kMaxMessage) full_ += "...";
  if (!hint_.empty()) full_ += " (" + hint_ + ")";
  // What a compiler says has lines of its own; else a line feed is one of a name.
  full_ = printable(full_, kind_ == ErrorKind::backend ? Lines::kept : Lines::escaped);
}

void throw_internal_error(const char* condition, const char* file, int line) {
  throw Error(ErrorKind::internal, fmt::format("check failed: {} at {}:{}", condition, file, line),
              "this is a defect of tensorbox, please report it with the model");
}

} // namespace tbx
