#include "device/cuda/cuda_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "device/cuda/driver.h"
#include "device/cuda/nvrtc.h"
#include "device/cuda/stream.h"

namespace tbx::device {

namespace cuda {

namespace {

/// Memory of the device, or page-locked memory of the host.
class Block final : public Memory {
public:
  Block(std::shared_ptr<const ContextOwner> context, size_t bytes, bool host)
      : Memory(nullptr, bytes), context_(std::move(context)), host_(host) {
    Current current(*context_);
    const size_t asked = bytes > 0 ? bytes : 256;
    Pointer p = 0;
    const Result r = host ? driver().cuMemHostAlloc(&data_, asked, 0) : driver().cuMemAlloc_v2(&p, asked);
    if (r == kOutOfMemory)
      throw Error(ErrorKind::backend,
                  fmt::format("there is no room for {} bytes {}", bytes,
                              host ? "of page-locked memory" : "on the device"),
                  "choose smaller sizes, or free memory that other programs hold there");
    check(r, host ? "cuMemHostAlloc" : "cuMemAlloc");
    if (!host) data_ = reinterpret_cast<void*>(p);
  }
  ~Block() override {
    Current current(*context_);
    host_ ? driver().cuMemFreeHost(data_) : driver().cuMemFree_v2(reinterpret_cast<Pointer>(data_));
  }

private:
  std::shared_ptr<const ContextOwner> context_;
  bool host_;
};

class LoadedModule final : public Module {
public:
  LoadedModule(std::shared_ptr<const ContextOwner> context, std::string_view binary, int64_t shared_bytes)
      : context_(std::move(context)), shared_bytes_(shared_bytes) {
    Current current(*context_);
    for (const std::string_view part : parts_of(binary))
      check(driver().cuModuleLoadData(&modules_.emplace_back(), std::string(part).c_str()),
            "loading kernels");
  }
  ~LoadedModule() override {
    Current current(*context_);
    for (ModuleHandle module : modules_) driver().cuModuleUnload(module);
  }
  Kernel kernel(const std::string& name) const override {
    Current current(*context_);
    Function f = nullptr;
    if (std::none_of(modules_.begin(), modules_.end(), [&](ModuleHandle module) {
          return driver().cuModuleGetFunction(&f, module, name.c_str()) == 0;
        }))
      throw_backend_error("the loaded module has no kernel {}", name);
    // More than 48 KiB has to be asked for; what the kernel declares itself comes off.
    int declared = 0;
    check(driver().cuFuncGetAttribute(&declared, kStaticShared, f), "cuFuncGetAttribute");
    check(driver().cuFuncSetAttribute(f, kMaxDynamicShared, static_cast<int>(shared_bytes_) - declared),
          "cuFuncSetAttribute");
    return {f};
  }

private:
  std::shared_ptr<const ContextOwner> context_;
  std::vector<ModuleHandle> modules_;
  int64_t shared_bytes_;
};

class CudaDevice final : public Device {
public:
  explicit CudaDevice(int number) : context_(std::make_shared<ContextOwner>(number)) {
    const Driver& d = driver();
    properties_.number = number;
    char name[128] = {};
    check(d.cuDeviceGetName(name, sizeof name, context_->device()), "cuDeviceGetName");
    properties_.name = name;
    auto attribute = [&](int which) {
      int value = 0;
      check(d.cuDeviceGetAttribute(&value, which, context_->device()), "cuDeviceGetAttribute");
      return value;
    };
    properties_.architecture = fmt::format("sm_{}{}", attribute(kMajor), attribute(kMinor));
    properties_.starts_early = attribute(kMajor) >= 9;
    properties_.multiprocessors = attribute(kMultiprocessors);
    properties_.l2_bytes = attribute(kL2Bytes);
    properties_.shared_bytes_block = attribute(kSharedBytesOptin);
    size_t total = 0;
    check(d.cuDeviceTotalMem_v2(&total, context_->device()), "cuDeviceTotalMem");
    properties_.memory_bytes = static_cast<int64_t>(total);
    if (attribute(kMajor) * 10 + attribute(kMinor) < 75)
      throw_backend_error("{} is an {}; sm_75 (Turing) is the oldest that runs", name,
                          properties_.architecture);
  }

