#include "device/cuda/stream.h"

#include <array>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "device/cuda/graph_zeros.h"
#include "device/pieces.h"

namespace tbx::device::cuda {

namespace {

constexpr unsigned kNonBlocking = 1; ///< CU_STREAM_NON_BLOCKING: does not wait for the default stream
constexpr int kThreadLocal = 1; ///< CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: other threads may allocate meanwhile

constexpr unsigned kSetDependencies = 1; ///< CU_STREAM_SET_CAPTURE_DEPENDENCIES

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

/// A start of a kernel of ours in a graph.
struct RecordedLaunch {
  GraphNode node = nullptr;
  Function function = nullptr;
};

class CudaGraph final : public Graph {
public:
  /// `copies`, `launches`: nodes of the graph. `zeros`: memory that it uses, or null.
  CudaGraph(std::shared_ptr<const ContextOwner> context, GraphHandle graph, std::vector<GraphNode> copies,
            std::vector<GraphNode> uploads, std::vector<RecordedLaunch> launches,
            std::unique_ptr<GraphZeros> zeros)
      : context_(std::move(context)), graph_(graph), copies_(std::move(copies)), uploads_(std::move(uploads)),
        launches_(std::move(launches)), zeros_(std::move(zeros)) {
    try {
      if (zeros_) zeros_->fill_first(graph_);
      check(driver().cuGraphGetNodes(graph_, nullptr, &nodes_), "cuGraphGetNodes");
      check(driver().cuGraphInstantiateWithFlags(&exec, graph_, 0), "cuGraphInstantiate");
    } catch (...) {
      driver().cuGraphDestroy(graph_);
      throw;
    }
  }
  ~CudaGraph() override {
    Current current(*context_);
    driver().cuGraphExecDestroy(exec);
    driver().cuGraphDestroy(graph_);
  }
  size_t nodes() const override { return nodes_; }
  size_t copies() const override { return copies_.size(); }
  void move_copy(size_t copy, void* to, const void* from, size_t bytes) override {
    change(copies_.at(copy), [&](CopyNode& node) {
      node.from.device = pointer(from), node.to.device = pointer(to);
      node.width = bytes;
    });
  }
  void move_upload(size_t upload, const void* from) override {
    change(uploads_.at(upload), [&](CopyNode& node) {
      if (node.from.type == static_cast<int>(kHostMemory))
        node.from.host = const_cast<void*>(from);
      else // by an address that host and device share
        node.from.device = pointer(from);
    });
  }
  /// Why the start cannot be changed so; empty: it was.
  std::string move_launch(size_t launch, Function function, const LaunchShape& shape,
                          std::span<void* const> arguments) {
    if (launch >= launches_.size()) return "it starts more kernels";
    if (launches_[launch].function != function) return "it starts another kernel";
    KernelNode node;
    node.function = function;
    node.grid_x = shape.blocks, node.block_x = shape.threads, node.shared_bytes = shape.shared_bytes;
    node.arguments = const_cast<void**>(arguments.data());
    const Result r = driver().cuGraphExecKernelNodeSetParams_v2(exec, launches_[launch].node, &node);
    return r == 0 ? std::string() : "the driver refuses the change: " + text_of(r);
  }
  GraphExec exec = nullptr;

private:
  template <class Change> void change(GraphNode copy, Change&& to) {
    Current current(*context_);
    CopyNode node;
    check(driver().cuGraphMemcpyNodeGetParams(copy, &node), "cuGraphMemcpyNodeGetParams");
    to(node);
    check(driver().cuGraphExecMemcpyNodeSetParams(exec, copy, &node, context_->context()),
          "cuGraphExecMemcpyNodeSetParams");
  }

