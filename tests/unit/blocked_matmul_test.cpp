// Blocked products with packed weights against plain loops in double. Operands end, or begin, at a page that
// nobody may touch.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <tbb/task_arena.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <random>
#include <thread>

#include "base/caches.h"
#include "base/isa.h"
#include "extern_kernels_helper.h"

namespace tbx::extern_kernels {

std::string supports_blocked_matmul(const Problem&, std::span<const OperandInfo>,
                                    std::span<const OperandInfo>);
std::unique_ptr<ExternKernel> make_blocked_matmul(const Problem&, std::span<const OperandInfo>,
                                                  std::span<const OperandInfo>);

namespace {

std::mt19937 rng(20261124);
int64_t pick(int64_t lo, int64_t hi) { return std::uniform_int_distribution<int64_t>(lo, hi)(rng); }

/// Floats between two pages that cannot be read, right before the one or right behind the other.
class Guarded {
public:
  Guarded(size_t count, bool at_end) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE)), bytes = count * sizeof(float);
    inside_ = (bytes + page - 1) / page * page;
    auto* all = static_cast<std::byte*>(
        mmap(nullptr, inside_ + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(static_cast<void*>(all), MAP_FAILED);
    memory_ = {all, [n = inside_ + 2 * page](std::byte* p) { munmap(p, n); }};
    if (inside_ > 0) {
      EXPECT_EQ(mprotect(all + page, inside_, PROT_READ | PROT_WRITE), 0);
    }
    data_ = reinterpret_cast<float*>(all + page + (at_end ? inside_ - bytes : 0));
  }
  float* data() const { return data_; }

private:
  size_t inside_;
  std::shared_ptr<std::byte> memory_;
  float* data_;
};

struct Operand {
  Dims sizes, strides;
  size_t count = 0; ///< floats from the first to the last
  Guarded memory{0, true};

  Operand() = default;
  Operand(Dims s, Dims steps, bool at_end = true) : sizes(std::move(s)), strides(std::move(steps)) {
    int64_t last = 0, all = 1;
    for (size_t d = 0; d < sizes.size(); ++d) {
      last += (sizes[d] - 1) * strides[d];
      all *= sizes[d];
    }
    count = all == 0 ? 0 : static_cast<size_t>(last + 1);
    memory = Guarded(count, at_end);
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < count; ++i) memory.data()[i] = normal(rng);
  }
  explicit Operand(Dims s) : Operand(s, dense_strides(s, {})) {}

  TensorRef ref() const { return {memory.data(), DType::f32, sizes, strides}; }
  OperandInfo info() const { return {DType::f32, sizes, strides, nullptr}; }
  /// With its elements as a constant of one dimension.
  OperandInfo constant() const {
    OperandInfo i = info();
    Tensor t = Tensor::make(DType::f32, {static_cast<int64_t>(count)});
    std::copy_n(memory.data(), count, t.as_mutable<float>().begin());
    i.constant = std::make_shared<const Tensor>(std::move(t));
    return i;
  }
  /// The element at an index of the result, or nearer: dimensions of one element are repeated.
  double at(const Dims& index) const {
    int64_t place = 0;
    for (size_t d = 0; d < sizes.size(); ++d) place += sizes[d] == 1 ? 0 : index[d] * strides[d];
    return memory.data()[place];
  }
};

double value_of(const PostOp& op, double x, double other) {
  auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  switch (op.kind) {
  case PostOp::relu: return std::max(x, 0.0);
  case PostOp::leaky_relu: return x < 0 ? op.alpha * x : x;
  case PostOp::clip:
    return std::min(std::max(x, static_cast<double>(op.alpha)), static_cast<double>(op.beta));
  case PostOp::gelu_erf: return x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
  case PostOp::gelu_tanh: return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  case PostOp::silu: return x * sigmoid(op.alpha * x);
  case PostOp::sigmoid: return sigmoid(x);
  case PostOp::tanh: return std::tanh(x);
  case PostOp::hard_sigmoid: return std::min(std::max(op.alpha * x + op.beta, 0.0), 1.0);
  case PostOp::hard_swish: return x * std::min(std::max(x / 6 + 0.5, 0.0), 1.0);
  case PostOp::linear: return op.alpha * x + op.beta;
  case PostOp::round: return std::nearbyint(x);
  case PostOp::add:
  case PostOp::sum: return x + other;
  case PostOp::sub: return x - other;
  case PostOp::mul: return x * other;
  case PostOp::div: return x / other;
  }
  return x;
}

/// The index of element `i` of these sizes.
Dims index_of(int64_t i, const Dims& sizes) {
  Dims index(sizes.size());
  for (size_t d = sizes.size(); d-- > 0; i /= sizes[d]) index[d] = i % sizes[d];
  return index;
}

