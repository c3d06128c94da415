// Runs the fuzz targets where the compiler has no libFuzzer, with options of the same names. Children run the
// inputs, thousands each: one that crashes or hangs leaves its input in a file, and the next one goes on.
// There is no feedback: what is run are changed inputs of the corpus.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fuzz/random.h"

// CMake defines TBX_FUZZ_TARGETS, the list of targets: TARGET(import) and so on.
extern "C" {
#define TARGET(name)                                                                                         \
  int tbx_fuzz_##name(const uint8_t* data, size_t size);                                                     \
  __attribute__((weak)) size_t tbx_mutate_##name(uint8_t*, size_t, size_t, unsigned);
TBX_FUZZ_TARGETS
#undef TARGET
size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);
/// What the targets count (tests/fuzz/runs.h).
uint64_t tbx_fuzz_runs = 0;

/// Most of the time of small inputs is the sanitizer's: long stacks of every allocation, and freed memory
/// that is kept until no cache holds any of it. Crashes can be looked at with
/// ASAN_OPTIONS=malloc_context_size=30.
__attribute__((visibility("default"))) const char* __asan_default_options() {
  return "malloc_context_size=0:quarantine_size_mb=1:thread_local_quarantine_size_kb=64:max_malloc_fill_size="
         "64:"
         "allocator_may_return_null=1:detect_leaks=0:detect_stack_use_after_return=0:use_sigaltstack=0";
}

/// For every frame that an exception leaves, the sanitizer asks for the stack of signals, which takes a call
/// of the system, and clears the marks of all of it. Here is none (use_sigaltstack=0).
__attribute__((visibility("default"))) int sigaltstack(const stack_t*, stack_t* old) noexcept {
  if (old) *old = {.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
  return 0;
}
}

namespace {

struct Target {
  std::string_view name;
  int (*run)(const uint8_t*, size_t);
  size_t (*mutate)(uint8_t*, size_t, size_t, unsigned); ///< null: bytes are changed
};
constexpr Target kTargets[] = {
#define TARGET(name) {#name, tbx_fuzz_##name, tbx_mutate_##name},
    TBX_FUZZ_TARGETS
#undef TARGET
};

namespace fs = std::filesystem;
using Bytes = std::vector<uint8_t>;
constexpr size_t kMaxSize = 1 << 20;
constexpr uint64_t kInputsOfAChild = 20'000; ///< then another one begins with memory as it was
constexpr uint64_t kChanges = 6;             ///< of an input of the corpus, each of which is run

tbx::fuzz::Random bytes_random; // of LLVMFuzzerMutate

/// What a child works on, for the parent to see.
struct Shared {
  std::atomic<uint64_t> done;
  std::atomic<uint64_t> runs; ///< what the target counted
  std::atomic<size_t> size;
  uint8_t data[kMaxSize];
};

struct Options {
  const Target* target = nullptr;
  std::map<std::string, std::string> values;
  std::vector<Bytes> corpus;

  int64_t number(const char* name, int64_t otherwise) const {
    auto it = values.find(name);
    return it == values.end() ? otherwise : std::stoll(it->second);
  }
};

void add_corpus(Options& options, const fs::path& path) {
  auto add = [&](const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    Bytes bytes((std::istreambuf_iterator<char>(in)), {});
    if (bytes.size() <= kMaxSize) options.corpus.push_back(std::move(bytes));
  };
  if (!fs::is_directory(path)) return add(path);
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(path))
    if (entry.is_regular_file() && entry.path().extension() != ".pb" && entry.path().extension() != ".txt")
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) add(file);
}

/// Inputs `first`, `first` + 1, ... of the series that the seed gives: the corpus, then changes of it. An
/// input is changed and run several times, each time on top of what was changed before.
[[noreturn]] void child(const Options& options, Shared& shared, uint64_t first, uint64_t last) {
  const auto seed = static_cast<uint64_t>(options.number("seed", 1));
  const size_t n = options.corpus.size();
  uint64_t changes = kChanges;
  for (uint64_t i = first; i < last; ++i) {
    shared.done = i;
    tbx::fuzz::Random random(seed * 1'000'003 + i);
    bytes_random.seed(random());
    size_t size = shared.size;
    if (i < n || changes == kChanges) {
      // First the corpus as it is, from another place for every seed: runs that end early see all of it, too.
      const Bytes& from = options.corpus[(i < n ? i + seed * 7919 : random()) % n];
      size = shared.size = from.size();
      std::copy(from.begin(), from.end(), shared.data);
      changes = i < n ? kChanges : 0;
    }
    if (i >= n) {
      ++changes;
      size = options.target->mutate
                 ? options.target->mutate(shared.data, size, kMaxSize, static_cast<unsigned>(random()))
                 : LLVMFuzzerMutate(shared.data, size, kMaxSize);
      shared.size = size;
    }
    const Bytes input(shared.data, shared.data + size); // exactly as large as it is, for the sanitizers
    options.target->run(input.data(), input.size());
    shared.runs += std::exchange(tbx_fuzz_runs, 0);
  }
  shared.done = last;
  std::_Exit(0);
}

