// VariantCache: what was compiled for the kinds of inputs that runs bring. Compiles for new kinds outside of
// its lock: runs of other kinds go on meanwhile, runs of the same kind wait for that one compilation.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lowering/demand.h"

namespace tbx::driver {

/// `Knowledge` is what compilations taught: which inputs' sizes and elements the code depends on. It is a
/// value and only grows.
template <class Variant, class Knowledge> class VariantCache {
public:
  using VariantPtr = std::shared_ptr<const Variant>;
  using Compiled = std::variant<VariantPtr, lowering::Demand>;
  /// What is to be compiled. Requests of equal keys ask for the same.
  struct Request {
    std::string key;
    std::function<Compiled()> compile;
  };

  explicit VariantCache(size_t max_variants)
      : max_variants_(max_variants), state_(std::make_shared<State>()) {}

  /// The variant of the newest ones for which `fits(knowledge, variant)`; else what `request(knowledge)`
  /// compiles. Where that asks for more, `learn(knowledge, demand)` adds to the knowledge, and all is tried
  /// again; when it says that this is nothing new (false) the reason of the demand is thrown.
  template <class Fits, class MakeRequest, class Learn>
  VariantPtr get(Fits fits, MakeRequest request, Learn learn) {
    for (;;) {
      std::shared_ptr<const State> state = snapshot();
      if (VariantPtr found = find(*state, fits)) return found;
      Request asked = request(state->knowledge);
      std::promise<VariantPtr> promise;
      {
        std::unique_lock lock(mutex_);
        if (state_ != state) continue; // it may be there by now
        auto [it, mine] = pending_.try_emplace(asked.key);
        if (!mine) {
          std::shared_future<VariantPtr> other = it->second;
          lock.unlock();
          if (VariantPtr made = other.get()) return made;
          continue; // the other one failed, or learnt something
        }
        it->second = promise.get_future().share();
      }
      try {
        Compiled compiled = asked.compile();
        VariantPtr made;
        if (auto* demand = std::get_if<lowering::Demand>(&compiled)) {
          const bool news =
              this->learn([&](Knowledge& k) { return learn(k, *demand); }) || knows_more_than(*state);
          if (!news) throw Error(demand->reason);
        } else {
          made = std::get<VariantPtr>(compiled);
          add(made);
        }
        finish(asked.key, promise, made);
        if (made) return made;
      } catch (...) {
        finish(asked.key, promise, nullptr); // who waits tries for itself and has an error of its own
        throw;
      }
    }
  }

  void add(VariantPtr variant) {
    std::shared_ptr<const State> last; // what is thrown away ends outside of the lock
    std::lock_guard lock(mutex_);
    auto next = std::make_shared<State>(*state_);
    next->slots.insert(next->slots.begin(), std::make_shared<Slot>(std::move(variant), ++clock_));
    if (next->slots.size() > max_variants_)
      next->slots.erase(std::min_element(next->slots.begin() + 1, next->slots.end(),
                                         [](const auto& a, const auto& b) { return a->used < b->used; }));
    last = std::exchange(state_, std::move(next));
  }

  /// `next` takes the place of `old`, where that is still kept.
  void replace(const VariantPtr& old, VariantPtr next) {
    std::shared_ptr<const State> last;
    std::lock_guard lock(mutex_);
    auto changed = std::make_shared<State>(*state_);
    for (auto& slot : changed->slots)
      if (slot->variant == old) slot = std::make_shared<Slot>(std::move(next), slot->used);
    last = std::exchange(state_, std::move(changed));
  }

  /// `change(knowledge)` returns whether it added anything.
  template <class Change> bool learn(Change change) {
    std::lock_guard lock(mutex_);
    auto next = std::make_shared<State>(*state_);
    if (!change(next->knowledge)) return false;
    ++next->lessons;
    state_ = std::move(next);
    return true;
  }

  Knowledge knowledge() const { return snapshot()->knowledge; }
  /// All that was compiled and is kept, newest first.
  std::vector<VariantPtr> variants() const {
    std::vector<VariantPtr> all;
    for (const auto& slot : snapshot()->slots) all.push_back(slot->variant);
    return all;
  }
  /// The one used last, or nullptr.
  VariantPtr latest() const {
    auto state = snapshot();
    auto it = std::max_element(state->slots.begin(), state->slots.end(),
                               [](const auto& a, const auto& b) { return a->used < b->used; });
    return it == state->slots.end() ? nullptr : (*it)->variant;
  }

private:
  struct Slot {
    Slot(VariantPtr v, uint64_t now) : variant(std::move(v)), used(now) {}
    const VariantPtr variant;
    std::atomic<uint64_t> used;
  };
  /// Replaced, never changed: who reads needs no lock.
  struct State {
    std::vector<std::shared_ptr<Slot>> slots;
    Knowledge knowledge;
    int lessons = 0; ///< how often the knowledge grew
  };

  std::shared_ptr<const State> snapshot() const {
    std::lock_guard lock(mutex_);
    return state_;
  }

  bool knows_more_than(const State& then) const { return snapshot()->lessons != then.lessons; }

  template <class Fits> VariantPtr find(const State& state, Fits& fits) {
    for (const auto& slot : state.slots)
      if (fits(state.knowledge, *slot->variant)) {
        slot->used = ++clock_;
        return slot->variant;
      }
    return nullptr;
  }

  void finish(const std::string& key, std::promise<VariantPtr>& promise, VariantPtr made) {
    {
      std::lock_guard lock(mutex_);
      pending_.erase(key);
    }
    promise.set_value(std::move(made));
  }

  const size_t max_variants_;
  std::atomic<uint64_t> clock_{0};
  mutable std::mutex mutex_; ///< never held while anything is compiled
  std::shared_ptr<const State> state_;
  std::map<std::string, std::shared_future<VariantPtr>> pending_; ///< what is being compiled
};

} // namespace tbx::driver
