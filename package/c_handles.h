// The handles of the C interface (include/tensorbox/c.h), for the two places that make sessions.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "tensorbox/c.h"
#include "tensorbox/tensorbox.h"

struct tbx_error {
  tbx::Failure failure;
};

struct tbx_session {
  explicit tbx_session(tbx::Session session);
  tbx::Session session;
  std::vector<std::vector<const char*>> input_dims, output_dims;
  std::string model_version; ///< empty: none
};

struct tbx_cancellation {
  std::atomic<bool> cancelled{false};
};

namespace tbx::package {

/// ModelError.
[[noreturn]] void refuse(const std::string& why);
void set_error(tbx_error** error, Failure failure);
/// `f()`; `otherwise` with *error where it throws.
template <class T, class F> T caught(tbx_error** error, T otherwise, F&& f) noexcept {
  try {
    return f();
  } catch (const Exception& e) {
    set_error(error, e.failure);
  } catch (const std::bad_alloc&) {
    set_error(error, {Failure::model_error, "ModelError: out of memory"});
  } catch (const std::exception& e) {
    set_error(error, {Failure::internal_error, std::string("InternalError: ") + e.what()});
  }
  return otherwise;
}
/// Of the caller's memory; elements that are strings are copied into `strings`. ModelError where the tensor
/// is none; `name` is that of the input.
TensorView checked_view(const tbx_tensor& tensor, const char* name, std::vector<std::string>& strings);
/// The session that `make` gives; nullptr with *error where it fails. Throws nothing.
tbx_session* session_or_error(const std::function<Result<Session>()>& make, tbx_error** error);
/// What the caller's struct has of the options; the others are 0. One without its size would have none of
/// them, `untrusted` among them.
template <class Options> Options known_options(const Options* given) {
  if (given && given->size < sizeof given->size)
    refuse("the size of the options is not set (to their sizeof)");
  Options o{};
  if (given) std::memcpy(&o, given, std::min(given->size, sizeof o));
  return o;
}
/// "a,b" -> a, b; none where it is NULL or empty.
std::vector<std::string> listed(const char* names);
std::function<void(const std::string&)> log_of(const tbx_options& options);

} // namespace tbx::package
