#include "device/cuda/stream.h"

namespace tbx::device::cuda {

namespace {

constexpr unsigned kNonBlocking = 1; ///< CU_STREAM_NON_BLOCKING: does not wait for the default stream
constexpr int kThreadLocal = 1; ///< CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: other threads may allocate meanwhile

Pointer pointer(const void* p) { return reinterpret_cast<Pointer>(p); }

class CudaEvent final : public Event {
public:
  explicit CudaEvent(std::shared_ptr<const ContextOwner> context) : context_(std::move(context)) {
    Current current(*context_);
    check(driver().cuEventCreate(&handle, 0), "cuEventCreate");
  }
  ~CudaEvent() override {
    Current current(*context_);
    driver().cuEventDestroy_v2(handle);
  }
  EventHandle handle = nullptr;

private:
  std::shared_ptr<const ContextOwner> context_;
};

EventHandle handle_of(const Event& e) { return static_cast<const CudaEvent&>(e).handle; }

class CudaGraph final : public Graph {
public:
  CudaGraph(std::shared_ptr<const ContextOwner> context, GraphHandle graph)
      : context_(std::move(context)), graph_(graph) {
    check(driver().cuGraphGetNodes(graph_, nullptr, &nodes_), "cuGraphGetNodes");
    if (Result r = driver().cuGraphInstantiateWithFlags(&exec, graph_, 0); r != 0) {
      driver().cuGraphDestroy(graph_);
      check(r, "cuGraphInstantiate");
    }
  }
  ~CudaGraph() override {
    Current current(*context_);
    driver().cuGraphExecDestroy(exec);
    driver().cuGraphDestroy(graph_);
  }
  size_t nodes() const override { return nodes_; }
  GraphExec exec = nullptr;

private:
  std::shared_ptr<const ContextOwner> context_;
  GraphHandle graph_;
  size_t nodes_ = 0;
};

class CudaStream final : public Stream {
public:
  explicit CudaStream(std::shared_ptr<const ContextOwner> context) : context_(std::move(context)) {
    Current current(*context_);
    check(driver().cuStreamCreate(&stream_, kNonBlocking), "cuStreamCreate");
  }
  ~CudaStream() override {
    Current current(*context_);
    driver().cuStreamDestroy_v2(stream_);
  }

  void upload(void* to, const void* from, size_t bytes) override {
    Current current(*context_);
    if (bytes > 0)
      check(driver().cuMemcpyHtoDAsync_v2(pointer(to), from, bytes, stream_), "copying to the device");
  }
  void download(void* to, const void* from, size_t bytes) override {
    Current current(*context_);
    if (bytes > 0)
      check(driver().cuMemcpyDtoHAsync_v2(to, pointer(from), bytes, stream_), "copying from the device");
  }
  void copy(void* to, const void* from, size_t bytes) override {
    Current current(*context_);
    if (bytes > 0)
      check(driver().cuMemcpyDtoDAsync_v2(pointer(to), pointer(from), bytes, stream_),
            "copying on the device");
  }
  void fill(void* to, uint8_t value, size_t bytes) override {
    Current current(*context_);
    if (bytes > 0)
      check(driver().cuMemsetD8Async(pointer(to), value, bytes, stream_), "filling device memory");
  }
  void launch(Kernel kernel, const LaunchShape& shape, std::span<void* const> arguments) override {
    Current current(*context_);
    LaunchConfig config;
    config.grid_x = shape.blocks, config.block_x = shape.threads, config.shared_bytes = shape.shared_bytes;
    config.stream = stream_;
    LaunchAttribute overlap;
    if (shape.overlap) {
      overlap.id = kProgrammaticStreamSerialization;
      overlap.value[0] = 1; // an int, little-endian
      config.attributes = &overlap, config.num_attributes = 1;
    }
    check(driver().cuLaunchKernelEx(&config, static_cast<Function>(kernel.handle),
                                    const_cast<void**>(arguments.data()), nullptr),
          "starting a kernel");
  }
  void record(Event& event) override {
    Current current(*context_);
    check(driver().cuEventRecord(handle_of(event), stream_), "cuEventRecord");
  }
  void wait(const Event& event) override {
    Current current(*context_);
    check(driver().cuStreamWaitEvent(stream_, handle_of(event), 0), "cuStreamWaitEvent");
  }
  void synchronize() override {
    Current current(*context_);
    check(driver().cuStreamSynchronize(stream_), "waiting for the device");
  }
  void begin_capture() override {
    Current current(*context_);
    check(driver().cuStreamBeginCapture_v2(stream_, kThreadLocal), "cuStreamBeginCapture");
  }
  std::unique_ptr<Graph> end_capture() override {
    Current current(*context_);
    GraphHandle graph = nullptr;
    check(driver().cuStreamEndCapture(stream_, &graph), "cuStreamEndCapture");
    auto out = std::make_unique<CudaGraph>(context_, graph);
    check(driver().cuGraphUpload(out->exec, stream_), "cuGraphUpload");
    return out;
  }
  void launch(Graph& graph) override {
    Current current(*context_);
    check(driver().cuGraphLaunch(static_cast<CudaGraph&>(graph).exec, stream_), "starting a graph");
  }

  StreamHandle handle() const { return stream_; }

private:
  std::shared_ptr<const ContextOwner> context_;
  StreamHandle stream_ = nullptr;
};

} // namespace

StreamHandle handle_of(const Stream& stream) { return static_cast<const CudaStream&>(stream).handle(); }

bool is_capturing(const Stream& stream) {
  int status = 0; // CUstreamCaptureStatus; 0: none
  check(driver().cuStreamIsCapturing(handle_of(stream), &status), "cuStreamIsCapturing");
  return status != 0;
}

std::unique_ptr<Stream> make_stream(std::shared_ptr<const ContextOwner> context) {
  return std::make_unique<CudaStream>(std::move(context));
}

std::unique_ptr<Event> make_event(std::shared_ptr<const ContextOwner> context) {
  return std::make_unique<CudaEvent>(std::move(context));
}

double elapsed_ms(const Event& from, const Event& to) {
  float ms = 0;
  check(driver().cuEventElapsedTime_v2(&ms, handle_of(from), handle_of(to)), "cuEventElapsedTime");
  return ms;
}

} // namespace tbx::device::cuda
