// What this machine can do at best, as one line of JSON: products per second of each type out of registers,
// and bytes per second read from memory, with a number of threads; of two threads or more also bytes per
// second that one reads of what it has just written itself, and of what another one has. Built and run by
// peak.py with the compiler and the instructions of this machine.
//
//     peak THREADS SECONDS
#include <immintrin.h>
#include <sys/mman.h>
#if defined(__AMX_TILE__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// The best of several short turns of all threads at once: others on the machine only ever make a turn slower.
template <typename Work> double best_rate(int threads, double seconds, double amount_of_a_turn, Work work) {
  double best = 0;
  const Clock::time_point begin = Clock::now();
  do {
    std::atomic<int> ready{0};
    std::vector<double> taken(threads);
    std::vector<std::thread> others;
    auto turn = [&](int thread) {
      ready++;
      while (ready < threads) std::this_thread::yield();
      const Clock::time_point start = Clock::now();
      work(thread);
      taken[thread] = since(start);
    };
    for (int t = 1; t < threads; ++t) others.emplace_back(turn, t);
    turn(0);
    for (std::thread& other : others) other.join();
    best = std::max(best, amount_of_a_turn * threads / *std::max_element(taken.begin(), taken.end()));
  } while (since(begin) < seconds);
  return best;
}

/// Bytes per second at which a thread reads what was written just before, by itself or by another one: the
/// median of many turns, since a virtual machine's cores may be near each other at one time and far at
/// another.
double rate_after_writing(bool by_another, double seconds) {
  constexpr size_t kWords = (size_t{256} << 10) / sizeof(uint64_t); // fits a second level cache
  std::vector<uint64_t> memory(kWords);
  std::atomic<int> turn{0}; // even: to be written, odd: to be read
  std::atomic<bool> done{false};
  const auto write = [&](int number) {
    for (uint64_t& word : memory) word = static_cast<uint64_t>(number);
  };
  std::thread other([&] {
    for (int number = 0; by_another && !done; std::this_thread::yield())
      if (turn == number) {
        write(number);
        turn = number + 1;
        number += 2;
      }
  });
  std::vector<double> rates;
  uint64_t total = 0;
  const Clock::time_point begin = Clock::now();
  for (int number = 0; rates.size() < 3 || since(begin) < seconds; number += 2) {
    if (!by_another) {
      write(number);
      turn = number + 1;
    }
    while (turn != number + 1) {
    }
    const Clock::time_point start = Clock::now();
    for (const uint64_t word : memory) total += word;
    asm volatile("" : "+r"(total)); // not to be put off
    rates.push_back(kWords * sizeof(uint64_t) / since(start));
    turn = number + 2;
  }
  done = true;
  other.join();
  std::nth_element(rates.begin(), rates.begin() + rates.size() / 2, rates.end());
  return rates[rates.size() / 2];
}

constexpr int kSteps = 200000;
constexpr int kChains = 12; // independent sums: enough to hide the latency of a product

// `step(sum)` is one instruction's worth of products; the sums are used so that nothing is left out.
template <typename Vector, typename Step> void run_chains(Vector start, Step step) {
  Vector sums[kChains];
  for (Vector& sum : sums) {
    sum = start;
    asm volatile("" : "+v"(sum)); // the compiler is not to know that all chains compute the same
  }
  for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sums[c] = step(sums[c]);
  }
  volatile Vector sink;
  for (const Vector& sum : sums) sink = sum;
  (void)sink;
}

#if defined(__AMX_TILE__)
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t column_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

bool allow_tiles() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

template <typename Step> void run_tiles(Step step) {
  const TileConfig config;
  _tile_loadconfig(&config);
  for (int i = 0; i < kSteps / 16; ++i) step();
  _tile_release();
}
#endif

} // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int threads = std::atoi(argv[1]);
  const double seconds = std::atof(argv[2]);
  const auto print = [](const char* name, double rate) { std::printf("\"%s\": %.4g, ", name, rate); };
  std::printf("{");
