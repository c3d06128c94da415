#include "device/fake/fake_device.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <variant>
#include <vector>

#include "base/error.h"
#include "device/fake/emulator.h"
#include "device/fake/guarded.h"
#include "device/pieces.h"

namespace tbx::device {

namespace fake {

namespace {

using Work = std::function<void()>;
using Clock = std::chrono::steady_clock;

/// Work in order, done when somebody waits for it.
class Queue {
public:
  explicit Queue(std::shared_ptr<Arena> arena) : arena_(std::move(arena)) {}
  void add(Work work) {
    std::scoped_lock lock(mutex_);
    work_.push_back(std::move(work));
  }
  /// `more`: whether there is a reason to go on.
  template <class More> void finish(More&& more) {
    Arena::Access access(*arena_);
    while (more())
      if (Work work = next())
        work();
      else
        return;
  }
  void finish() {
    finish([] { return true; });
  }

private:
  Work next() {
    std::scoped_lock lock(mutex_);
    if (work_.empty()) return {};
    Work work = std::move(work_.front());
    work_.pop_front();
    return work;
  }
  std::shared_ptr<Arena> arena_;
  std::mutex mutex_;
  std::deque<Work> work_;
};

class FakeEvent final : public Event {
public:
  struct State {
    struct Mark {
      std::weak_ptr<Queue> queue;
      std::atomic<bool> reached = false;
    };
    std::deque<Mark> marks;       ///< in the queues that recorded it
    std::atomic<int> pending = 0; ///< of them are not reached
    Clock::time_point reached{};
  };
  std::shared_ptr<State> state = std::make_shared<State>();
};

FakeEvent& of(const Event& e) { return const_cast<FakeEvent&>(static_cast<const FakeEvent&>(e)); }

/// Work before the event and no more: what comes behind it may have to wait for who waits here.
void finish(const FakeEvent::State& event) {
  for (const FakeEvent::State::Mark& mark : event.marks)
    if (const std::shared_ptr<Queue> queue = mark.queue.lock()) queue->finish([&] { return !mark.reached; });
}

class FakeGraph final : public Graph {
public:
  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
  };
  struct Upload : Copy {};
  struct Launch {
    const void* kernel; ///< none: work that stands for a library's kernel
    Work work;
  };
  struct Item {
    std::variant<Work, Copy, Upload, Launch> what;
    std::vector<size_t> after; ///< items that it waits for
  };

  explicit FakeGraph(std::vector<Item> items) : items_(std::move(items)) {}
  size_t nodes() const override { return items_.size(); }
  size_t copies() const override {
    return static_cast<size_t>(std::count_if(items_.begin(), items_.end(), [](const Item& item) {
      return std::holds_alternative<Copy>(item.what);
    }));
  }
  void move_copy(size_t copy, void* to, const void* from, size_t bytes) override {
    if (copy >= copies() || bytes == 0) throw_backend_error("changing copy {} to {} bytes", copy, bytes);
    for (Item& item : items_)
      if (auto* c = std::get_if<Copy>(&item.what); c && copy-- == 0) *c = {to, from, bytes};
  }
  void move_upload(size_t upload, const void* from) override {
    for (Item& item : items_)
      if (auto* u = std::get_if<Upload>(&item.what); u && upload-- == 0) {
        u->from = from;
        return;
      }
    throw_backend_error("changing an upload that the graph does not have");
  }
  /// Why the launch cannot be changed so; empty: it was.
  std::string move_launch(size_t launch, const void* kernel, Work work) {
    for (Item& item : items_)
      if (auto* l = std::get_if<Launch>(&item.what); l && launch-- == 0) {
        if (l->kernel != kernel) return "it starts another kernel";
        l->work = std::move(work);
        return {};
      }
    return "it starts more kernels";
  }
  /// As it is now, in an order of those that it allows.
  Work work(size_t seed) const {
    return [items = items_, order = order_from(seed)]() mutable {
      for (size_t i : order)
        if (auto* c = std::get_if<Copy>(&items[i].what))
          std::memcpy(c->to, c->from, c->bytes);
        else if (auto* u = std::get_if<Upload>(&items[i].what))
          std::memcpy(u->to, u->from, u->bytes);
        else if (auto* l = std::get_if<Launch>(&items[i].what))
          l->work();
        else
          std::get<Work>(items[i].what)();
    };
  }

private:
  std::vector<size_t> order_from(size_t seed) const {
    std::vector<size_t> missing(items_.size()), ready, order;
    std::vector<std::vector<size_t>> next(items_.size());
    for (size_t i = 0; i < items_.size(); ++i) {
      for (size_t before : items_[i].after) next[before].push_back(i);
      missing[i] = items_[i].after.size();
      if (missing[i] == 0) ready.push_back(i);
    }
    std::mt19937 random(static_cast<unsigned>(seed));
    while (!ready.empty()) {
      std::swap(ready[random() % ready.size()], ready.back());
      const size_t i = ready.back();
      ready.pop_back();
      order.push_back(i);
      for (size_t n : next[i])
        if (--missing[n] == 0) ready.push_back(n);
    }
    return order;
  }

