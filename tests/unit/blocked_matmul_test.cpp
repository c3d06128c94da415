// Blocked products with packed weights against plain loops in double.
#include <gtest/gtest.h>
#include <tbb/task_arena.h>

#include <bit>
#include <thread>

#include "base/caches.h"
#include "base/isa.h"
#include "product_check.h"

namespace tbx::extern_kernels {

std::string supports_blocked_matmul(const Problem&, std::span<const OperandInfo>,
                                    std::span<const OperandInfo>, const Target&);
std::unique_ptr<ExternKernel> make_blocked_matmul(const Problem&, std::span<const OperandInfo>,
                                                  std::span<const OperandInfo>);

namespace {

/// Runs the problem and compares. Operands are a, b, bias, others; an absent bias has no sizes.
void check(const MatMulProblem& p, const std::vector<Operand>& in, Operand& out) {
  std::vector<OperandInfo> infos;
  std::vector<TensorRef> inputs;
  for (size_t i = 0; i < in.size(); ++i) {
    const bool there = !in[i].sizes.empty();
    infos.push_back(i == 1 ? in[i].constant() : there ? in[i].info() : OperandInfo{});
    inputs.push_back(there ? in[i].ref() : TensorRef{});
  }
  const OperandInfo result = out.info();
  const TensorRef ref = out.ref();
  std::vector<double> before(static_cast<size_t>(element_count(out.sizes)));
  for (size_t i = 0; i < before.size(); ++i) before[i] = out.at(index_of(static_cast<int64_t>(i), out.sizes));
  for (const PostOp& op : p.post_ops)
    if (op.kind == PostOp::sum) inputs[op.operand] = ref;
  const auto kernel = make_blocked_matmul(p, infos, {&result, 1});
  run(*kernel, inputs, {&ref, 1});
  expect_product(p, in, out, before);
}

TEST(BlockedMatMul, AllSizesAreRight) {
  for (const int64_t m : {0, 1, 2, 5, 6, 7, 16, 17, 31, 64, 127, 197})
    for (const int64_t k : {1, 2, 5, 15, 16, 33, 128, 768})
      for (const int64_t n : {1, 2, 7, 15, 16, 17, 24, 31, 33, 40, 64, 65, 96, 97, 160, 200}) {
        if (m * k * n > 500'000 && (m + k + n) % 3 != 0) continue; // plain loops take their time
        std::vector<Operand> in{Operand({m, k}), Operand({k, n})};
        Operand out({m, n});
        check({}, in, out);
        if (HasFatalFailure()) return;
      }
}

TEST(BlockedMatMul, EveryPostOperationIsRight) {
  for (int kind = PostOp::relu; kind <= PostOp::sum; ++kind)
    for (const int64_t n : {5, 16, 40}) {
      if (kind == PostOp::round) continue; // half of a unit off at ties: post_ops_test.cpp
      const int64_t m = 9, k = 300;
      MatMulProblem p;
      p.post_ops = {{static_cast<PostOp::Kind>(kind), kind == PostOp::clip ? -0.5f : 0.7f, 0.6f,
                     kind >= PostOp::add ? 3 : -1}};
      for (const bool has_bias : {false, true})
        for (const Dims& sizes : {Dims{m, n}, Dims{1, n}, Dims{m, 1}, Dims{1, 1}}) {
          if (kind == PostOp::sum && sizes != Dims{m, n}) continue;
          std::vector<Operand> in{Operand({m, k}), Operand({k, n}), {}, Operand(sizes)};
          for (size_t i = 0; i < in[3].count; ++i)
            in[3].memory.data()[i] += in[3].memory.data()[i] < 0 ? -0.5f : 0.5f;
          p.has_bias = has_bias;
          if (has_bias) in[2] = Operand({1, n});
          Operand out({m, n});
          check(p, in, out);
          if (HasFatalFailure()) return;
        }
    }
}

/// Transposed, spread and repeated operands, stacks of matrices, ends and beginnings of memory.
TEST(BlockedMatMul, AnyStridesAreRight) {
  for (int trial = 0; trial < 300; ++trial) {
    const size_t rank = static_cast<size_t>(pick_between(2, 4));
    const int64_t m = pick_between(1, 40), k = pick_between(1, 400), n = pick_between(1, 70);
    Dims a, b, c, bias;
    for (size_t d = 0; d + 2 < rank; ++d) {
      c.push_back(pick_between(1, 3));
      a.push_back(pick_between(0, 3) ? c.back() : 1);
      b.push_back(pick_between(0, 2) ? 1 : c.back());
      if (a.back() == 1 && b.back() == 1) a.back() = c.back();
      bias.push_back(pick_between(0, 1) ? c.back() : 1);
    }
    a.insert(a.end(), {m, k});
    b.insert(b.end(), {k, n});
    c.insert(c.end(), {m, n});
    bias.insert(bias.end(), {pick_between(0, 1) ? m : 1, pick_between(0, 3) ? n : 1});
    auto make = [&](const Dims& sizes) {
      std::vector<int> order(rank);
      std::iota(order.begin(), order.end(), 0);
      if (pick_between(0, 2) == 0) std::swap(order[rank - 1], order[rank - 2]);
      if (rank > 2 && pick_between(0, 2) == 0) std::swap(order[rank - 3], order[rank - 2]);
      Dims strides = dense_strides(sizes, order);
      if (pick_between(0, 3) == 0)
        for (int64_t& s : strides) s *= pick_between(2, 3) == 2 ? 2 : 3;
      return Operand(sizes, strides, pick_between(0, 1));
    };
    MatMulProblem p;
    p.alpha = pick_between(0, 2) ? 1 : 0.5f;
    std::vector<Operand> in{make(a), make(b), {}, make(c), make(bias)};
    p.has_bias = pick_between(0, 1);
    if (p.has_bias) in[2] = make(bias);
    if (pick_between(0, 1)) p.post_ops.push_back({pick_between(0, 1) ? PostOp::add : PostOp::mul, 0, 0, 3});
    if (pick_between(0, 1)) p.post_ops.push_back({PostOp::relu});
    if (pick_between(0, 1)) p.post_ops.push_back({PostOp::sub, 0, 0, 4});
    // Elements of a result do not lie on each other: strides of its own order only.
    Operand out(c, dense_strides(c, {}), pick_between(0, 1));
    if (pick_between(0, 2) == 0) {
      Dims wide = out.strides;
      for (int64_t& s : wide) s *= 2;
      out = Operand(c, wide);
    }
    check(p, in, out);
    if (HasFatalFailure()) return;
  }
}

/// Neither threads nor caches change a bit.
TEST(BlockedMatMul, ThreadsAndCachesChangeNothing) {
  for (const auto& [m, k, n] :
       std::vector<std::tuple<int64_t, int64_t, int64_t>>{{130, 700, 200}, {7, 300, 1000}, {900, 40, 20}}) {
    const Operand a({m, k}), b({k, n}), bias({1, n});
    std::vector<OperandInfo> infos{a.info(), b.constant(), bias.info()};
    MatMulProblem p;
    p.has_bias = true;
    p.post_ops = {{PostOp::gelu_erf}};
    std::vector<TensorRef> inputs{a.ref(), b.ref(), bias.ref()};
    std::vector<uint32_t> first;
    for (const Caches& caches :
         {Caches{}, Caches{8 << 10, 64 << 10, 64 << 10}, Caches{48 << 10, 2 << 20, 8 << 20}})
      for (const int threads : {1, 2, 8}) {
        const PretendedCaches pretended(caches);
        Operand out({m, n});
        const OperandInfo result = out.info();
        const TensorRef ref = out.ref();
        tbb::task_arena arena(threads);
        arena.execute([&] { run(*make_blocked_matmul(p, infos, {&result, 1}), inputs, {&ref, 1}); });
        std::vector<uint32_t> bits(out.count);
        for (size_t i = 0; i < bits.size(); ++i) bits[i] = std::bit_cast<uint32_t>(out.memory.data()[i]);
        if (first.empty()) first = bits;
        ASSERT_EQ(first, bits) << threads << " threads, caches of " << caches.l1_bytes;
      }
  }
}

/// One kernel, many callers with row counts of their own. A row's results do not depend on how many there
/// are.
TEST(BlockedMatMul, CallersShareAKernel) {
  const int64_t k = 200, n = 90, most = 61;
  const Operand a({most, k}), b({k, n});
  const std::vector<OperandInfo> infos{{DType::f32, {-1, k}, {k, 1}, nullptr}, b.constant()};
  const OperandInfo result{DType::f32, {-1, n}, {n, 1}, nullptr};
  const auto kernel = make_blocked_matmul(MatMulProblem(), infos, {&result, 1});
  auto product_of = [&](int64_t rows) {
    Operand out({rows, n});
    Operand some = a;
    some.sizes[0] = rows;
    const std::vector<TensorRef> inputs{some.ref(), b.ref()};
    const TensorRef ref = out.ref();
    run(*kernel, inputs, {&ref, 1});
    return std::vector<float>(out.memory.data(), out.memory.data() + out.count);
  };
  const std::vector<float> all = product_of(most);
  std::vector<std::thread> callers;
  for (int c = 0; c < 8; ++c)
    callers.emplace_back([&, c] {
      for (int64_t rows = 1 + c; rows < most; rows += 3) {
        const std::vector<float> some = product_of(rows);
        EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << rows << " rows";
      }
    });
  for (std::thread& t : callers) t.join();
}

/// Sizes of real layers, on several threads, whose parts are fetched while others are multiplied by.
TEST(BlockedMatMul, LayersAreRight) {
  for (const auto& [m, k, n] : {std::tuple<int64_t, int64_t, int64_t>{64, 768, 2304},
                                {12, 3072, 768},
                                {49, 2048, 520},
                                {130, 512, 2000}}) {
    std::vector<Operand> in{Operand({m, k}), Operand({k, n}), Operand({1, n}), Operand({m, n})};
    MatMulProblem p;
    p.has_bias = true;
    p.post_ops = {{PostOp::add, 0, 0, 3}};
    Operand out({m, n});
    tbb::task_arena(3).execute([&] { check(p, in, out); });
    if (HasFatalFailure()) return;
  }
}

TEST(BlockedMatMul, WithAvx512IsChosenForFewRowsAndLargeWeightsWhereMultipliersAreWide) {
  const Operand b({768, 1024}), narrow({16384, 63});
  auto refusal = [&](int64_t rows, bool wide, const Operand& weights, int64_t cache) {
    Target target;
    target.library_isa = Isa::avx512;
    target.wide_multipliers = wide;
    target.l2_bytes = cache;
    const OperandInfo left{DType::f32, {rows, weights.sizes[0]}, {}, nullptr},
        result{DType::f32, {rows, weights.sizes[1]}, {}, nullptr};
    return supports_blocked_matmul(MatMulProblem(), std::vector{left, weights.constant()}, {&result, 1},
                                   target);
  };
  constexpr int64_t kCache = 2 << 20;
  for (const int64_t rows : {-1, 9, 128, 160}) EXPECT_EQ(refusal(rows, true, b, kCache), "") << rows;
  EXPECT_EQ(refusal(8, true, b, kCache), "8 rows: not 9 to 160");
  EXPECT_EQ(refusal(161, true, b, kCache), "161 rows: not 9 to 160");
  EXPECT_EQ(refusal(128, true, b, 4 << 20), "weights that stay in the second cache, for which nobody waits");
  EXPECT_EQ(refusal(128, true, narrow, kCache), "less than 64 columns");
  EXPECT_NE(refusal(128, false, b, kCache), "");
}

TEST(BlockedMatMul, IsChosenWhereTheLibraryPacksInEveryRun) {
  const Operand a({128, 64}), b({64, 32});
  const OperandInfo out = Operand({128, 32}).info();
  const std::vector<OperandInfo> constant{a.info(), b.constant()}, variable{a.info(), b.info()};
  EXPECT_EQ(select(MatMulProblem(), constant, {&out, 1}).chosen == "blocked_matmul", host_isa() == Isa::avx2);
  EXPECT_NE(select(MatMulProblem(), variable, {&out, 1}).chosen, "blocked_matmul");
  const Operand empty({0, 32});
  EXPECT_EQ(supports_blocked_matmul(MatMulProblem(), std::vector{a.info(), empty.constant()}, {&out, 1},
                                    host_target()),
            "an empty or repeated matrix");
}

} // namespace
} // namespace tbx::extern_kernels
