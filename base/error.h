// The four kinds of failure, and the exception that carries one with node, operator and way out.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace tbx {

enum class ErrorKind {
  model,       ///< the model (or the caller's input) is wrong
  unsupported, ///< valid ONNX that tensorbox does not handle yet
  backend,     ///< compiler, driver or library failed
  internal,    ///< a defect of tensorbox
};

/// "ModelError", "UnsupportedError", "BackendError", "InternalError".
const char* name_of(ErrorKind kind);

/// Thrown on the compile side; the public API turns it into a Result. `what()` is the full message.
class Error : public std::runtime_error {
public:
  Error(ErrorKind kind, std::string message, std::string hint = {});

  ErrorKind kind() const { return kind_; }
  const std::string& message() const { return message_; }
  const std::string& hint() const { return hint_; }
  const std::string& where() const { return where_; }

  /// Says which node failed ("node 'conv1' (Conv, opset 13)"); the first, innermost call wins.
  void set_where(std::string where);
  /// The same; where the node is known already, this is what it is part of: "node 'a' (Add, opset 9), in node
  /// 'y' (Scan, opset 9)".
  void add_where(const std::string& where);
  const char* what() const noexcept override { return full_.c_str(); }

private:
  void compose();
  ErrorKind kind_;
  std::string message_, hint_, where_, full_;
};

template <class... A> [[noreturn]] void throw_model_error(fmt::format_string<A...> f, A&&... a) {
  throw Error(ErrorKind::model, fmt::format(f, std::forward<A>(a)...));
}
template <class... A> [[noreturn]] void throw_unsupported(fmt::format_string<A...> f, A&&... a) {
  throw Error(ErrorKind::unsupported, fmt::format(f, std::forward<A>(a)...));
}
template <class... A> [[noreturn]] void throw_backend_error(fmt::format_string<A...> f, A&&... a) {
  throw Error(ErrorKind::backend, fmt::format(f, std::forward<A>(a)...));
}
[[noreturn]] void throw_internal_error(const char* condition, const char* file, int line);

} // namespace tbx

/// Guards an invariant of ours; always on. No input may reach it.
#define TBX_INTERNAL(cond) ((cond) ? void(0) : ::tbx::throw_internal_error(#cond, __FILE__, __LINE__))
/// Checks the model or the caller's input: TBX_MODEL(rank == 4, "rank is {}, expected 4", rank).
#define TBX_MODEL(cond, ...) ((cond) ? void(0) : ::tbx::throw_model_error(__VA_ARGS__))
