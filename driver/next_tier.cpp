#include "driver/next_tier.h"

#include <utility>

#include "base/error.h"

namespace tbx::driver {

std::unique_ptr<NextTier> NextTier::start(Compiled::Later compile) {
  std::unique_ptr<NextTier> tier(new NextTier(std::move(compile)));
  return tier->begin() ? std::move(tier) : nullptr;
}

bool NextTier::begin() {
  task_ = BackgroundTask::start([this](const std::function<bool()>& stopped) { work(stopped); });
  return task_ != nullptr;
}

void NextTier::work(const std::function<bool()>& stopped) {
  auto outcome = std::make_unique<Outcome>();
  try {
    outcome->compiled = compile_(stopped, [&](const std::string& note) { outcome->notes.push_back(note); });
  } catch (const std::exception& e) {
    if (stopped()) return; // nobody asks
    outcome->failure = e.what();
  }
  const std::lock_guard lock(mutex_);
  outcome_ = std::move(outcome);
}

std::unique_ptr<NextTier::Outcome> NextTier::take() {
  const std::lock_guard lock(mutex_);
  if (task_ == nullptr || task_->is_lost()) begin();
  return std::move(outcome_);
}

void stop_compilers() noexcept { BackgroundTask::stop_all(); }

} // namespace tbx::driver
