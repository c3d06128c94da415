#include "extern_kernels/onednn/prepared.h"

#include <tbb/task_arena.h>

#include <algorithm>

#include "base/error.h"
#include "base/spare_memory.h"
#include "extern_kernels/onednn/common.h"
#include "extern_kernels/scratch.h"

namespace tbx::extern_kernels::onednn {

using dnnl::memory;

Prepared::Prepared(std::vector<Stage> stages, const std::vector<int64_t>& buffers, std::vector<memory> owned,
                   std::string passed_over, std::shared_ptr<const ExternKernel> first)
    : stages_(std::move(stages)), owned_(std::move(owned)), passed_over_(std::move(passed_over)),
      first_(std::move(first)) {
  auto aligned = [](int64_t bytes) { return (bytes + 63) / 64 * 64; };
  for (int64_t bytes : buffers) {
    offsets_.push_back(scratchpad_at_);
    scratchpad_at_ += aligned(bytes);
  }
  bytes_ = scratchpad_at_;
  for (Stage& s : stages_) {
    const memory::desc scratchpad = s.primitive->scratchpad();
    if (scratchpad.get_size() == 0) continue;
    s.arguments.push_back({DNNL_ARG_SCRATCHPAD, scratchpad});
    bytes_ = std::max(bytes_, scratchpad_at_ + static_cast<int64_t>(scratchpad.get_size()));
  }
}

std::string Prepared::text() const {
  std::string s = first_ ? first_->description() : "";
  for (const Stage& stage : stages_)
    s += (s.empty() ? "" : ", then ") + stage.primitive->implementation.text();
  return passed_over_.empty() ? s : s + "; in one call: " + passed_over_;
}

std::unique_ptr<Prepared::Slot> Prepared::take() {
  {
    std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto slot = std::move(idle_.back());
      idle_.pop_back();
      return slot;
    }
  }
  require_spare_memory();
  auto slot = std::make_unique<Slot>();
  for (const Stage& s : stages_) {
    auto& memories = slot->memories.emplace_back();
    auto& args = slot->args.emplace_back();
    memories.reserve(s.arguments.size());
    for (const Argument& a : s.arguments) {
      memories.emplace_back(a.desc, cpu_engine(), a.fixed ? a.fixed : DNNL_MEMORY_NONE);
      args.push_back({a.id, memories.back().get()});
    }
  }
  return slot;
}

void Prepared::execute(const RunArgs& args) {
  if (first_) {
    const Scratch memory(first_->workspace_bytes(args.inputs, args.outputs));
    first_->run({args.inputs, args.outputs, nullptr, memory.data()});
  }
  auto slot = take();
  const Scratch scratch(bytes_);
  for (size_t s = 0; s < stages_.size(); ++s) {
    for (size_t i = 0; i < stages_[s].arguments.size(); ++i) {
      const Argument& a = stages_[s].arguments[i];
      if (a.fixed) continue;
      slot->memories[s][i].set_data_handle(a.input >= 0    ? args.inputs[a.input].data
                                           : a.output >= 0 ? args.outputs[a.output].data
                                           : a.own >= 0    ? scratch.data() + offsets_[a.own]
                                                           : scratch.data() + scratchpad_at_);
    }
    dnnl_status_t status =
        dnnl_primitive_execute(stages_[s].primitive->primitive.get(), this_thread_stream().get(),
                               static_cast<int>(slot->args[s].size()), slot->args[s].data());
    if (status != dnnl_success)
      throw_backend_error("oneDNN failed to execute (status {})", static_cast<int>(status));
  }
  std::lock_guard lock(mutex_);
  idle_.push_back(std::move(slot));
}

std::shared_ptr<Prepared> PreparedCache::get(std::span<const TensorRef> inputs,
                                             std::span<const TensorRef> outputs, const Make& make) {
  auto matches = [&](const std::vector<int64_t>& key) {
    size_t i = 0;
    auto same = [&](const TensorRef& t) {
      for (size_t d = 0; d < t.sizes.size(); ++d) {
        if (i + 2 > key.size() || key[i] != t.sizes[d] || key[i + 1] != t.strides[d]) return false;
        i += 2;
      }
      return true;
    };
    for (const TensorRef& t : inputs)
      if (!same(t)) return false;
    for (const TensorRef& t : outputs)
      if (!same(t)) return false;
    return i == key.size();
  };
  const int threads = tbb::this_task_arena::max_concurrency();
  {
    std::lock_guard lock(mutex_);
    for (auto it = entries_.begin(); it != entries_.end(); ++it)
      if (it->threads == threads && matches(it->key)) {
        if (it != entries_.begin()) entries_.splice(entries_.begin(), entries_, it);
        return it->prepared;
      }
  }
  std::vector<int64_t> key;
  auto add = [&](const TensorRef& t) {
    for (size_t d = 0; d < t.sizes.size(); ++d) {
      key.push_back(t.sizes[d]);
      key.push_back(t.strides[d]);
    }
  };
  for (const TensorRef& t : inputs) add(t);
  for (const TensorRef& t : outputs) add(t);
  require_spare_memory(); // for descriptors and the primitives that are made of them
  auto prepared = make();
  std::lock_guard lock(mutex_);
  entries_.push_front({threads, std::move(key), prepared});
  if (entries_.size() > kLimit) entries_.pop_back();
  implementations_.insert(prepared->text());
  return prepared;
}

std::vector<std::string> PreparedCache::implementations() const {
  std::lock_guard lock(mutex_);
  return {implementations_.begin(), implementations_.end()};
}

} // namespace tbx::extern_kernels::onednn
