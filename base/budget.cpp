#include "base/budget.h"

#include <algorithm>

#include "base/error.h"

namespace tbx {
namespace {
thread_local std::shared_ptr<Budget> current;
thread_local LoadScope* current_load = nullptr;
} // namespace

std::string how_to_raise(std::string option) {
  std::string flag = option;
  std::replace(flag.begin(), flag.end(), '_', '-');
  if (flag.ends_with("-ms")) flag.resize(flag.size() - 3);
  return fmt::format("raise {} (tbx: --{}) if the model is right", option, flag);
}

void Budget::take(int64_t bytes) {
  const int64_t used = used_ += bytes;
  if (used > limit_) {
    used_ -= bytes;
    throw Error(
        ErrorKind::model,
        fmt::format("loading the model takes more than the limit of {} bytes for what is made of it", limit_),
        how_to_raise("load_memory"));
  }
  for (int64_t peak = peak_; used > peak && !peak_.compare_exchange_weak(peak, used);) {
  }
}

const std::shared_ptr<Budget>& current_budget() { return current; }

LoadScope::LoadScope(int64_t limit_ms, int64_t memory)
    : stop_{.limit_ms = limit_ms,
            .start = std::chrono::steady_clock::now(),
            .what = "loading the model",
            .option = "load_time_limit_ms"},
      stop_scope_(stop_), budget_(std::make_shared<Budget>(memory > 0 ? memory : INT64_MAX)),
      outer_budget_(std::move(current)), outer_(current_load) {
  current = budget_;
  current_load = this;
}

LoadScope::~LoadScope() {
  current = std::move(outer_budget_);
  current_load = outer_;
}

int64_t waited_outside_ms() {
  if (!current_load) return 0;
  return std::chrono::duration_cast<std::chrono::milliseconds>(current_load->outside_).count();
}

OutsideOfLoad::~OutsideOfLoad() {
  if (!current_load) return;
  const auto waited = std::chrono::steady_clock::now() - start_;
  current_load->stop_.start += waited;
  current_load->outside_ += waited;
}

} // namespace tbx
