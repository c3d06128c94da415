#include "runtime/device_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>

#include "base/error.h"
#include "runtime/device_align.h"

namespace tbx::runtime {
namespace {

constexpr size_t kMostGraphs = 16;                  ///< of a context
constexpr size_t kMostSeen = 64;                    ///< pieces of work that may come again
void* const kOfThread = reinterpret_cast<void*>(2); ///< CU_STREAM_PER_THREAD: another stream in each thread
/// A copy of nothing is no node of a graph.
bool is_copy(const EdgeUse& use) { return use.how == EdgeUse::How::copied && use.bytes > 0; }

} // namespace

DeviceContext::DeviceContext(const BoundExecutable& bound, Log log)
    : bound_(bound), on_(*bound.on_device), log_(std::move(log)), pool_(*on_.device), staging_(*on_.device),
      chunks_(*on_.device), stage_(on_.device->allocate_staging(0)), stream_(on_.device->make_stream()),
      checks_(bound, *stream_) {
  for (Turn& turn : turns_) turn.left = on_.device->make_event();
  last_left_ = turns_[0].left;
  run_stream_ = stream_.get();
}

DeviceContext::~DeviceContext() {
  try {
    if (running_) run_stream_->synchronize(); // the run failed
    settle();
  } catch (const std::exception&) { // who waited for the work was told
  }
}

void DeviceContext::settle() {
  stream_->synchronize();
  if (!left_on_) return;
  on_.device->wait(*last_left_);
  all_is_done();
  checks_.throw_found(*run_stream_);
}

/// Runs come one after the other, so all are where the last one is.
void DeviceContext::all_is_done() {
  left_on_.reset();
  for (Turn& turn : turns_) turn.pending = false;
}

void DeviceContext::begin(std::optional<void*> stream) {
  downloads_.clear();
  marks_ = 0;
  if (stream && adopted_as_ != stream) {
    adopted_as_.reset(); // should there be no such stream
    run_stream_ = stream_.get();
    adopted_ = on_.device->adopt_stream(*stream);
    adopted_as_ = stream;
  }
  running_ = true;
  run_stream_ = stream ? adopted_.get() : stream_.get();
  // What an earlier run on the same stream left is done before this one: nothing has to be asked, but for
  // what checks found.
  const bool behind = left_on_ && *left_on_ == run_stream_->handle() && *left_on_ != kOfThread;
  if (left_on_ && (checks_.any() || !behind) && on_.device->is_reached(*last_left_)) {
    all_is_done();
    checks_.throw_found(*run_stream_);
  }
  if (left_on_ && !behind) run_stream_->wait(*last_left_);
  if (!left_on_) staging_.reset();
}

void DeviceContext::leave() {
  Turn& mine = turns_[turn_];
  run_stream_->record(*mine.left);
  mine.pending = true;
  turn_ = (turn_ + 1) % turns_.size();
  last_left_ = mine.left;
  left_on_ = run_stream_->handle();
  running_ = false;
}

std::byte* DeviceContext::arena(int64_t bytes) {
  const auto wanted = static_cast<size_t>(std::max<int64_t>(1, bytes)); // part() writes there
  if (!arena_ || arena_->bytes() < wanted) {
    settle();
    recorded_.clear();
    arena_.reset();
    arena_ = on_.device->allocate(wanted);
  }
  return static_cast<std::byte*>(arena_->data());
}

/// Kernels that start early do so before kernels alone.
void DeviceContext::part() { run_stream_->fill(arena_->data(), 0, 1); }

void DeviceContext::launch(size_t step, const StepShape& shape, std::span<void* const> buffers,
                           void* scratch) {
  const auto& kernel = std::get<KernelStep>(bound_.executable->steps[step].what);
  if (shape.tasks <= 0) return;
  // Parameters: buffers, sizes, the range of tasks, scratch, where checks report.
  arguments_.clear();
  for (void* const& p : buffers) arguments_.push_back(const_cast<void**>(&p));
  for (const int64_t& s : shape.size_args) arguments_.push_back(const_cast<int64_t*>(&s));
  int64_t begin = 0, end = shape.tasks;
  void* report = checks_.slot_of(step);
  for (void* p : {static_cast<void*>(&begin), static_cast<void*>(&end), static_cast<void*>(&scratch),
                  static_cast<void*>(&report)})
    arguments_.push_back(p);
  auto start = [&](int64_t blocks) {
    run_stream_->launch(on_.kernels[step],
                        {static_cast<uint32_t>(blocks), static_cast<uint32_t>(kernel.launch.threads),
                         static_cast<uint32_t>(kernel.launch.shared_bytes),
                         kernel.launch.overlaps && on_.starts_early && blocks <= device::kMostEarlyBlocks},
                        arguments_);
  };
  if (shape.state_bytes > 0) {
    begin = shape.state_bytes / 8, end = 0;
    constexpr int64_t kWordsOfThread = 4;
    start(std::clamp<int64_t>(begin / (kWordsOfThread * kernel.launch.threads), 1, shape.blocks));
    begin = 0, end = shape.tasks;
  }
  start(shape.blocks);
}

void DeviceContext::upload(void* to, const void* from_host, size_t bytes) {
  if (bytes == 0) return;
  std::byte* staged = staging_.get(bytes);
  std::memcpy(staged, from_host, bytes);
  run_stream_->upload(to, staged, bytes);
}

void DeviceContext::download(void* to_host, const void* from, size_t bytes) {
  if (bytes == 0) return;
  std::byte* staged = staging_.get(bytes);
  run_stream_->download(staged, from, bytes);
  downloads_.push_back({staged, to_host, bytes});
}

void DeviceContext::copy_input(const EdgeUse& use) {
  if (use.how == EdgeUse::How::copied) run_stream_->copy(use.twin, use.memory, use.bytes);
  if (use.how == EdgeUse::How::staged) upload(use.twin, use.memory, use.bytes);
  if (use.how == EdgeUse::How::chunked) chunks_.upload(*run_stream_, use.twin, use.memory, use.bytes);
}

void DeviceContext::copy_output(const EdgeUse& use) {
  if (use.how == EdgeUse::How::copied) run_stream_->copy(use.memory, use.twin, use.bytes);
  if (use.how == EdgeUse::How::staged) download(use.memory, use.twin, use.bytes);
  if (use.how == EdgeUse::How::chunked) chunks_.download(*run_stream_, use.memory, use.twin, use.bytes);
}

void DeviceContext::wait() {
  run_stream_->synchronize();
  all_is_done();
  running_ = false;
  checks_.throw_found(*run_stream_);
  for (const Download& d : downloads_) std::memcpy(d.to, d.staged, d.bytes);
  downloads_.clear();
  staging_.reset();
  pool_.trim();
}

DeviceContext::Key DeviceContext::key_of(const std::vector<int64_t>& symbols,
                                         const std::vector<EdgeUse>& inputs,
                                         const std::vector<EdgeUse>& outputs) {
  Key key = symbols;
  for (const auto* uses : {&inputs, &outputs})
    for (const EdgeUse& use : *uses) {
      key.push_back(static_cast<int64_t>(use.how));
      if (is_in_place(use)) key.push_back(use.movers ? 0 : reinterpret_cast<int64_t>(use.memory));
      if (use.how == EdgeUse::How::copied) key.push_back(is_copy(use));
    }
  return key;
}

/// Makes it the first of those recorded, where it is one.
bool DeviceContext::find(const Key& key) {
  const auto it =
      std::find_if(recorded_.begin(), recorded_.end(), [&](const Recorded& r) { return r.key == key; });
  if (it == recorded_.end()) return false;
  recorded_.splice(recorded_.begin(), recorded_, it);
  return true;
}

bool DeviceContext::was_seen(Key key) {
  if (std::find(seen_.begin(), seen_.end(), key) != seen_.end()) return true;
  seen_.push_back(std::move(key));
  if (seen_.size() > kMostSeen) seen_.pop_front();
  return false;
}

DeviceContext::Mode DeviceContext::choose(const std::vector<int64_t>& symbols, std::vector<EdgeUse>& inputs,
                                          std::vector<EdgeUse>& outputs) {
  stage(inputs, outputs);
  const Key key = key_of(symbols, inputs, outputs);
  if (find(key)) return Mode::replay;
  Mode mode = was_seen(key) ? Mode::record : Mode::now;
  Key chosen = key;
  if (mode == Mode::now) {
    std::vector<EdgeUse> in = inputs, out = outputs;
    for (auto* uses : {&in, &out})
      for (EdgeUse& use : *uses)
        if (use.how == EdgeUse::How::direct) use.how = EdgeUse::How::copied;
    chosen = key_of(symbols, in, out);
    if (chosen == key) return Mode::now;
    if (find(chosen))
      mode = Mode::replay;
    else if (was_seen(chosen))
      mode = Mode::record;
    if (mode != Mode::now) inputs = std::move(in), outputs = std::move(out);
  }
  if (mode == Mode::record) {
    recorded_.emplace_front().key = std::move(chosen);
    if (recorded_.size() > kMostGraphs) recorded_.pop_back();
  }
  return mode;
}

/// Places in page-locked memory, which are the same whenever sizes are, but for the turn of inputs.
void DeviceContext::stage(std::vector<EdgeUse>& inputs, std::vector<EdgeUse>& outputs) {
  auto bytes_of = [](const std::vector<EdgeUse>& uses) {
    size_t bytes = 0;
    for (const EdgeUse& use : uses)
      if (use.how == EdgeUse::How::staged) bytes += device_aligned(use.room);
    return bytes;
  };
  const size_t of_turn = bytes_of(inputs), needed = bytes_of(outputs) + turns_.size() * of_turn;
  if (stage_->bytes() < needed) {
    settle();
    recorded_.clear();
    stage_ = on_.device->allocate_staging(needed);
  }
  std::byte* at = static_cast<std::byte*>(stage_->data());
  auto place = [&](std::vector<EdgeUse>& uses) {
    for (EdgeUse& use : uses)
      if (use.how == EdgeUse::How::staged) {
        use.stage = at;
        at += device_aligned(use.room);
      }
  };
  place(outputs);
  at += turn_ * of_turn;
  place(inputs);
}

/// The work of a run, or what is `recorded` of it: there copies wait for no other copy, which takes longer
/// than they do themselves.
void DeviceContext::do_all(const std::vector<EdgeUse>& inputs, const std::vector<EdgeUse>& outputs,
                           const std::function<void()>& steps, bool recorded) {
  using How = EdgeUse::How;
  auto beside = [&] {
    if (recorded) run_stream_->begin_piece({});
  };
  for (const EdgeUse& use : inputs) {
    if (use.how == How::staged) beside(), run_stream_->upload(use.twin, use.stage, use.room);
    if (use.how == How::copied) beside(), run_stream_->copy(use.twin, use.memory, use.bytes);
  }
  if (recorded) run_stream_->join_pieces();
  steps();
  for (const EdgeUse& use : outputs) {
    if (use.how == How::staged) beside(), run_stream_->download(use.stage, use.twin, use.room);
    if (use.how == How::copied) beside(), run_stream_->copy(use.memory, use.twin, use.bytes);
  }
  if (recorded) run_stream_->join_pieces();
}

void DeviceContext::run(Mode mode, std::vector<EdgeUse>& inputs, std::vector<EdgeUse>& outputs,
                        const Work& work) {
  using How = EdgeUse::How;
  for (const EdgeUse& use : inputs)
    if (use.how == How::chunked) chunks_.upload(*run_stream_, use.twin, use.memory, use.bytes);
  for (const EdgeUse& use : inputs) {
    if (use.how != How::staged) continue;
    Turn& mine = turns_[turn_];
    if (mine.pending) on_.device->wait(*mine.left); // the run that had it may still read it
    mine.pending = false;
    std::memcpy(use.stage, use.memory, use.bytes);
  }
  if (mode == Mode::now) {
    auto steps = [&] {
      for (size_t s = work.first; s < work.last; ++s) work.run(s);
    };
    do_all(inputs, outputs, steps, false);
  } else {
    const bool fits = mode == Mode::replay && set_for(inputs, outputs, work);
    if (mode == Mode::replay && !fits) note_again();
    if (fits)
      move_copies(inputs, outputs);
    else
      record(inputs, outputs, work);
    if (recorded_.front().graph->nodes() > 0) run_stream_->launch(*recorded_.front().graph);
  }
  for (const EdgeUse& use : outputs) {
    if (use.how == How::chunked) chunks_.download(*run_stream_, use.memory, use.twin, use.bytes);
    if (use.how == How::staged) downloads_.push_back({use.stage, use.memory, use.bytes});
  }
}

/// Steps whose results do not depend on each other run side by side, where that is asked for. Empty: one
/// after the other.
std::vector<std::vector<size_t>> DeviceContext::order_of_work(const Work& work) {
  const char* forks = std::getenv("TBX_CUDA_FORKS");
  if (!work.touches || !forks || std::string_view(forks) != "1") return {};
  std::vector<std::vector<Access>> touched(work.last - work.first);
  for (size_t s = work.first; s < work.last; ++s) work.touches(s, touched[s - work.first]);
  return order_of(touched);
}

/// As the first of those recorded. On the context's own stream: that of a caller may be one that cannot.
void DeviceContext::record(const std::vector<EdgeUse>& inputs, const std::vector<EdgeUse>& outputs,
                           const Work& work) {
  std::scoped_lock lock(recording());
  Recorded& mine = recorded_.front();
  mine.launches.clear();
  mine.number = 0;
  const std::vector<std::vector<size_t>> order = order_of_work(work);
  auto steps = [&] {
    for (size_t s = work.first; s < work.last; ++s) {
      if (!order.empty()) stream_->begin_piece(order[s - work.first]);
      const size_t before = stream_->recorded_launches();
      work.run(s);
      mine.launches.push_back({before, stream_->recorded_launches() - before});
    }
    stream_->join_pieces();
  };
  device::Stream* const run_on = run_stream_;
  run_stream_ = stream_.get();
  stream_->begin_capture();
  try {
    do_all(inputs, outputs, steps, true);
  } catch (...) {
    run_stream_ = run_on;
    recorded_.pop_front();
    try {
      stream_->end_capture();
    } catch (const std::exception&) { // the first error counts
    }
    throw;
  }
  run_stream_ = run_on;
  mine.graph = stream_->end_capture();
  mine.copies = copies_of(inputs, outputs);
  mine.uploads = uploads_of(inputs);
  mine.symbols = work.symbols;
  mine.places = places_of(inputs, outputs);
  if (run_on != stream_.get()) stream_->synchronize(); // the graph is on the device
}

/// A graph that cannot be changed is recorded again, which the run waits for.
void DeviceContext::note_again() const {
  if (!on_.recorded_again.add(refused_.step, refused_.why) || !log_) return;
  const Executable& plan = *bound_.executable;
  log_(fmt::format("{}: the graph of an earlier run has to be recorded again for other sizes, which takes "
                   "time: {}; `tbx explain --profile` has how often",
                   nodes_of(plan, plan.steps[refused_.step].origins), refused_.why));
}

/// Gives kernels of the graph that was found the sizes of this run, and the addresses of its ends. False
/// where it has to be recorded again.
bool DeviceContext::set_for(const std::vector<EdgeUse>& inputs, const std::vector<EdgeUse>& outputs,
                            const Work& work) {
  Recorded& mine = recorded_.front();
  std::vector<const void*> places = places_of(inputs, outputs);
  std::vector<int> steps;
  if (mine.symbols != work.symbols) steps.assign(work.growing.begin(), work.growing.end());
  size_t place = 0;
  for (const auto* uses : {&inputs, &outputs})
    for (const EdgeUse& use : *uses)
      if (use.movers && mine.places[place++] != use.memory)
        steps.insert(steps.end(), use.movers->begin(), use.movers->end());
  if (steps.empty()) return true;
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  std::fill(mine.places.begin(), mine.places.end(), nullptr); // until all have them
  if (!move_launches(work, steps)) return false;
  mine.places = std::move(places);
  return true;
}

/// False where other kernels compute these sizes, or the device refuses.
bool DeviceContext::move_launches(const Work& work, const std::vector<int>& steps) {
  Recorded& mine = recorded_.front();
  mine.symbols.clear(); // until all have them
  mine.number = 0;
  for (int s : steps) {
    if (static_cast<size_t>(s) < work.first || static_cast<size_t>(s) >= work.last) continue;
    const Recorded::Launches launches = mine.launches[static_cast<size_t>(s) - work.first];
    run_stream_->begin_update(*mine.graph, launches.first);
    device::GraphUpdate update;
    try {
      work.run(static_cast<size_t>(s));
      update = run_stream_->end_update();
    } catch (...) {
      run_stream_->end_update();
      throw;
    }
    if (update.refused.empty() && update.given < launches.count) update.refused = "it starts fewer kernels";
    if (update.refused.empty() && update.given > launches.count) update.refused = "it starts more kernels";
    if (!update.refused.empty()) {
      refused_ = {static_cast<size_t>(s), std::move(update.refused)};
      return false;
    }
  }
  mine.symbols = work.symbols;
  return true;
}

void DeviceContext::expect(const Work& work) {
  if (!recorded_.empty() && recorded_.front().graph && recorded_.front().symbols != work.symbols)
    move_launches(work, {work.growing.begin(), work.growing.end()});
}

std::vector<DeviceContext::Copy> DeviceContext::copies_of(const std::vector<EdgeUse>& inputs,
                                                          const std::vector<EdgeUse>& outputs) {
  std::vector<Copy> copies;
  for (const EdgeUse& use : inputs)
    if (is_copy(use)) copies.push_back({use.twin, use.memory, use.bytes});
  for (const EdgeUse& use : outputs)
    if (is_copy(use)) copies.push_back({use.memory, use.twin, use.bytes});
  return copies;
}

std::vector<const void*> DeviceContext::uploads_of(const std::vector<EdgeUse>& inputs) {
  std::vector<const void*> uploads;
  for (const EdgeUse& use : inputs)
    if (use.how == EdgeUse::How::staged) uploads.push_back(use.stage);
  return uploads;
}

std::vector<const void*> DeviceContext::places_of(const std::vector<EdgeUse>& inputs,
                                                  const std::vector<EdgeUse>& outputs) {
  std::vector<const void*> places;
  for (const auto* uses : {&inputs, &outputs})
    for (const EdgeUse& use : *uses)
      if (use.movers) places.push_back(use.memory);
  return places;
}

/// Those of inputs are the first copies of the graph, those of outputs the last.
void DeviceContext::move_copies(const std::vector<EdgeUse>& inputs, const std::vector<EdgeUse>& outputs) {
  Recorded& mine = recorded_.front();
  std::vector<Copy> wanted = copies_of(inputs, outputs);
  const auto first = static_cast<size_t>(std::count_if(inputs.begin(), inputs.end(), is_copy));
  const size_t between = mine.graph->copies() - wanted.size();
  for (size_t c = 0; c < wanted.size(); ++c)
    if (wanted[c] != mine.copies[c]) {
      mine.number = 0;
      mine.graph->move_copy(c < first ? c : c + between, wanted[c].to, wanted[c].from, wanted[c].bytes);
    }
  mine.copies = std::move(wanted);
  std::vector<const void*> uploads = uploads_of(inputs);
  for (size_t u = 0; u < uploads.size(); ++u)
    if (uploads[u] != mine.uploads[u]) {
      mine.number = 0;
      mine.graph->move_upload(u, uploads[u]);
    }
  mine.uploads = std::move(uploads);
}

void DeviceContext::remember(uint64_t number) { recorded_.front().number = number; }

bool DeviceContext::run_again(uint64_t number, std::optional<void*> stream) {
  const auto it =
      std::find_if(recorded_.begin(), recorded_.end(), [&](const Recorded& r) { return r.number == number; });
  if (it == recorded_.end()) return false;
  recorded_.splice(recorded_.begin(), recorded_, it);
  begin(stream);
  if (it->graph->nodes() > 0) run_stream_->launch(*it->graph);
  return true;
}

size_t DeviceContext::graphs() const { return recorded_.size(); }

size_t DeviceContext::mark() {
  if (marks_ == events_.size()) events_.push_back(on_.device->make_event());
  run_stream_->record(*events_[marks_]);
  return marks_++;
}

int64_t DeviceContext::elapsed_ns(size_t from, size_t to) const {
  return static_cast<int64_t>(on_.device->elapsed_ms(*events_[from], *events_[to]) * 1e6);
}

} // namespace tbx::runtime
