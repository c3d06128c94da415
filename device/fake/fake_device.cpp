#include "device/fake/fake_device.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "base/error.h"
#include "device/fake/emulator.h"
#include "device/fake/guarded.h"

namespace tbx::device {

namespace fake {

namespace {

using Work = std::function<void()>;
using Clock = std::chrono::steady_clock;

class FakeStream;

class FakeEvent final : public Event {
public:
  FakeStream* stream = nullptr; ///< that recorded it and has not come to it
  Clock::time_point reached{};
};

FakeEvent& of(const Event& e) { return const_cast<FakeEvent&>(static_cast<const FakeEvent&>(e)); }

class FakeGraph final : public Graph {
public:
  explicit FakeGraph(std::vector<Work> work) : work_(std::move(work)) {}
  size_t nodes() const override { return work_.size(); }
  void run() const {
    for (const Work& w : work_) w();
  }

private:
  std::vector<Work> work_;
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

class FakeStream final : public Stream {
public:
  explicit FakeStream(std::shared_ptr<Arena> arena) : arena_(std::move(arena)) {}

  void upload(void* to, const void* from, size_t bytes) override { move(to, from, bytes); }
  void download(void* to, const void* from, size_t bytes) override { move(to, from, bytes); }
  void copy(void* to, const void* from, size_t bytes) override { move(to, from, bytes); }
  void fill(void* to, uint8_t value, size_t bytes) override {
    add([to, value, bytes] { std::memset(to, value, bytes); });
  }
  void launch(Kernel kernel, const LaunchShape& shape, std::span<void* const> arguments) override {
    const auto& k = *static_cast<const EmulatedKernel*>(kernel.handle);
    if (shape.blocks == 0 || shape.threads == 0 || shape.threads > 1024)
      throw_backend_error("starting kernel {} failed: {} blocks of {} threads", k.name, shape.blocks,
                          shape.threads);
    std::vector<std::vector<char>> values;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const char* from = static_cast<const char*>(arguments[i]);
      values.emplace_back(from, from + k.size(static_cast<int>(i)));
    }
    add([&k, shape, values, seed = seed_++]() mutable {
      std::vector<void*> pointers;
      for (std::vector<char>& v : values) pointers.push_back(v.data());
      emulate(k, shape, pointers, seed);
    });
  }
  void record(Event& event) override {
    of(event).stream = this;
    add([&event] {
      of(event).stream = nullptr;
      of(event).reached = Clock::now();
    });
  }
  void wait(const Event& event) override {
    add([&event] {
      if (FakeStream* other = of(event).stream) other->synchronize();
    });
  }
  void synchronize() override {
    if (capturing_) throw_backend_error("waiting for a stream that records a graph");
    Arena::Access access(*arena_);
    while (!queue_.empty()) {
      Work work = std::move(queue_.front());
      queue_.pop_front();
      work();
    }
  }
  void begin_capture() override {
    if (capturing_) throw_backend_error("the stream records a graph already");
    capturing_ = true;
  }
  std::unique_ptr<Graph> end_capture() override {
    if (!capturing_) throw_backend_error("the stream records no graph");
    capturing_ = false;
    return std::make_unique<FakeGraph>(std::move(recorded_));
  }
  void launch(Graph& graph) override {
    add([&graph] { static_cast<FakeGraph&>(graph).run(); });
  }

  void add(Work work) {
    if (capturing_)
      recorded_.push_back(std::move(work));
    else
      queue_.push_back(std::move(work));
  }

private:
  void move(void* to, const void* from, size_t bytes) {
    if (bytes > 0) add([to, from, bytes] { std::memcpy(to, from, bytes); });
  }

  std::shared_ptr<Arena> arena_;
  std::deque<Work> queue_;
  std::vector<Work> recorded_;
  bool capturing_ = false;
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
  FakeDevice() {
    properties_.name = "fake device (kernels run on the CPU)";
    properties_.architecture = "emulated";
    properties_.multiprocessors = 4;
    properties_.memory_bytes = int64_t{4} << 30;
    properties_.l2_bytes = 4 << 20;
    properties_.shared_bytes_block = 48 << 10;
  }
  const Properties& properties() const override { return properties_; }
  std::unique_ptr<Memory> allocate(size_t bytes) override {
    if (bytes > static_cast<size_t>(properties_.memory_bytes))
      throw_backend_error("there is no room for {} bytes on the device", bytes);
    return std::make_unique<Guarded>(arena_, bytes);
  }
  std::unique_ptr<Memory> allocate_staging(size_t bytes) override {
    return std::make_unique<HostBlock>(bytes);
  }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<FakeStream>(arena_); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<FakeEvent>(); }
  double elapsed_ms(const Event& from, const Event& to) override {
    return std::chrono::duration<double, std::milli>(of(to).reached - of(from).reached).count();
  }
  std::shared_ptr<Module> load(std::string_view binary) override {
    return std::make_shared<LoadedObject>(binary);
  }

private:
  Properties properties_;
  std::shared_ptr<Arena> arena_ = std::make_shared<Arena>();
};

} // namespace

} // namespace fake

std::shared_ptr<Device> make_fake_device() { return std::make_shared<fake::FakeDevice>(); }

bool is_fake(const Device& device) { return dynamic_cast<const fake::FakeDevice*>(&device) != nullptr; }

void run_on_host(Stream& stream, std::function<void()> work) {
  dynamic_cast<fake::FakeStream&>(stream).add(std::move(work));
}

} // namespace tbx::device