#if defined(__AVX512F__)
  const __m512 half = _mm512_set1_ps(0.5f);
  print("f32_flops", best_rate(threads, seconds, 2.0 * 16 * kChains * kSteps, [&](int) {
          run_chains(half, [&](__m512 sum) { return _mm512_fmadd_ps(sum, half, half); });
        }));
#elif defined(__AVX2__) && defined(__FMA__)
  const __m256 half = _mm256_set1_ps(0.5f);
  print("f32_flops", best_rate(threads, seconds, 2.0 * 8 * kChains * kSteps, [&](int) {
          run_chains(half, [&](__m256 sum) { return _mm256_fmadd_ps(sum, half, half); });
        }));
#endif
#if defined(__AMX_BF16__) && defined(__AMX_INT8__)
  if (allow_tiles()) {
    print("bf16_flops", best_rate(threads, seconds, 2.0 * 16 * 16 * 32 * 4 * (kSteps / 16), [](int) {
            run_tiles([] {
              _tile_dpbf16ps(0, 4, 6);
              _tile_dpbf16ps(1, 4, 7);
              _tile_dpbf16ps(2, 5, 6);
              _tile_dpbf16ps(3, 5, 7);
            });
          }));
    print("int8_flops", best_rate(threads, seconds, 2.0 * 16 * 16 * 64 * 4 * (kSteps / 16), [](int) {
            run_tiles([] {
              _tile_dpbusd(0, 4, 6);
              _tile_dpbusd(1, 4, 7);
              _tile_dpbusd(2, 5, 6);
              _tile_dpbusd(3, 5, 7);
            });
          }));
  }
#else
#if defined(__AVX512BF16__)
  const __m512bh ones = (__m512bh)_mm512_set1_epi16(0x3f80);
  print("bf16_flops", best_rate(threads, seconds, 4.0 * 16 * kChains * kSteps, [&](int) {
          run_chains(half, [&](__m512 sum) { return _mm512_dpbf16_ps(sum, ones, ones); });
        }));
#endif
#if defined(__AVX512VNNI__)
  const __m512i bytes = _mm512_set1_epi8(1);
  print("int8_flops", best_rate(threads, seconds, 8.0 * 16 * kChains * kSteps, [&](int) {
          run_chains(bytes, [&](__m512i sum) { return _mm512_dpbusd_epi32(sum, bytes, bytes); });
        }));
#endif
#endif
  // Several times what caches hold, on huge pages where there are any, each thread a part of its own.
  const size_t page = size_t{2} << 20, part = (size_t{512} << 20) / threads / page * page,
               words = part / sizeof(int64_t);
  std::vector<int64_t*> memory;
  for (int thread = 0; thread < threads; ++thread) {
    void* block = std::aligned_alloc(page, part);
    if (!block) return 1;
    madvise(block, part, MADV_HUGEPAGE);
    memory.push_back(static_cast<int64_t*>(block));
    std::fill_n(memory.back(), words, 1);
  }
  std::atomic<int64_t> sink{0};
  // One stream, or four: which is faster depends on the machine.
  const auto read = [&](size_t streams) {
    return best_rate(threads, seconds, static_cast<double>(words) * sizeof(int64_t),
                     [&, streams](int thread) {
                       const size_t each = words / streams, at_once = 512;
                       int64_t total = 0;
                       for (size_t i = 0; i < each; i += at_once)
                         for (size_t stream = 0; stream < streams; ++stream) {
                           const int64_t* from = memory[thread] + stream * each + i;
                           for (size_t k = 0; k < at_once; ++k) total += from[k];
                         }
                       sink += total;
                     });
  };
  print("bytes", std::max(read(1), read(4)));
  if (threads > 1) {
    print("own_bytes", rate_after_writing(false, seconds));
    print("neighbour_bytes", rate_after_writing(true, seconds));
  }
  std::printf("\"threads\": %d}\n", threads);
  return 0;
}