  std::shared_ptr<const ContextOwner> context_;
  GraphHandle graph_;
  std::vector<GraphNode> copies_, uploads_;
  std::vector<RecordedLaunch> launches_;
  std::unique_ptr<GraphZeros> zeros_;
  size_t nodes_ = 0;
};

class CudaStream final : public Stream {
public:
  explicit CudaStream(std::shared_ptr<const ContextOwner> context) : context_(std::move(context)) {
    Current current(*context_);
    check(driver().cuStreamCreate(&stream_, kNonBlocking), "cuStreamCreate");
  }
  /// Of somebody else.
  CudaStream(std::shared_ptr<const ContextOwner> context, StreamHandle stream)
      : context_(std::move(context)), stream_(stream), owned_(false) {}
  ~CudaStream() override {
    if (!owned_) return;
    Current current(*context_);
    driver().cuStreamDestroy_v2(stream_);
  }

  void upload(void* to, const void* from, size_t bytes) override {
    Current current(*context_);
    if (bytes > 0)
      check(driver().cuMemcpyHtoDAsync_v2(pointer(to), from, bytes, stream_), "copying to the device");
    if (bytes > 0 && recording_) uploads_.push_back(last_node());
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
    if (bytes > 0 && recording_) copies_.push_back(last_node());
  }
  void fill(void* to, uint8_t value, size_t bytes) override {
    Current current(*context_);
    if (bytes > 0)
      check(driver().cuMemsetD8Async(pointer(to), value, bytes, stream_), "filling device memory");
  }
  void launch(Kernel kernel, const LaunchShape& shape, std::span<void* const> arguments) override {
    Current current(*context_);
    const auto function = static_cast<Function>(kernel.handle);
    if (updated_) {
      if (refused_.empty()) refused_ = updated_->move_launch(next_++, function, shape, arguments);
      return;
    }
    LaunchConfig config;
    config.grid_x = shape.blocks, config.block_x = shape.threads, config.shared_bytes = shape.shared_bytes;
    config.stream = stream_;
    std::array<LaunchAttribute, 2> attributes;
    config.attributes = attributes.data();
    // Of several nodes that it waits for it waits for the ends.
    if (shape.overlap && (!recording_ || last_nodes().size() == 1)) {
      LaunchAttribute& overlap = attributes[config.num_attributes++];
      overlap.id = kProgrammaticStreamSerialization;
      overlap.value[0] = 1; // an int, little-endian
    }
    if (shape.cluster > 1) {
      LaunchAttribute& cluster = attributes[config.num_attributes++];
      cluster.id = kClusterDimension;
      const uint32_t sizes[] = {shape.cluster, 1, 1};
      std::memcpy(cluster.value, sizes, sizeof sizes);
    }
    check(driver().cuLaunchKernelEx(&config, function, const_cast<void**>(arguments.data()), nullptr),
          "starting a kernel");
    if (recording_) launches_.push_back({last_node(), function});
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
    if (!zeros_) zeros_ = std::make_unique<GraphZeros>(context_); // nothing may ask for memory meanwhile
    check(driver().cuStreamBeginCapture_v2(stream_, kThreadLocal), "cuStreamBeginCapture");
    copies_.clear();
    uploads_.clear();
    launches_.clear();
    pieces_.clear();
    recording_ = true;
  }
  std::unique_ptr<Graph> end_capture() override {
    Current current(*context_);
    GraphHandle graph = nullptr;
    recording_ = false;
    check(driver().cuStreamEndCapture(stream_, &graph), "cuStreamEndCapture");
    std::unique_ptr<GraphZeros> zeros;
    if (zeros_->begun()) zeros = std::move(zeros_);
    auto out = std::make_unique<CudaGraph>(context_, graph, std::move(copies_), std::move(uploads_),
                                           std::move(launches_), std::move(zeros));
    check(driver().cuGraphUpload(out->exec, stream_), "cuGraphUpload");
    return out;
  }
  void begin_piece(std::span<const size_t> after) override {
    Current current(*context_);
    const std::vector<GraphNode> last = last_nodes();
    // Edges that are there stay, and may say that a kernel begins while the one before ends.
    if (std::vector<GraphNode> nodes = pieces_.begin(last, after); nodes != last) wait_for(std::move(nodes));
  }
  void join_pieces() override {
    Current current(*context_);
    if (pieces_.begun()) wait_for(pieces_.join(last_nodes()));
  }
  size_t recorded_launches() const override { return launches_.size(); }
  void begin_update(Graph& graph, size_t first) override {
    updated_ = static_cast<CudaGraph*>(&graph);
    first_ = next_ = first;
    refused_.clear();
  }
  GraphUpdate end_update() override {
    updated_ = nullptr;
    return {next_ - first_, std::move(refused_)};
  }
  void launch(Graph& graph) override {
    Current current(*context_);
    check(driver().cuGraphLaunch(static_cast<CudaGraph&>(graph).exec, stream_), "starting a graph");
  }

