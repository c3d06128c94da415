#include "base/error.h"

#include "base/printable.h"

namespace tbx {

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
  full_ += message_;
  if (!hint_.empty()) full_ += " (" + hint_ + ")";
  full_ = printable(full_, Lines::kept);
}

void throw_internal_error(const char* condition, const char* file, int line) {
  throw Error(ErrorKind::internal, fmt::format("check failed: {} at {}:{}", condition, file, line),
              "this is a defect of tensorbox, please report it with the model");
}

} // namespace tbx
