#include "extern_kernels/onednn/primitives.h"

#include <tbb/task_arena.h>

#include <bit>
#include <list>
#include <mutex>
#include <unordered_map>

namespace tbx::extern_kernels::onednn {

Key& Key::add(std::span<const int64_t> list) {
  add(static_cast<int64_t>(list.size()));
  values_.insert(values_.end(), list.begin(), list.end());
  return *this;
}

Key& Key::add(const TensorRef& t) { return add(static_cast<int64_t>(t.dtype)).add(t.sizes).add(t.strides); }

Key& Key::add(const std::vector<PostOp>& ops) {
  add(static_cast<int64_t>(ops.size()));
  for (const PostOp& op : ops)
    add(op.kind).add(std::bit_cast<int32_t>(op.alpha)).add(std::bit_cast<int32_t>(op.beta)).add(op.operand);
  return *this;
}

size_t Key::hash() const {
  uint64_t h = 0xcbf29ce484222325;
  for (int64_t v : values_) h = (h ^ static_cast<uint64_t>(v)) * 0x9e3779b97f4a7c15, h ^= h >> 29;
  return h;
}

namespace {

struct HashOfKey {
  size_t operator()(const Key& k) const { return k.hash(); }
};

/// The most recently used ones.
template <class Value> class Shared {
public:
  std::shared_ptr<const Value> find(const Key& key) {
    std::lock_guard lock(mutex_);
    auto it = places_.find(key);
    if (it == places_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, it->second);
    return it->second->second;
  }

  /// What was there first wins.
  std::shared_ptr<const Value> insert(Key key, std::shared_ptr<const Value> made) {
    std::lock_guard lock(mutex_);
    auto [it, is_new] = places_.try_emplace(key);
    if (!is_new) return it->second->second;
    entries_.emplace_front(std::move(key), std::move(made));
    it->second = entries_.begin();
    if (entries_.size() > kLimit) {
      places_.erase(entries_.back().first);
      entries_.pop_back();
    }
    return it->second->second;
  }

private:
  static constexpr size_t kLimit = 1024;
  using Entry = std::pair<Key, std::shared_ptr<const Value>>;
  std::mutex mutex_;
  std::list<Entry> entries_;
  std::unordered_map<Key, typename std::list<Entry>::iterator, HashOfKey> places_;
};

template <class Value>
std::shared_ptr<const Value> find_or_make(Shared<Value>& shared, Key key,
                                          const std::function<Value()>& make) {
  key.add(tbb::this_task_arena::max_concurrency());
  if (auto found = shared.find(key)) return found;
  return shared.insert(std::move(key), std::make_shared<const Value>(make()));
}

} // namespace

std::shared_ptr<const Primitive> shared_primitive(Key key, const std::function<Primitive()>& make) {
  static auto* primitives = new Shared<Primitive>; // sessions may outlive static objects
  return find_or_make(*primitives, std::move(key), make);
}

std::shared_ptr<const Implementation> shared_answer(Key key, const std::function<Implementation()>& ask) {
  static auto* answers = new Shared<Implementation>;
  return find_or_make(*answers, std::move(key), ask);
}

} // namespace tbx::extern_kernels::onednn
