// A fortified longjmp takes the switch to another stack for a mistake.
#undef _FORTIFY_SOURCE
#include "device/fake/emulator.h"

#include <fmt/format.h>
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>

#include "base/error.h"

namespace tbx::device::fake {

namespace {

constexpr const char* kShim =
#include "device/fake/shim.inc"
    ;
constexpr size_t kStack = 256 << 10;
constexpr unsigned kWarp = 32;

enum class State : uint8_t { ready, at_block_barrier, at_warp_barrier, done };

/// A thread of the block. Fibres are entered through a ucontext once; from then on they are switched by
/// setjmp and longjmp, which make no system call.
struct Fibre {
  std::unique_ptr<char[]> stack{new char[kStack]};
  ucontext_t first{};
  jmp_buf resume;
  State state = State::ready;
  bool started = false;
  // What it gives at an exchange or a vote.
  void* value = nullptr;
  unsigned long bytes = 0;
  int vote = 0;
};

class Block;
Block* running = nullptr; ///< the emulator runs one block at a time

class Block {
public:
  Block(const EmulatedKernel& kernel, const LaunchShape& shape, std::span<void* const> arguments,
        uint32_t seed)
      : kernel_(kernel), shape_(shape), arguments_(arguments), rng_(seed), fibres_(shape.threads),
        order_(shape.threads) {
    std::iota(order_.begin(), order_.end(), 0);
  }

  void run() {
    for (Fibre& f : fibres_) f.state = State::ready, f.started = false;
    running = this;
    for (bool waiting = true; waiting;) {
      // Any order is right on a GPU; what needs one has a race.
      std::shuffle(order_.begin(), order_.end(), rng_);
      for (unsigned t : order_)
        if (fibres_[t].state == State::ready) resume(t);
      waiting =
          std::any_of(fibres_.begin(), fibres_.end(), [](const Fibre& f) { return f.state != State::done; });
      if (waiting && !release())
        throw_backend_error("kernel {}: threads of a block wait at different barriers", kernel_.name);
    }
    running = nullptr;
  }

  static void block_barrier() { running->pause(State::at_block_barrier); }
  static void wait_before() { ++running->waited_; }
  size_t waited() const { return waited_; } ///< threads, of all blocks so far

  static void exchange(void* value, unsigned long bytes, int lane) {
    Block& b = *running;
    const unsigned me = b.current_, from = me / kWarp * kWarp + static_cast<unsigned>(lane);
    b.fibres_[me].value = value, b.fibres_[me].bytes = bytes;
    b.pause(State::at_warp_barrier); // all have given
    alignas(16) char copy[16];
    if (from < b.shape_.threads && b.fibres_[from].bytes == bytes && bytes <= sizeof copy)
      std::memcpy(copy, b.fibres_[from].value, bytes);
    else
      std::memcpy(copy, value, bytes);
    b.pause(State::at_warp_barrier); // all have read
    std::memcpy(value, copy, bytes);
  }

  static int vote(int value, bool any) {
    Block& b = *running;
    b.fibres_[b.current_].vote = value;
    b.pause(State::at_block_barrier);
    auto is_set = [](const Fibre& f) { return f.vote != 0; };
    const int out = any ? std::any_of(b.fibres_.begin(), b.fibres_.end(), is_set)
                        : std::all_of(b.fibres_.begin(), b.fibres_.end(), is_set);
    b.pause(State::at_block_barrier);
    return out;
  }

private:
  void resume(unsigned t) {
    current_ = t;
    kernel_.shared->thread = {t, 0, 0};
    if (_setjmp(scheduler_) != 0) return; // the fibre has come back
    Fibre& f = fibres_[t];
    if (f.started) _longjmp(f.resume, 1);
    f.started = true;
    getcontext(&f.first);
    f.first.uc_stack.ss_sp = f.stack.get();
    f.first.uc_stack.ss_size = kStack;
    f.first.uc_link = nullptr;
    makecontext(&f.first, &Block::enter, 0);
    setcontext(&f.first);
  }

  static void enter() {
    Block& b = *running;
    b.kernel_.call(b.arguments_.data());
    b.fibres_[b.current_].state = State::done;
    _longjmp(b.scheduler_, 1);
  }

  void pause(State why) {
    Fibre& f = fibres_[current_];
    f.state = why;
    if (_setjmp(f.resume) == 0) _longjmp(scheduler_, 1);
  }

  /// Lets those go on whose barrier everybody has reached. False when there is none.
  bool release() {
    bool any = false;
    auto all_at = [&](size_t begin, size_t end, State barrier) {
      bool some = false;
      for (size_t t = begin; t < end; ++t) {
        if (fibres_[t].state != barrier && fibres_[t].state != State::done) return false;
        some |= fibres_[t].state == barrier;
      }
      return some;
    };
    auto let_go = [&](size_t begin, size_t end, State barrier) {
      if (!all_at(begin, end, barrier)) return;
      for (size_t t = begin; t < end; ++t)
        if (fibres_[t].state == barrier) fibres_[t].state = State::ready;
      any = true;
    };
    for (size_t w = 0; w < fibres_.size(); w += kWarp)
      let_go(w, std::min(fibres_.size(), w + kWarp), State::at_warp_barrier);
    let_go(0, fibres_.size(), State::at_block_barrier);
    return any;
  }

  const EmulatedKernel& kernel_;
  const LaunchShape& shape_;
  std::span<void* const> arguments_;
  std::mt19937 rng_;
  std::vector<Fibre> fibres_;
  std::vector<unsigned> order_;
  unsigned current_ = 0;
  size_t waited_ = 0;
  jmp_buf scheduler_;
};

} // namespace

std::string emulated_source(std::string_view source, const std::vector<std::string>& kernels) {
  std::string out = std::string(kShim) + std::string(source);
  for (const std::string& k : kernels)
    out += fmt::format(
        "extern \"C\" void emulate_{0}(void* const* arguments) {{ emulated_call(&tbx::{0}, arguments); }}\n"
        "extern \"C\" unsigned long size_{0}(int i) {{ return emulated_size(&tbx::{0}, i); }}\n",
        k);
  return out;
}

void emulate(const EmulatedKernel& kernel, const LaunchShape& shape, std::span<void* const> arguments,
             uint32_t seed) {
  static std::mutex one_at_a_time; // shared memory of a kernel is one static object
  std::scoped_lock lock(one_at_a_time);
  Shared& s = *kernel.shared;
  s.block_dim = {shape.threads, 1, 1};
  s.grid_dim = {shape.blocks, 1, 1};
  s.block_barrier = &Block::block_barrier;
  s.exchange = &Block::exchange;
  s.vote = &Block::vote;
  s.wait_before = &Block::wait_before;
  Block block(kernel, shape, arguments, seed);
  std::vector<unsigned> order(shape.blocks);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(seed));
  for (unsigned b : order) {
    s.block = {b, 0, 0};
    block.run();
  }
  const size_t threads = size_t{shape.blocks} * shape.threads;
  if (shape.overlap && block.waited() != threads)
    throw_backend_error("kernel {} may start early, and {} of its {} threads wait for the one before it",
                        kernel.name, block.waited(), threads);
}

} // namespace tbx::device::fake
