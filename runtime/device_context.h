// DeviceContext: what one run needs on a device: a stream, memory at addresses that stay, page-locked memory
// for what goes in and out, and the graphs of work that was recorded. Runs at the same time have one each.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/bound_device.h"
#include "runtime/chunked_copies.h"
#include "runtime/device_checks.h"
#include "runtime/device_memory.h"
#include "runtime/shape_plan.h"
#include "runtime/step_order.h"

namespace tbx::runtime {

class DeviceContext {
public:
  using Log = std::function<void(const std::string&)>;
  /// `log`: what costs time and is not an error; none: nobody asks.
  DeviceContext(const BoundExecutable& bound, Log log);
  ~DeviceContext(); ///< waits for the device
  DeviceContext(const DeviceContext&) = delete;
  DeviceContext& operator=(const DeviceContext&) = delete;

  /// That of the run.
  device::Stream& stream() { return *run_stream_; }
  DevicePool& pool() { return pool_; }

  /// Begins a run on a stream of somebody else's, by its handle, or on the context's own. Throws what a check
  /// in a kernel found wrong in an earlier run that nobody waited for.
  void begin(std::optional<void*> stream);
  /// Memory for all buffers and the work of a plan. It moves when it has to grow, which ends recorded work.
  std::byte* arena(int64_t bytes);

  /// What comes begins behind the end of all that was asked for before. A graph does so by itself.
  void part();
  /// `buffers`: addresses by argument of the kernel.
  void launch(size_t step, const StepShape& shape, std::span<void* const> buffers, void* scratch);
  void upload(void* to, const void* from_host, size_t bytes);
  void download(void* to_host, const void* from, size_t bytes);
  /// A copy at an end of the plan as a step of its own.
  void copy_input(const EdgeUse& use);
  void copy_output(const EdgeUse& use);
  /// The device has done all that was asked of it, and downloads are where they belong. Throws what a check
  /// in a kernel found wrong, and what went wrong on the device (BackendError).
  void wait();
  /// The host reads what was downloaded.
  bool has_downloads() const { return !downloads_.empty(); }

  /// What is done with work for these sizes whose ends lie so: as it comes at first, recorded as a graph at
  /// the second time, replayed from then on. Where memory of the caller is new and sizes are not, a graph
  /// with copies takes it: `direct` ends become `copied`.
  enum class Mode { now, record, replay };
  Mode choose(const std::vector<int64_t>& symbols, std::vector<EdgeUse>& inputs,
              std::vector<EdgeUse>& outputs);
  /// What lies between the ends: steps that ask stream() for their work, with all buffers where `choose` left
  /// them.
  struct Work {
    size_t first = 0, last = 0;
    std::function<void(size_t step)> run;
    const std::vector<int64_t>& symbols; ///< of this run; `choose` may have got rounded ones
    std::span<const int> growing;        ///< steps that depend on what was rounded
    /// What the step touches of the memory that `choose` left it, for all sizes that a graph serves.
    std::function<void(size_t step, std::vector<Access>& all)> touches;
  };
  /// The copies at the ends, and `work` between them. One start of a graph, but for what goes in chunks;
  /// where sizes have grown since it was started last, or ends have moved, its kernels of growing steps, or
  /// of those that work on these ends, get other arguments before.
  void run(Mode mode, std::vector<EdgeUse>& inputs, std::vector<EdgeUse>& outputs, const Work& work);
  /// Gives the graph that was started last the sizes that it is expected to have next, while the device still
  /// works: run() has nothing to do where they are.
  void expect(const Work& work);
  /// The run is not waited for.
  void leave();
  /// The end of the last run that was left.
  const std::shared_ptr<device::Event>& left() const { return last_left_; }

  /// Runs with this number (not 0) have the same ends as the one that was done last: all of its work is in
  /// the graph that was started.
  void remember(uint64_t number);
  /// Begins a run with the number, and starts that graph. False where there is none any more.
  bool run_again(uint64_t number, std::optional<void*> stream);
  /// Waits for all runs. Throws what checks in kernels found.
  void settle();
  size_t graphs() const;

