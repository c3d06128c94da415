// Graphs of cuDNN's operations, and the plans that the library has for them.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
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
#include "extern_kernels/cuda/cudnn.h"
#include "extern_kernels/cuda/measure.h"

namespace tbx::extern_kernels::cuda::dnn {

/// The library's state for one GPU.
struct Owner {
  Handle handle = nullptr; ///< of runs. Not for two threads at a time
  std::mutex mutex;        ///< of the handle

  /// A handle to make plans with, for one thread. Several make plans at the same time, each with its own.
  /// Where all are lent it waits, or has none.
  class Lent {
  public:
    enum class Wait : uint8_t { yes, no };
    explicit Lent(Owner& owner, Wait wait = Wait::yes);
    ~Lent();
    Lent(const Lent&) = delete;
    Lent& operator=(const Lent&) = delete;
    Handle get() const { return handle_; }

  private:
    Owner& owner_;
    Handle handle_ = nullptr;
  };

private:
  static constexpr int kMostLent = 8;
  std::mutex of_others_;
  std::condition_variable given_back_;
  std::vector<Handle> others_;
  int made_ = 0;
};

/// That of the context, made once per process.
std::shared_ptr<Owner> owner_of(const std::shared_ptr<const device::cuda::ContextOwner>& context);

/// A descriptor of the backend interface. Throws BackendError with the library's reason.
class Object {
public:
  explicit Object(int type);
  ~Object();
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  void set(int attribute, int type, int64_t count, const void* values);
  template <class T> void set(int attribute, int type, const T& value) { set(attribute, type, 1, &value); }
  void set(int attribute, const Object& object);
  void set(int attribute, const std::vector<int64_t>& values);
  void finalize(const char* what);
  Descriptor get() const { return descriptor_; }

private:
  Descriptor descriptor_ = nullptr;
};

/// Builds a graph; everything made lives as long as the builder.
class Graph {
public:
  /// A tensor in memory. `align`: bytes that divide its address.
  Object& tensor(int64_t id, int type, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                 int64_t align);
  /// One that exists inside of the kernel only.
  Object& inner(int type, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides);
  /// A float that is given by value.
  Object& scalar(int64_t id);
  struct Convolution {
    bool backward = false; ///< by its gradient: x is smaller than y
    std::vector<int64_t> strides, dilations, pads_begin, pads_end;
    // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 sees a 0 here
    auto operator<=>(const Convolution&) const = default;
  };
  void convolution(const Convolution& c, const Object& x, const Object& w, const Object& y);
  void pointwise(int mode, const Object& x, const Object* b, const Object& y,
                 const Object* condition = nullptr, int precision = kF32, int64_t axis = -1);
  void reduction(int operation, const Object& x, const Object& y);
  void product(const Object& a, const Object& b, const Object& c);
  /// The graph of all operations so far.
  Object& finish(Handle handle);
  /// All that was described: the same for equal graphs.
  const std::string& text() const { return text_; }

private:
  Object& add(int type);
  Object& numbered(Object& tensor);
  std::string name_of(const Object& tensor) const;
  std::list<Object> objects_;
  std::vector<Descriptor> operations_;
  std::map<Descriptor, size_t> numbers_; ///< of tensors, in order
  std::string text_;
  int64_t next_inner_ = 1000;
};

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
  };
  void make(std::span<Plan> plans, Handle handle);
  void collect(Handle handle);
  void collect(Object& graph, int mode, Handle handle);
  bool may_be_taken(Descriptor engine) const;
  void recall(Handle handle);
  void keep() const;
  void execute(size_t which, const Addresses& addresses);

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
