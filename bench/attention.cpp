// The attention kernel of the CPU in shapes of networks: operations of its two products per second, and the
// time of a call over that of these products at the speed that its tiles have in cache. usage:
// tbx_bench_attention [threads]
#include <fmt/format.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>

#include "base/float_formats.h"
#include "extern_kernels/attention/blocks.h"
#include "extern_kernels/kernel.h"

namespace {

using namespace tbx;
using namespace tbx::extern_kernels;

struct Shape {
  const char* name;
  int64_t batch, heads, queries, keys, width;
  bool causal = false;
};

constexpr Shape kShapes[] = {
    {"bert 128", 1, 12, 128, 128, 64},      {"vit", 1, 12, 197, 197, 64},
    {"bert 512", 1, 12, 512, 512, 64},      {"whisper", 1, 6, 1500, 1500, 64},
    {"unet", 1, 8, 1024, 1024, 40},         {"unet, text", 1, 8, 4096, 77, 40},
    {"prefill", 1, 12, 512, 512, 64, true}, {"prefill", 1, 12, 2048, 2048, 128, true},
};

template <class F> double least_seconds(F&& call) {
  double least = 1e30, all = 0;
  for (int i = 0; i < 3 || all < 1; ++i) {
    const auto start = std::chrono::steady_clock::now();
    call();
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    least = std::min(least, took);
    all += took;
  }
  return least;
}

/// Operations per second of one thread: a product of the kernel's own blocks that stay in the first-level
/// cache.
double speed(const attention::Blocks& b) {
  constexpr int64_t kRows = 48, kDepth = 64, kTimes = 100;
  const int64_t words = kDepth / b.per_word;
  std::vector<float> rows(kRows * words), panel(words * b.panel), sums(kRows * b.panel);
  if (b.begin) b.begin();
  const double seconds = least_seconds([&] {
    for (int64_t i = 0; i < kTimes; ++i)
      b.multiply(rows.data(), words, kRows, words, panel.data(), words, 0, b.panel, sums.data(), b.panel,
                 false);
  });
  if (b.end) b.end();
  return 2.0 * kTimes * kRows * kDepth * b.panel / seconds;
}

/// [batch, heads, rows, width] of normal numbers, or zeros without `random`; tokens come first in memory.
struct Operand {
  Tensor memory;
  std::vector<int64_t> sizes, strides;

  Operand(const Shape& s, int64_t rows, DType type, std::mt19937* random)
      : memory(Tensor::make(type, {s.batch, rows, s.heads, s.width})), sizes{s.batch, s.heads, rows, s.width},
        strides{rows * s.heads * s.width, s.width, s.heads * s.width, 1} {
    std::vector<float> numbers(static_cast<size_t>(memory.numel()));
    std::normal_distribution<float> normal;
    if (random)
      for (float& x : numbers) x = normal(*random);
    if (type == DType::f32)
      std::copy(numbers.begin(), numbers.end(), memory.as_mutable<float>().begin());
    else
      encode_halves(type, numbers.data(), memory.numel(), memory.as_mutable<uint16_t>().data());
  }
  TensorRef ref() { return {memory.mutable_data(), memory.dtype, sizes, strides}; }
  OperandInfo info() const { return {memory.dtype, sizes, {}, nullptr}; }
};

double seconds_of(const Shape& s, DType type) {
  AttentionProblem p{0.125f};
  p.causal = s.causal;
  std::mt19937 random(1);
  Operand q(s, s.queries, type, &random), k(s, s.keys, type, &random), v(s, s.keys, type, &random),
      y(s, s.queries, type, nullptr);
  const std::vector<OperandInfo> infos{q.info(), k.info(), v.info()}, results{y.info()};
  const auto kernel = select(Problem(p), infos, results).kernel;
  const std::vector<TensorRef> in{q.ref(), k.ref(), v.ref()}, out{y.ref()};
  Tensor workspace = Tensor::make(DType::f32, {kernel->workspace_bytes(in, out) / 4});
  return least_seconds([&] { kernel->run({in, out, nullptr, workspace.mutable_data()}); });
}

} // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::stoi(argv[1]) : 1;
  tbb::task_arena(threads).execute([&] {
    for (const DType type : {DType::f32, DType::bf16}) {
      const attention::Blocks* b = type == DType::f32         ? &attention::blocks()
                                   : attention::tile_blocks() ? attention::tile_blocks()
                                                              : attention::bf16_blocks();
      if (!b) continue;
      const double peak = speed(*b) * threads;
      for (const Shape& s : kShapes) {
        const auto scores = static_cast<double>(s.batch * s.heads * s.queries * s.keys);
        const double work = 4 * scores * static_cast<double>(s.width) / (s.causal ? 2 : 1),
                     took = seconds_of(s, type);
        fmt::print("{:5} {:10} {:2} x {:4} x {:4} x {:3}{}: {:6.1f} GFLOP/s, {:.2f} of its products\n",
                   name_of(type), s.name, s.heads, s.queries, s.keys, s.width, s.causal ? " causal" : "",
                   work / took * 1e-9, took * peak / work);
      }
    }
  });
}