void keep(const Options& options, const Shared& shared, const char* what) {
  auto prefix = options.values.find("artifact_prefix");
  std::string name = (prefix == options.values.end() ? "" : prefix->second) + what + "-" +
                     std::to_string(options.number("seed", 1)) + "-" + std::to_string(shared.done.load());
  std::ofstream(name, std::ios::binary)
      .write(reinterpret_cast<const char*>(shared.data), static_cast<std::streamsize>(shared.size.load()));
  std::fprintf(stderr, "==== %s: input %llu is in %s\n", what,
               static_cast<unsigned long long>(shared.done.load()), name.c_str());
}

/// Waits for a child; ends one that is with an input for longer than `timeout` seconds.
int wait_for(pid_t pid, const Shared& shared, int64_t timeout, std::chrono::steady_clock::time_point end,
             bool& hung) {
  using Clock = std::chrono::steady_clock;
  auto since = Clock::now();
  uint64_t seen = UINT64_MAX;
  for (;;) {
    int status = 0;
    if (::waitpid(pid, &status, WNOHANG) == pid) return status;
    if (shared.done != seen) {
      seen = shared.done;
      since = Clock::now();
    }
    hung = Clock::now() - since > std::chrono::seconds(timeout);
    if (hung || Clock::now() > end) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, &status, 0);
      return hung ? status : 0;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

} // namespace

/// Bytes changed, inserted and taken out.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size) {
  auto below = [](size_t n) { return n ? bytes_random() % n : 0; };
  switch (below(3)) {
  case 0:
    if (size > 0) data[below(size)] ^= static_cast<uint8_t>(1 << below(8));
    return size;
  case 1: {
    if (size >= max_size) return size;
    const size_t at = below(size + 1);
    std::memmove(data + at + 1, data + at, size - at);
    data[at] = static_cast<uint8_t>(below(256));
    return size + 1;
  }
  default: {
    const size_t at = below(size), n = std::min(size - at, below(16));
    std::memmove(data + at, data + at + n, size - at - n);
    return size - n;
  }
  }
}

int main(int argc, char** argv) {
  Options options;
  std::string names;
  for (const Target& t : kTargets) {
    names += (names.empty() ? "" : "|") + std::string(t.name);
    if (argc > 1 && t.name == argv[1]) options.target = &t;
  }
  for (int i = 2; i < argc; ++i) {
    std::string arg = argv[i];
    const size_t equal = arg.find('=');
    if (arg[0] == '-' && equal != std::string::npos)
      options.values[arg.substr(1, equal - 1)] = arg.substr(equal + 1);
    else
      add_corpus(options, arg);
  }
  if (!options.target || options.corpus.empty()) {
    std::fprintf(stderr,
                 "usage: %s %s [-seed=1] [-runs=N] [-max_total_time=SECONDS] [-timeout=SECONDS] "
                 "[-artifact_prefix=PATH] FILE|FOLDER...\n",
                 argv[0], names.c_str());
    return 2;
  }
  const int64_t seconds = options.number("max_total_time", 0), runs = options.number("runs", -1);
  const auto end = std::chrono::steady_clock::now() +
                   (seconds > 0 ? std::chrono::seconds(seconds) : std::chrono::hours(10'000));
  // Without a limit of either kind the files are run as they are.
  const uint64_t last = runs >= 0     ? options.corpus.size() + static_cast<uint64_t>(runs)
                        : seconds > 0 ? UINT64_MAX
                                      : options.corpus.size();
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 2;
  auto& shared = *new (memory) Shared();
  uint64_t first = 0, bad = 0;
  while (first < last && std::chrono::steady_clock::now() < end) {
    shared.done = first;
    const pid_t pid = ::fork();
    if (pid == 0) child(options, shared, first, std::min(last, first + kInputsOfAChild));
    bool hung = false;
    const int status = wait_for(pid, shared, options.number("timeout", 20), end, hung);
    if (status == 0) {
      first = shared.done;
      continue;
    }
    first = shared.done + 1;
    keep(options, shared, hung ? "timeout" : "crash");
    ++bad;
  }
  const auto number = [](uint64_t n) { return static_cast<unsigned long long>(n); };
  std::fprintf(stderr, "==== %s: %llu inputs, %llu of them bad", argv[1], number(first), number(bad));
  if (shared.runs > 0) std::fprintf(stderr, ", %llu runs", number(shared.runs));
  std::fprintf(stderr, "\n");
  return bad ? 1 : 0;
}
