#include "base/stop.h"

#include "base/budget.h"
#include "base/current_stop.h"
#include "base/error.h"

namespace tbx {
namespace {
thread_local const Stop* current = nullptr;
}

void Stop::check() const {
  if (cancel && cancel->load(std::memory_order_relaxed)) throw_model_error("{} was cancelled", what);
  if (asked && asked()) throw_model_error("{} was interrupted", what);
  if (limit_ms > 0 && std::chrono::steady_clock::now() - start > std::chrono::milliseconds(limit_ms))
    throw Error(ErrorKind::model, fmt::format("{} took longer than the limit of {} ms", what, limit_ms),
                how_to_raise(option));
}

StopScope::StopScope(const Stop& stop) : outer_(current) { current = &stop; }
StopScope::~StopScope() { current = outer_; }

const Stop* current_stop() { return current; }

void check_stop() {
  if (current) current->check();
}

} // namespace tbx
