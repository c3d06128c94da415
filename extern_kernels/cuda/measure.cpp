#include "extern_kernels/cuda/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "device/cuda/driver.h"
#include "device/cuda/graph_zeros.h"
#include "device/cuda/nvrtc.h"

namespace tbx::extern_kernels::cuda {

using namespace device::cuda;

namespace {

constexpr size_t kCache = size_t{128} << 20; ///< more than the L2 cache of any GPU so far
constexpr int kRounds = 9, kCounted = 6;     ///< the slowest were disturbed
constexpr int kMostRounds = 5 * kRounds;

class Timer {
public:
  Timer() {
    check(driver().cuEventCreate(&from_, 0), "cuEventCreate");
    check(driver().cuEventCreate(&to_, 0), "cuEventCreate");
  }
  ~Timer() {
    driver().cuEventDestroy_v2(from_);
    driver().cuEventDestroy_v2(to_);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  void begin(StreamHandle stream) { check(driver().cuEventRecord(from_, stream), "cuEventRecord"); }
  void end(StreamHandle stream) { check(driver().cuEventRecord(to_, stream), "cuEventRecord"); }
  /// The device is past the beginning: it may have waited for the host since.
  bool has_begun() const { return driver().cuEventQuery(from_) == 0; }
  float wait() {
    float ms = 0;
    check(driver().cuEventSynchronize(to_), "cuEventSynchronize");
    check(driver().cuEventElapsedTime_v2(&ms, from_, to_), "cuEventElapsedTime");
    return ms;
  }

private:
  EventHandle from_ = nullptr, to_ = nullptr;
};

/// Work as a graph, as sessions run it: there a kernel waits longer for a memset before it than in a stream.
class Recorded {
public:
  /// Empty where the stream cannot be recorded, or the work not. Fills of `zeros` are not part of it.
  Recorded(StreamHandle stream, const Bytes& zeros, const std::function<bool()>& work) {
    constexpr int kThreadLocal = 1; // CUstreamCaptureMode
    if (driver().cuStreamBeginCapture_v2(stream, kThreadLocal) != 0) return;
    bool works = false;
    try {
      works = work();
    } catch (...) {
      end(stream);
      throw;
    }
    end(stream);
    const ZeroedPiece piece{reinterpret_cast<Pointer>(zeros.data), zeros.size, {}};
    if (works && graph_ && zeros.size > 0 && take_out_fills(graph_, {&piece, 1})) zeros_ = zeros;
    if (!works || !graph_ || driver().cuGraphInstantiateWithFlags(&exec_, graph_, 0) != 0) exec_ = nullptr;
  }
  ~Recorded() {
    if (exec_) driver().cuGraphExecDestroy(exec_);
    if (graph_) driver().cuGraphDestroy(graph_);
  }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;
  /// Ahead of start().
  void prepare(StreamHandle stream) const {
    if (zeros_.size > 0)
      check(driver().cuMemsetD8Async(reinterpret_cast<Pointer>(zeros_.data), 0, zeros_.size, stream),
            "clearing memory");
  }
  bool start(StreamHandle stream) const {
    if (exec_) check(driver().cuGraphLaunch(exec_, stream), "cuGraphLaunch");
    return exec_ != nullptr;
  }

private:
  void end(StreamHandle stream) {
    if (driver().cuStreamEndCapture(stream, &graph_) != 0) graph_ = nullptr; // what was recorded is of no use
  }
  GraphHandle graph_ = nullptr;
  GraphExec exec_ = nullptr;
  Bytes zeros_;
};

} // namespace

Scratch::Scratch(size_t bytes) {
  check(driver().cuMemAlloc_v2(&pointer_, std::max<size_t>(bytes, 256)), "memory for a measurement");
}
Scratch::~Scratch() { driver().cuMemFree_v2(pointer_); }

Bytes bytes_of(const TensorRef& t) {
  int64_t last = 0;
  for (size_t d = 0; d < t.sizes.size(); ++d) {
    if (t.sizes[d] == 0) return {t.data, 0};
    last += (t.sizes[d] - 1) * t.strides[d];
  }
  return {t.data, static_cast<size_t>((last + 1) * size_of(t.dtype))};
}

bool measuring() {
  static const bool on = [] {
    const char* given = std::getenv("TBX_CUDA_MEASURE");
    return !given || std::string_view(given) != "0";
  }();
  return on;
}

std::optional<size_t> fastest(StreamHandle stream, size_t count, std::span<const Bytes> hot,
                              const std::function<bool(size_t)>& work, std::span<const Bytes> zeros,
                              const std::function<void()>& lead) {
  const Scratch cache(kCache);
  const auto at = reinterpret_cast<Pointer>(cache.data());
  Timer timer;
  std::optional<size_t> best;
  float best_ms = 0;
  for (size_t i = 0; i < count; ++i) {
    if (!work(i)) continue; // also loads its code
    const auto led = [&] {
      if (lead) lead();
      return work(i);
    };
    const Recorded recorded(stream, zeros.empty() ? Bytes() : zeros[i], led);
    std::vector<float> times;
    // A host that is busy comes late now and then: such a round is done again.
    for (int round = 0; round < kMostRounds && static_cast<int>(times.size()) < kRounds; ++round) {
      check(driver().cuMemsetD8Async(at, 0, kCache, stream), "filling the cache");
      for (const Bytes& h : hot)
        if (h.size > 0 && h.size <= kCache / 8)
          check(driver().cuMemcpyDtoDAsync_v2(at, reinterpret_cast<Pointer>(h.data), h.size, stream),
                "reading into the cache");
      recorded.prepare(stream);
      timer.begin(stream);
      if (!recorded.start(stream)) led();
      timer.end(stream);
      const bool late = timer.has_begun() && round < kMostRounds - kRounds;
      const float ms = timer.wait();
      if (!late) times.push_back(ms);
    }
    // A sum, as clocks tick coarsely.
    std::sort(times.begin(), times.end());
    const float sum = std::accumulate(times.begin(), times.begin() + kCounted, 0.0f);
    if (!best || sum < best_ms) best = i, best_ms = sum;
  }
  return best;
}

namespace {

/// The problem with the GPU that measured it.
std::string on_gpu(const device::cuda::ContextOwner& context, const std::string& problem) {
  char name[256] = {};
  check(driver().cuDeviceGetName(name, sizeof name, context.device()), "cuDeviceGetName");
  return fmt::format("// measured on {}\n{}", name, problem);
}

constexpr const char* kAnyArchitecture = "sm_measured"; ///< the name says which

} // namespace

std::string kept_answer(const device::cuda::ContextOwner& context, const std::string& problem) {
  const auto cache = measuring() ? device::cuda::binary_cache() : nullptr;
  if (!cache) return {};
  try {
    return cache->find(on_gpu(context, problem), kAnyArchitecture).value_or("");
  } catch (const Error& e) { // the cache names what it keeps after the compiler, which may be missing
    if (e.kind() == ErrorKind::internal) throw;
    return {};
  }
}

void keep_answer(const device::cuda::ContextOwner& context, const std::string& problem,
                 const std::string& answer) {
  const auto cache = measuring() ? device::cuda::binary_cache() : nullptr;
  if (!cache) return;
  try {
    cache->keep(on_gpu(context, problem), kAnyArchitecture, answer);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::internal) throw;
  }
}

} // namespace tbx::extern_kernels::cuda