int64_t product(const Dims& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

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
  std::vector<double> before(static_cast<size_t>(product(out.sizes)));
  for (size_t i = 0; i < before.size(); ++i) before[i] = out.at(index_of(static_cast<int64_t>(i), out.sizes));
  for (const PostOp& op : p.post_ops)
    if (op.kind == PostOp::sum) inputs[op.operand] = ref;
  const auto kernel = make_blocked_matmul(p, infos, {&result, 1});
  run(*kernel, inputs, {&ref, 1});

  const size_t rank = out.sizes.size();
  const int64_t depth = in[0].sizes.back();
  for (int64_t i = 0; i < product(out.sizes); ++i) {
    const Dims index = index_of(i, out.sizes);
    Dims left = index, right = index;
    double want = 0, magnitude = 0;
    for (int64_t l = 0; l < depth; ++l) {
      left[rank - 1] = right[rank - 2] = l;
      const double term = in[0].at(left) * in[1].at(right);
      want += term;
      magnitude += std::fabs(term);
    }
    double error = (magnitude + 1) * static_cast<double>(depth + 8) * 0x1p-24;
    auto apply = [&](const PostOp& op, double other) {
      want = value_of(op, want, other);
      const double factor = op.kind == PostOp::mul   ? std::fabs(other)
                            : op.kind == PostOp::div ? 1 / std::fabs(other)
                                                     : 1;
      error = error * std::max({1.2, factor, std::fabs(static_cast<double>(op.alpha))}) +
              (std::fabs(want) + 1) * 0x1p-21;
    };
    if (p.alpha != 1) apply({PostOp::linear, p.alpha, 0}, 0);
    if (p.has_bias) apply({PostOp::add}, in[2].at(index));
    for (const PostOp& op : p.post_ops)
      apply(op, op.kind == PostOp::sum ? before[i] : op.operand >= 0 ? in[op.operand].at(index) : 0);
    ASSERT_NEAR(out.at(index), want, error) << to_string(Problem(p)) << " of " << out.sizes[rank - 2] << " x "
                                            << depth << " x " << out.sizes.back() << ", element " << i;
  }
}

TEST(BlockedMatMul, AllSizesAreRight) {
  for (const int64_t m : {0, 1, 2, 5, 6, 7, 16, 17, 31, 64, 127, 197})
    for (const int64_t k : {1, 2, 5, 15, 16, 33, 128, 768})
      for (const int64_t n : {1, 2, 7, 15, 16, 17, 31, 33, 64}) {
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
    const size_t rank = static_cast<size_t>(pick(2, 4));
    const int64_t m = pick(1, 40), k = pick(1, 400), n = pick(1, 70);
    Dims a, b, c, bias;
    for (size_t d = 0; d + 2 < rank; ++d) {
      c.push_back(pick(1, 3));
      a.push_back(pick(0, 3) ? c.back() : 1);
      b.push_back(pick(0, 2) ? 1 : c.back());
      if (a.back() == 1 && b.back() == 1) a.back() = c.back();
      bias.push_back(pick(0, 1) ? c.back() : 1);
    }
    a.insert(a.end(), {m, k});
    b.insert(b.end(), {k, n});
    c.insert(c.end(), {m, n});
    bias.insert(bias.end(), {pick(0, 1) ? m : 1, pick(0, 3) ? n : 1});
    auto make = [&](const Dims& sizes) {
      std::vector<int> order(rank);
      std::iota(order.begin(), order.end(), 0);
      if (pick(0, 2) == 0) std::swap(order[rank - 1], order[rank - 2]);
      if (rank > 2 && pick(0, 2) == 0) std::swap(order[rank - 3], order[rank - 2]);
      Dims strides = dense_strides(sizes, order);
      if (pick(0, 3) == 0)
        for (int64_t& s : strides) s *= pick(2, 3) == 2 ? 2 : 3;
      return Operand(sizes, strides, pick(0, 1));
    };
    MatMulProblem p;
    p.alpha = pick(0, 2) ? 1 : 0.5f;
    std::vector<Operand> in{make(a), make(b), {}, make(c), make(bias)};
    p.has_bias = pick(0, 1);
    if (p.has_bias) in[2] = make(bias);
    if (pick(0, 1)) p.post_ops.push_back({pick(0, 1) ? PostOp::add : PostOp::mul, 0, 0, 3});
    if (pick(0, 1)) p.post_ops.push_back({PostOp::relu});
    if (pick(0, 1)) p.post_ops.push_back({PostOp::sub, 0, 0, 4});
    // Elements of a result do not lie on each other: strides of its own order only.
    Operand out(c, dense_strides(c, {}), pick(0, 1));
    if (pick(0, 2) == 0) {
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

TEST(BlockedMatMul, IsChosenWhereTheLibraryPacksInEveryRun) {
  const Operand a({128, 64}), b({64, 32});
  const OperandInfo out = Operand({128, 32}).info();
  const std::vector<OperandInfo> constant{a.info(), b.constant()}, variable{a.info(), b.info()};
  EXPECT_EQ(select(MatMulProblem(), constant, {&out, 1}).chosen == "blocked_matmul", host_isa() == Isa::avx2);
  EXPECT_NE(select(MatMulProblem(), variable, {&out, 1}).chosen, "blocked_matmul");
  const Operand empty({0, 32});
  EXPECT_EQ(supports_blocked_matmul(MatMulProblem(), std::vector{a.info(), empty.constant()}, {&out, 1}),
            "an empty or repeated matrix");
}

} // namespace
} // namespace tbx::extern_kernels