  const Properties& properties() const override { return properties_; }
  std::unique_ptr<Memory> allocate(size_t bytes) override {
    return std::make_unique<Block>(context_, bytes, false);
  }
  std::unique_ptr<Memory> allocate_staging(size_t bytes) override {
    return std::make_unique<Block>(context_, bytes, true);
  }
  std::unique_ptr<Stream> make_stream() override { return cuda::make_stream(context_); }
  std::unique_ptr<Stream> adopt_stream(void* handle) override { return cuda::adopt_stream(context_, handle); }
  std::string defect_of(const void* data, size_t bytes) override {
    if (bytes == 0) return {};
    Current current(*context_);
    unsigned type = 0;
    int number = -1;
    Pointer start = 0;
    size_t size = 0;
    int what[] = {kPointerMemoryType, kPointerDeviceOrdinal, kPointerRangeStart, kPointerRangeSize};
    void* where[] = {&type, &number, &start, &size};
    const auto at = reinterpret_cast<Pointer>(data);
    check(driver().cuPointerGetAttributes(4, what, where, at), "cuPointerGetAttributes");
    if (type != kDeviceMemory) return "its address is none of a GPU's memory";
    if (number != properties_.number) return fmt::format("it lies on cuda:{}", number);
    if (bytes > size - (at - start))
      return fmt::format("{} bytes are left in its memory, {} are needed", size - (at - start), bytes);
    return {};
  }
  void record_all(Event& event) override { cuda::record_all(*context_, event); }
  bool is_reached(const Event& event) override { return cuda::is_reached(event); }
  void wait(const Event& event) override { cuda::wait(event); }
  std::unique_ptr<Event> make_event() override { return cuda::make_event(context_); }
  double elapsed_ms(const Event& from, const Event& to) override { return cuda::elapsed_ms(from, to); }
  std::shared_ptr<Module> load(std::string_view binary) override {
    return std::make_shared<LoadedModule>(context_, binary, properties_.shared_bytes_block);
  }
  const std::shared_ptr<const ContextOwner>& context() const { return context_; }

private:
  std::shared_ptr<const ContextOwner> context_;
  Properties properties_;
};

} // namespace

ContextOwner::ContextOwner(int number) {
  int count = 0;
  check(driver().cuDeviceGetCount(&count), "cuDeviceGetCount");
  if (number >= count)
    throw_backend_error("there is no GPU cuda:{}; the driver sees {}", number,
                        count == 0 ? "none" : fmt::format("{}, from cuda:0 on", count));
  check(driver().cuDeviceGet(&device_, number), "cuDeviceGet");
  // The primary context is the one that CUDA's runtime, and so every framework in the process, uses.
  check(driver().cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
}

ContextOwner::~ContextOwner() { driver().cuDevicePrimaryCtxRelease_v2(device_); }

Current::Current(const ContextOwner& owner) {
  Context now = nullptr;
  check(driver().cuCtxGetCurrent(&now), "cuCtxGetCurrent");
  if (now == owner.context()) return; // as in threads that use CUDA's runtime, or torch
  check(driver().cuCtxPushCurrent_v2(owner.context()), "cuCtxPushCurrent");
  pushed_ = true;
}

Current::~Current() {
  Context context = nullptr;
  if (pushed_) driver().cuCtxPopCurrent_v2(&context);
}

} // namespace cuda

std::shared_ptr<Device> make_cuda_device(int number) { return std::make_shared<cuda::CudaDevice>(number); }

std::shared_ptr<const cuda::ContextOwner> context_of(const Device& device) {
  return static_cast<const cuda::CudaDevice&>(device).context();
}

} // namespace tbx::device