  std::vector<Item> items_;
};

class LoadedObject final : public Module {
public:
  explicit LoadedObject(std::string_view binary) {
    fd_.number = memfd_create("tbx-emulated", MFD_CLOEXEC);
    if (fd_.number < 0 ||
        write(fd_.number, binary.data(), binary.size()) != static_cast<ssize_t>(binary.size()))
      throw_backend_error("no memory for {} bytes of emulated kernels", binary.size());
    handle_ = dlopen(fmt::format("/proc/self/fd/{}", fd_.number).c_str(), RTLD_NOW | RTLD_LOCAL);
    const char* why = handle_ ? nullptr : dlerror();
    if (!handle_) throw_backend_error("cannot load emulated kernels: {}", why ? why : "unknown reason");
    shared_ = static_cast<Shared*>(dlsym(handle_, "tbx_emulation"));
    if (!shared_) throw_backend_error("the emulated kernels were built without the shim");
  }
  ~LoadedObject() override { dlclose(handle_); }
  LoadedObject(const LoadedObject&) = delete;
  LoadedObject& operator=(const LoadedObject&) = delete;

  Kernel kernel(const std::string& name) const override {
    auto [it, fresh] = kernels_.try_emplace(name);
    if (fresh) {
      void *f = dlsym(handle_, ("emulate_" + name).c_str()), *size = dlsym(handle_, ("size_" + name).c_str());
      if (!f || !size) {
        kernels_.erase(it);
        throw_backend_error("the loaded module has no kernel {}", name);
      }
      it->second = {reinterpret_cast<void (*)(void* const*)>(f),
                    reinterpret_cast<unsigned long (*)(int)>(size), shared_, name};
    }
    return {&it->second};
  }

private:
  /// Open as long as the object is loaded: the loader knows objects by their paths, and takes what has the
  /// same one for the same.
  struct File {
    int number = -1;
    ~File() {
      if (number >= 0) close(number);
    }
  } fd_;
  void* handle_ = nullptr;
  Shared* shared_ = nullptr;
  mutable std::map<std::string, EmulatedKernel> kernels_;
};

/// FakeCounts, of all streams of a device.
struct Counters {
  std::atomic<size_t> launches = 0, copied = 0, early = 0, recorded = 0, started = 0, updated = 0, forked = 0;
  std::atomic<size_t> marked = 0, queried = 0, waited = 0, located = 0, adopted = 0, allocated = 0;
  std::atomic<bool> refuses_updates = false;
};

class FakeStream final : public Stream {
public:
  FakeStream(std::shared_ptr<Queue> queue, std::shared_ptr<Counters> counters)
      : queue_(std::move(queue)), counters_(std::move(counters)) {}

