// Plans that cuDNN has for a graph of operations: found, measured, kept and run.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda/stream.h"
#include "device/device.h"
#include "extern_kernels/cuda/dnn_graph.h"
#include "extern_kernels/cuda/measure.h"

namespace tbx::extern_kernels::cuda::dnn {

/// The library's state for one GPU.
struct Owner {
  Handle handle = nullptr; ///< of runs. Not for two threads at a time
  std::mutex mutex;        ///< of the handle

  /// A handle to make plans with, for one thread. Several make plans at the same time, each with its own.
  /// Where `most` are lent it waits, or has none. To make a handle takes 20 ms, one after the other.
  class Lent {
  public:
    enum class Wait : uint8_t { yes, no };
    Lent(Owner& owner, int most, Wait wait = Wait::yes);
    ~Lent();
    Lent(const Lent&) = delete;
    Lent& operator=(const Lent&) = delete;
    Handle get() const { return handle_; }

  private:
    Owner& owner_;
    Handle handle_ = nullptr;
  };

  static constexpr int kForFoundPlans = 2;     ///< a plan takes milliseconds
  static constexpr int kForCompiledPlans = 24; ///< a plan takes half a second and more

private:
  std::mutex of_others_;
  std::condition_variable given_back_;
  std::vector<Handle> others_;
  int made_ = 0;
};

/// That of the context, made once per process.
std::shared_ptr<Owner> owner_of(const std::shared_ptr<const device::cuda::ContextOwner>& context);

/// What plans may do with their operands.
enum class Arithmetic : uint8_t {
  free,   ///< half types: the library's choice
  tf32,   ///< float32 on tensor cores that round it to TF32, not to half types, and nothing transformed
  strict, ///< float32 as it is: no tensor cores, no transformed arithmetic
};

/// Which plans may be taken.
struct PlanWish {
  Arithmetic arithmetic = Arithmetic::free;
  bool runtime_compiled = false; ///< those that are compiled now, too: up to seconds
  size_t most = 6;               ///< plans to make
};

/// The plans for a graph on one GPU, best first as the library sees it; only the best one, where an earlier
/// process has measured and kept it.
class Plans {
public:
  Plans(std::shared_ptr<const device::cuda::ContextOwner> context, std::shared_ptr<Graph> graph,
        const PlanWish& wish);
  bool empty() const { return plans_.empty() && !measured_; }
  int64_t workspace_bytes() const; ///< enough for every plan
  struct Addresses {
    std::vector<std::pair<int64_t, const void*>> of; ///< ids of tensors; scalars are floats of the host
    void* workspace = nullptr;
    int64_t workspace_bytes = 0; ///< plans that need more are passed over
    std::vector<Bytes> hot;      ///< read into the cache before each measurement
    /// A tensor that is read and written: measurements write elsewhere. -1: none.
    int64_t in_place = -1;
    size_t in_place_bytes = 0;
    /// Queues the same work in another way: measured beside the plans, and taken where it is faster. The
    /// addresses are those to take, also while it is measured.
    std::function<void(const Addresses&)> other;
    const char* other_name = "our own kernel";
  };
  /// Queues the work. The first time, outside of a graph that is recorded, the plans are measured. False, and
  /// nothing queued, where every plan needs a larger workspace.
  bool run(const device::Stream& stream, const Addresses& addresses);
  /// "engine 10, plan 1 of 6, measured"; "our own kernel, measured beside 4 plans".
  std::string description() const;

private:
  struct Plan {
    std::shared_ptr<Object> config;
    std::unique_ptr<Object> plan;
    int64_t engine = -1, workspace = 0;
    bool make(Handle handle);
    bool has_zeros() const; ///< its workspace may be of the memory that graphs clear ahead of their work
  };
  int most_handles() const {
    return wish_.runtime_compiled ? Owner::kForCompiledPlans : Owner::kForFoundPlans;
  }
  void make(std::span<Plan> plans, Handle handle);
  void collect(Handle handle);
  void collect(Object& graph, int mode, Handle handle);
  bool may_be_taken(Descriptor engine) const;
  void recall();
  void keep() const;
  void execute(size_t which, const Addresses& addresses, void* workspace);

  std::shared_ptr<const device::cuda::ContextOwner> context_;
  std::shared_ptr<Owner> owner_;
  std::shared_ptr<Graph> graph_;
  PlanWish wish_;
  std::string problem_; ///< what answers are kept for
  std::vector<Plan> plans_;
  mutable std::mutex mutex_;
  std::optional<size_t> measured_; ///< as many as there are plans: the other kernel
  bool recalled_ = false;          ///< an earlier process measured it
  const char* other_name_ = "";
};

/// Plans, or why there are none.
struct Found {
  std::shared_ptr<Plans> plans;
  std::string refusal;
};

/// `describe` makes the graph; it may throw BackendError, which is a refusal.
Found find_plans(const std::shared_ptr<const device::cuda::ContextOwner>& context, const PlanWish& wish,
                 const std::function<std::shared_ptr<Graph>()>& describe);

/// What was found for the problems of one kind, kept to the end of the process. `Key` is all that plans
/// depend on but for the GPU. Plans of several problems may be made at the same time.
template <class Key> class PlanCache {
public:
  Found get(const std::shared_ptr<const device::cuda::ContextOwner>& context, const Key& key,
            const PlanWish& wish, const std::function<std::shared_ptr<Graph>()>& describe) {
    Entry* entry = nullptr;
    {
      std::scoped_lock lock(mutex_);
      entry = &entries_[{context->context(), key}];
    }
    std::scoped_lock lock(entry->mutex);
    if (!entry->found) entry->found = find_plans(context, wish, describe);
    return *entry->found;
  }

private:
  struct Entry {
    std::mutex mutex;
    std::optional<Found> found;
  };
  std::mutex mutex_;
  std::map<std::pair<device::cuda::Context, Key>, Entry> entries_;
};

} // namespace tbx::extern_kernels::cuda::dnn
