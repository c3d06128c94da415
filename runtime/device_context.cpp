#include "runtime/device_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/error.h"

namespace tbx::runtime {
namespace {

constexpr size_t kMostGraphs = 16; ///< of a context

/// A device records one stream at a time.
std::mutex& recording() {
  static std::mutex one;
  return one;
}

} // namespace

DeviceContext::DeviceContext(const BoundExecutable& bound)
    : bound_(bound), on_(*bound.on_device), pool_(*on_.device), staging_(*on_.device),
      reports_(on_.num_check_slots > 0
                   ? on_.device->allocate(static_cast<size_t>(on_.num_check_slots) * kCheckBytes)
                   : nullptr),
      stream_(on_.device->make_stream()) {}

DeviceContext::~DeviceContext() {
  try {
    stream_->synchronize();
  } catch (const std::exception&) { // who waited for the work was told
  }
}

void DeviceContext::begin() {
  downloads_.clear();
  staging_.reset();
  marks_ = 0;
  if (reports_) stream_->fill(reports_->data(), 0, reports_->bytes());
}

std::byte* DeviceContext::arena(int64_t bytes) {
  const auto wanted = static_cast<size_t>(bytes);
  if (!arena_ || arena_->bytes() < wanted) {
    stream_->synchronize();
    recorded_.clear();
    arena_.reset();
    arena_ = on_.device->allocate(wanted);
  }
  return static_cast<std::byte*>(arena_->data());
}

void DeviceContext::launch(size_t step, const StepShape& shape, std::span<void* const> buffers,
                           void* scratch) {
  const auto& kernel = std::get<KernelStep>(bound_.executable->steps[step].what);
  if (shape.tasks <= 0) return;
  // Parameters: buffers, sizes, the range of tasks, scratch, where checks report.
  arguments_.clear();
  for (void* const& p : buffers) arguments_.push_back(const_cast<void**>(&p));
  for (const int64_t& s : shape.size_args) arguments_.push_back(const_cast<int64_t*>(&s));
  int64_t begin = 0, end = shape.tasks;
  const int slot = on_.check_slots[step];
  void* report = slot < 0
                     ? nullptr
                     : static_cast<std::byte*>(reports_->data()) + static_cast<size_t>(slot) * kCheckBytes;
  for (void* p : {static_cast<void*>(&begin), static_cast<void*>(&end), static_cast<void*>(&scratch),
                  static_cast<void*>(&report)})
    arguments_.push_back(p);
  stream_->launch(on_.kernels[step],
                  {static_cast<uint32_t>(shape.blocks), static_cast<uint32_t>(kernel.launch.threads),
                   static_cast<uint32_t>(kernel.launch.shared_bytes)},
                  arguments_);
}

void DeviceContext::upload(void* to, const void* from_host, size_t bytes) {
  if (bytes == 0) return;
  std::byte* staged = staging_.get(bytes);
  std::memcpy(staged, from_host, bytes);
  stream_->upload(to, staged, bytes);
}

void DeviceContext::download(void* to_host, const void* from, size_t bytes) {
  if (bytes == 0) return;
  std::byte* staged = staging_.get(bytes);
  stream_->download(staged, from, bytes);
  downloads_.push_back({staged, to_host, bytes});
}

void DeviceContext::wait() {
  std::byte* reports = nullptr;
  if (reports_) {
    reports = staging_.get(reports_->bytes());
    stream_->download(reports, reports_->data(), reports_->bytes());
  }
  stream_->synchronize();
  if (reports) check_failures(reinterpret_cast<const int64_t*>(reports));
  for (const Download& d : downloads_) std::memcpy(d.to, d.staged, d.bytes);
  downloads_.clear();
  staging_.reset();
  pool_.trim();
}

/// The first step that failed, as a run on the host would have ended there.
void DeviceContext::check_failures(const int64_t* reports) const {
  const Executable& plan = *bound_.executable;
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    if (on_.check_slots[s] < 0) continue;
    const int64_t* report = reports + static_cast<size_t>(on_.check_slots[s]) * 3;
    if (report[0] == 0) continue;
    const auto& kernel = std::get<KernelStep>(plan.steps[s].what);
    Error e(ErrorKind::model, fmt::format("index {} is outside an axis of size {}", report[1], report[2]));
    const auto check = static_cast<size_t>(report[0] - 1);
    if (check < kernel.check_origins.size() && kernel.check_origins[check] >= 0)
      e.set_where(nodes_of(plan, {&kernel.check_origins[check], 1}));
    e.set_where(nodes_of(plan, plan.steps[s].origins));
    throw e;
  }
}

void DeviceContext::replay(const std::vector<int64_t>& symbols, const std::function<void()>& work) {
  auto it = std::find_if(recorded_.begin(), recorded_.end(),
                         [&](const Recorded& r) { return r.symbols == symbols; });
  if (it == recorded_.end()) {
    recorded_.push_front({symbols, nullptr});
    if (recorded_.size() > kMostGraphs) recorded_.pop_back();
    return work();
  }
  recorded_.splice(recorded_.begin(), recorded_, it);
  Recorded& mine = recorded_.front();
  if (!mine.graph) {
    std::scoped_lock lock(recording());
    stream_->begin_capture();
    try {
      work();
    } catch (...) {
      try {
        stream_->end_capture();
      } catch (const std::exception&) { // the first error counts
      }
      throw;
    }
    mine.graph = stream_->end_capture();
  }
  if (mine.graph->nodes() > 0) stream_->launch(*mine.graph);
}

size_t DeviceContext::graphs() const {
  return static_cast<size_t>(std::count_if(recorded_.begin(), recorded_.end(),
                                           [](const Recorded& r) { return r.graph != nullptr; }));
}

size_t DeviceContext::mark() {
  if (marks_ == events_.size()) events_.push_back(on_.device->make_event());
  stream_->record(*events_[marks_]);
  return marks_++;
}

int64_t DeviceContext::elapsed_ns(size_t from, size_t to) const {
  return static_cast<int64_t>(on_.device->elapsed_ms(*events_[from], *events_[to]) * 1e6);
}

} // namespace tbx::runtime