  void upload(void* to, const void* from, size_t bytes) override {
    counters_->copied += bytes > 0;
    if (bytes > 0 && capturing_)
      keep(FakeGraph::Upload{{to, from, bytes}});
    else
      move(to, from, bytes);
  }
  void download(void* to, const void* from, size_t bytes) override {
    counters_->copied += bytes > 0;
    move(to, from, bytes);
  }
  void copy(void* to, const void* from, size_t bytes) override {
    counters_->copied += bytes > 0;
    if (bytes > 0 && capturing_)
      keep(FakeGraph::Copy{to, from, bytes});
    else
      move(to, from, bytes);
  }
  void fill(void* to, uint8_t value, size_t bytes) override {
    add([to, value, bytes] { std::memset(to, value, bytes); });
  }
  void launch(Kernel kernel, const LaunchShape& shape, std::span<void* const> arguments) override {
    const auto& k = *static_cast<const EmulatedKernel*>(kernel.handle);
    if (shape.blocks == 0 || shape.threads == 0 || shape.threads > 1024)
      throw_backend_error("starting kernel {} failed: {} blocks of {} threads", k.name, shape.blocks,
                          shape.threads);
    counters_->early += shape.overlap;
    std::vector<std::vector<char>> values;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const char* from = static_cast<const char*>(arguments[i]);
      values.emplace_back(from, from + k.size(static_cast<int>(i)));
    }
    launch(&k, [&k, shape, values, seed = seed_++]() mutable {
      std::vector<void*> pointers;
      pointers.reserve(values.size());
      for (std::vector<char>& v : values) pointers.push_back(v.data());
      emulate(k, shape, pointers, seed);
    });
  }
  void record(Event& event) override {
    ++counters_->marked;
    std::shared_ptr<FakeEvent::State> state = of(event).state = std::make_shared<FakeEvent::State>();
    state->marks.emplace_back().queue = queue_;
    state->pending = 1;
    add([state] {
      state->reached = Clock::now();
      state->marks[0].reached = true;
      state->pending = 0;
    });
  }
  void wait(const Event& event) override {
    ++counters_->waited;
    add([state = of(event).state] { finish(*state); });
  }
  void synchronize() override {
    if (capturing_) throw_backend_error("waiting for a stream that records a graph");
    queue_->finish();
  }
  void begin_capture() override {
    if (capturing_) throw_backend_error("the stream records a graph already");
    capturing_ = true;
    launches_ = 0;
    recorded_.clear();
    last_.clear();
    pieces_.clear();
  }
  std::unique_ptr<Graph> end_capture() override {
    if (!capturing_) throw_backend_error("the stream records no graph");
    capturing_ = false;
    ++counters_->recorded;
    return std::make_unique<FakeGraph>(std::move(recorded_));
  }
  void begin_piece(std::span<const size_t> after) override { last_ = pieces_.begin(std::move(last_), after); }
  void join_pieces() override {
    if (pieces_.begun()) last_ = pieces_.join(std::move(last_));
  }
  size_t recorded_launches() const override { return launches_; }
  void begin_update(Graph& graph, size_t first) override {
    updated_ = static_cast<FakeGraph*>(&graph);
    first_ = next_ = first;
    refused_.clear();
    if (counters_->refuses_updates) refused_ = "the fake device refuses the change";
  }
  GraphUpdate end_update() override {
    updated_ = nullptr;
    return {next_ - first_, std::move(refused_)};
  }
  void launch(Graph& graph) override {
    ++counters_->started;
    add(static_cast<FakeGraph&>(graph).work(counters_->started));
  }
  void* handle() const override { return queue_.get(); }

  /// `kernel`: none where the work stands for a library's.
  void launch(const void* kernel, Work work) {
    if (updated_) {
      if (refused_.empty()) refused_ = updated_->move_launch(next_++, kernel, std::move(work));
      if (refused_.empty()) ++counters_->updated;
    } else if (capturing_) {
      keep(FakeGraph::Launch{kernel, std::move(work)});
      ++launches_;
    } else {
      ++counters_->launches;
      queue_->add(std::move(work));
    }
  }
  void add(Work work) {
    if (capturing_)
      keep(std::move(work));
    else
      queue_->add(std::move(work));
  }

private:
  void keep(decltype(FakeGraph::Item::what) what) {
    const size_t number = recorded_.size();
    if (number > 0 && std::find(last_.begin(), last_.end(), number - 1) == last_.end()) ++counters_->forked;
    recorded_.push_back({std::move(what), std::move(last_)});
    last_ = {number};
  }
  void move(void* to, const void* from, size_t bytes) {
    if (bytes > 0) add([to, from, bytes] { std::memcpy(to, from, bytes); });
  }