  /// A point in the stream, for times; numbered from 0 in each run.
  size_t mark();
  /// Nanoseconds between two of them, after wait().
  int64_t elapsed_ns(size_t from, size_t to) const;

private:
  struct Download {
    const std::byte* staged;
    void* to;
    size_t bytes;
  };
  using Key = std::vector<int64_t>; ///< sizes, ways of the ends, addresses of those that do not move
  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
    bool operator==(const Copy&) const = default;
  };
  struct Recorded {
    Key key;
    std::unique_ptr<device::Graph> graph;
    std::vector<Copy> copies;         ///< of its ends, as they are set
    std::vector<const void*> uploads; ///< from where, the same
    std::vector<int64_t> symbols;     ///< for which its kernels are set; empty: for none
    std::vector<const void*> places;  ///< of ends that move, for which they are set
    uint64_t number = 0;              ///< of runs for which it is set as it is; 0: of none
    struct Launches {
      size_t first, count;
    };
    std::vector<Launches> launches; ///< by step
  };
  static Key key_of(const std::vector<int64_t>& symbols, const std::vector<EdgeUse>& inputs,
                    const std::vector<EdgeUse>& outputs);
  bool find(const Key& key);
  bool was_seen(Key key);
  void stage(std::vector<EdgeUse>& inputs, std::vector<EdgeUse>& outputs);
  static std::vector<std::vector<size_t>> order_of_work(const Work& work);
  void record(const std::vector<EdgeUse>& inputs, const std::vector<EdgeUse>& outputs, const Work& work);
  void do_all(const std::vector<EdgeUse>& inputs, const std::vector<EdgeUse>& outputs,
              const std::function<void()>& steps, bool recorded);
  void note_again() const;
  bool move_launches(const Work& work, const std::vector<int>& steps);
  bool set_for(const std::vector<EdgeUse>& inputs, const std::vector<EdgeUse>& outputs, const Work& work);
  void move_copies(const std::vector<EdgeUse>& inputs, const std::vector<EdgeUse>& outputs);
  static std::vector<Copy> copies_of(const std::vector<EdgeUse>& inputs, const std::vector<EdgeUse>& outputs);
  static std::vector<const void*> uploads_of(const std::vector<EdgeUse>& inputs);
  static std::vector<const void*> places_of(const std::vector<EdgeUse>& inputs,
                                            const std::vector<EdgeUse>& outputs);
  void all_is_done();

  const BoundExecutable& bound_;
  const BoundDevice& on_;
  const Log log_;
  DevicePool pool_;
  Staging staging_;
  ChunkedCopies chunks_;
  std::unique_ptr<device::Memory> arena_;
  std::unique_ptr<device::Memory> stage_; ///< page-locked: ends of recorded work
  std::list<Recorded> recorded_;          ///< used last first
  std::deque<Key> seen_;                  ///< of work that was done and is not recorded
  std::vector<Download> downloads_;
  std::vector<std::unique_ptr<device::Event>> events_;
  size_t marks_ = 0;
  bool running_ = false; ///< a run has begun that nobody waited for, or left
  std::vector<void*> arguments_;
  /// Why the graph could not be changed, and for which step.
  struct Refused {
    size_t step = 0;
    std::string why;
  } refused_;
  /// Places for inputs of the host, which runs take in turns: one that nobody waited for may still read its
  /// own.
  struct Turn {
    std::shared_ptr<device::Event> left; ///< the end of such a run
    bool pending = false;                ///< it may not be reached
  };
  std::array<Turn, 4> turns_;
  size_t turn_ = 0;                          ///< of this run
  std::shared_ptr<device::Event> last_left_; ///< of the last of them
  std::optional<void*> left_on_;             ///< the stream of that, until it is reached
  std::unique_ptr<device::Stream> adopted_;
  std::optional<void*> adopted_as_; ///< its handle, as the caller gave it
  device::Stream* run_stream_ = nullptr;
  std::unique_ptr<device::Stream> stream_; ///< ends before the memory that its work uses
  DeviceChecks checks_;
};

} // namespace tbx::runtime