  void* handle() const override { return stream_; }
  void* zeros(size_t bytes) const { return recording_ ? zeros_->take(bytes, last_nodes()) : nullptr; }

private:
  /// What the next node will wait for.
  std::vector<GraphNode> last_nodes() const {
    int status = 0;
    unsigned long long id = 0;
    GraphHandle graph = nullptr;
    const GraphNode* nodes = nullptr;
    const void* edges = nullptr;
    size_t count = 0;
    check(driver().cuStreamGetCaptureInfo_v3(stream_, &status, &id, &graph, &nodes, &edges, &count),
          "cuStreamGetCaptureInfo");
    return {nodes, nodes + count};
  }
  /// What was recorded last.
  GraphNode last_node() const {
    const std::vector<GraphNode> nodes = last_nodes();
    TBX_INTERNAL(nodes.size() == 1);
    return nodes[0];
  }
  void wait_for(std::vector<GraphNode> nodes) const {
    check(driver().cuStreamUpdateCaptureDependencies_v2(stream_, nodes.data(), nullptr, nodes.size(),
                                                        kSetDependencies),
          "cuStreamUpdateCaptureDependencies");
  }

  std::shared_ptr<const ContextOwner> context_;
  StreamHandle stream_ = nullptr;
  bool owned_ = true, recording_ = false;
  std::vector<GraphNode> copies_, uploads_; ///< recorded so far
  std::vector<RecordedLaunch> launches_;
  std::unique_ptr<GraphZeros> zeros_; ///< of the next graph
  Pieces<GraphNode> pieces_;
  CudaGraph* updated_ = nullptr; ///< gets the next starts of kernels
  size_t first_ = 0, next_ = 0;
  std::string refused_; ///< why the graph cannot be changed
};

} // namespace

StreamHandle handle_of(const Stream& stream) { return static_cast<StreamHandle>(stream.handle()); }

void* zeros_of_graph(const Stream& stream, size_t bytes) {
  return static_cast<const CudaStream&>(stream).zeros(bytes);
}

bool is_capturing(const Stream& stream) {
  int status = 0; // CUstreamCaptureStatus; 0: none
  check(driver().cuStreamIsCapturing(handle_of(stream), &status), "cuStreamIsCapturing");
  return status != 0;
}

std::unique_ptr<Stream> make_stream(std::shared_ptr<const ContextOwner> context) {
  return std::make_unique<CudaStream>(std::move(context));
}

std::unique_ptr<Stream> adopt_stream(std::shared_ptr<const ContextOwner> context, void* handle) {
  return std::make_unique<CudaStream>(std::move(context), static_cast<StreamHandle>(handle));
}

void record_all(const ContextOwner& context, Event& event) {
  check(driver().cuCtxRecordEvent(context.context(), handle_of(event)), "cuCtxRecordEvent");
}

bool is_reached(const Event& event) {
  const Result r = driver().cuEventQuery(handle_of(event));
  if (r != kNotReady) check(r, "cuEventQuery");
  return r == 0;
}

void wait(const Event& event) {
  check(driver().cuEventSynchronize(handle_of(event)), "waiting for the device");
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