  std::shared_ptr<Queue> queue_;
  std::shared_ptr<Counters> counters_;
  std::vector<FakeGraph::Item> recorded_;
  std::vector<size_t> last_; ///< items that the next one waits for
  Pieces<size_t> pieces_;
  size_t launches_ = 0; ///< recorded
  bool capturing_ = false;
  FakeGraph* updated_ = nullptr; ///< gets the next launches
  size_t first_ = 0, next_ = 0;
  std::string refused_; ///< why the graph cannot be changed
  uint32_t seed_ = 1;
};

/// Staging memory is plain memory of the host.
class HostBlock final : public Memory {
public:
  explicit HostBlock(size_t bytes) : Memory(nullptr, bytes), block_(new char[bytes > 0 ? bytes : 1]) {
    data_ = block_.get();
  }

private:
  std::unique_ptr<char[]> block_;
};

class FakeDevice final : public Device {
public:
  explicit FakeDevice(int number) {
    properties_.number = number;
    properties_.name = "fake device (kernels run on the CPU)";
    properties_.architecture = "emulated";
    properties_.starts_early = true; // it looks whether such kernels wait
    properties_.multiprocessors = 4;
    properties_.memory_bytes = int64_t{4} << 30;
    properties_.l2_bytes = 4 << 20;
    properties_.shared_bytes_block = 227 << 10;
  }
  const Properties& properties() const override { return properties_; }
  std::unique_ptr<Memory> allocate(size_t bytes) override {
    if (bytes > static_cast<size_t>(properties_.memory_bytes))
      throw_backend_error("there is no room for {} bytes on the device", bytes);
    ++counters_->allocated;
    return std::make_unique<Guarded>(arena_, bytes);
  }
  std::unique_ptr<Memory> allocate_staging(size_t bytes) override {
    ++counters_->allocated;
    return std::make_unique<HostBlock>(bytes);
  }
  std::unique_ptr<Stream> make_stream() override {
    auto queue = std::make_shared<Queue>(arena_);
    std::scoped_lock lock(mutex_);
    std::erase_if(queues_, [](const auto& q) { return q.second.expired(); });
    queues_.emplace(queue.get(), queue);
    return std::make_unique<FakeStream>(std::move(queue), counters_);
  }
  std::unique_ptr<Stream> adopt_stream(void* handle) override {
    ++counters_->adopted;
    if (reinterpret_cast<uintptr_t>(handle) <= 2 || handle == default_queue_.get())
      return std::make_unique<FakeStream>(default_queue_, counters_);
    std::scoped_lock lock(mutex_);
    const auto it = queues_.find(handle);
    std::shared_ptr<Queue> queue = it == queues_.end() ? nullptr : it->second.lock();
    if (!queue) throw_backend_error("the device has no stream {}", handle);
    return std::make_unique<FakeStream>(std::move(queue), counters_);
  }
  std::string defect_of(const void* data, size_t bytes) override {
    ++counters_->located;
    return bytes == 0 ? std::string() : arena_->defect_of(data, bytes);
  }
  void record_all(Event& event) override {
    std::shared_ptr<FakeEvent::State> state = of(event).state = std::make_shared<FakeEvent::State>();
    std::vector<std::shared_ptr<Queue>> queues = {default_queue_};
    {
      std::scoped_lock lock(mutex_);
      for (const auto& [handle, known] : queues_)
        if (std::shared_ptr<Queue> queue = known.lock()) queues.push_back(std::move(queue));
    }
    state->pending = static_cast<int>(queues.size());
    for (const auto& queue : queues) state->marks.emplace_back().queue = queue;
    for (size_t q = 0; q < queues.size(); ++q)
      queues[q]->add([state, q] {
        state->marks[q].reached = true;
        --state->pending;
      });
  }
  bool is_reached(const Event& event) override {
    ++counters_->queried;
    return of(event).state->pending == 0;
  }
  void wait(const Event& event) override { finish(*of(event).state); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<FakeEvent>(); }
  double elapsed_ms(const Event& from, const Event& to) override {
    return std::chrono::duration<double, std::milli>(of(to).state->reached - of(from).state->reached).count();
  }
  std::shared_ptr<Module> load(std::string_view binary) override {
    return std::make_shared<LoadedObject>(binary);
  }
  FakeCounts counts() const {
    return {counters_->launches, counters_->copied,  counters_->early,   counters_->recorded,
            counters_->started,  counters_->updated, counters_->forked,  counters_->marked,
            counters_->queried,  counters_->waited,  counters_->located, counters_->adopted,
            counters_->allocated};
  }
  void refuse_updates(bool refuse) const { counters_->refuses_updates = refuse; }

private:
  Properties properties_;
  std::shared_ptr<Arena> arena_ = std::make_shared<Arena>();
  std::shared_ptr<Counters> counters_ = std::make_shared<Counters>();
  std::shared_ptr<Queue> default_queue_ = std::make_shared<Queue>(arena_);
  std::mutex mutex_;
  std::map<void*, std::weak_ptr<Queue>> queues_; ///< by handle
};

} // namespace

} // namespace fake

std::shared_ptr<Device> make_fake_device(int number) { return std::make_shared<fake::FakeDevice>(number); }

bool is_fake(const Device& device) { return dynamic_cast<const fake::FakeDevice*>(&device) != nullptr; }

FakeCounts counts_of(const Device& device) { return dynamic_cast<const fake::FakeDevice&>(device).counts(); }

void refuse_updates(const Device& device, bool refuse) {
  dynamic_cast<const fake::FakeDevice&>(device).refuse_updates(refuse);
}

void run_on_host(Stream& stream, std::function<void()> work) {
  dynamic_cast<fake::FakeStream&>(stream).launch(nullptr, std::move(work));
}

} // namespace tbx::device
