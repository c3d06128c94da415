// Products by oneDNN of matrices that take turns in memory, against plain loops in double.
#include <gtest/gtest.h>

#include <thread>

#include "extern_kernels/library_kernel.h"
#include "product_check.h"

namespace tbx::extern_kernels {

std::unique_ptr<ExternKernel> make_onednn_matmul(const Problem&, std::span<const OperandInfo>,
                                                 std::span<const OperandInfo>);

namespace {

std::unique_ptr<ExternKernel> make_product(const MatMulProblem& p, const std::vector<Operand>& in,
                                           const Operand& out) {
  std::vector<OperandInfo> infos;
  for (const Operand& t : in) infos.push_back(t.sizes.empty() ? OperandInfo{} : t.info());
  const OperandInfo result = out.info();
  return make_onednn_matmul(p, infos, {&result, 1});
}

void run_product(const ExternKernel& kernel, const std::vector<Operand>& in, Operand& out) {
  std::vector<TensorRef> inputs;
  for (const Operand& t : in) inputs.push_back(t.sizes.empty() ? TensorRef{} : t.ref());
  const TensorRef ref = out.ref();
  run(kernel, inputs, {&ref, 1});
}

/// Dimensions lie in memory in any order, some of them as parts of longer ones.
Operand laid_out(const Dims& sizes) {
  std::vector<int> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), operand_rng);
  Dims whole = sizes;
  if (pick_between(0, 2) == 0)
    whole[pick_between(0, static_cast<int64_t>(sizes.size()) - 1)] += pick_between(1, 3);
  return Operand(sizes, dense_strides(whole, order), pick_between(0, 1));
}

TEST(InterleavedProducts, AnyOrderOfDimensionsIsRight) {
  for (int trial = 0; trial < 400; ++trial) {
    const size_t rank = static_cast<size_t>(pick_between(3, 6));
    const int64_t m = pick_between(0, 40), k = pick_between(0, 70), n = pick_between(0, 40);
    Dims a, b, c, other;
    for (size_t d = 0; d + 2 < rank; ++d) {
      c.push_back(pick_between(trial % 9 ? 1 : 0, 3));
      a.push_back(pick_between(0, 3) ? c.back() : 1);
      b.push_back(a.back() == 1 || pick_between(0, 3) ? c.back() : 1);
      other.push_back(pick_between(0, 1) ? c.back() : 1);
    }
    a.insert(a.end(), {m, k});
    b.insert(b.end(), {k, n});
    c.insert(c.end(), {m, n});
    other.insert(other.end(), {pick_between(0, 1) ? m : 1, n});
    Dims bias(rank, 1);
    bias.back() = n;
    std::vector<Operand> in{laid_out(a), laid_out(b), {}, Operand(other)};
    MatMulProblem p;
    p.alpha = pick_between(0, 2) ? 1 : 0.5f;
    p.has_bias = pick_between(0, 1);
    if (p.has_bias) in[2] = Operand(bias);
    if (pick_between(0, 1)) p.post_ops.push_back({pick_between(0, 1) ? PostOp::add : PostOp::mul, 0, 0, 3});
    if (pick_between(0, 1)) p.post_ops.push_back({PostOp::relu});
    Operand out(c);
    run_product(*make_product(p, in, out), in, out);
    expect_product(p, in, out);
    if (HasFatalFailure()) return;
  }
}

/// Queries or keys of 4 x 8 heads of 32, [tokens, batch, head, element] in memory, as PyTorch's attention has
/// them.
Operand heads_of(int64_t tokens, size_t rank, bool keys) {
  const int64_t batch = 4, heads = 8, width = 32, all = batch * heads * width;
  Dims sizes, strides;
  if (rank == 4) sizes = {batch, heads}, strides = {heads * width, width};
  if (rank == 3) sizes = {batch * heads}, strides = {width};
  if (rank == 5) sizes = {1, batch, heads}, strides = {all, heads * width, width};
  sizes.insert(sizes.end(), {keys ? width : tokens, keys ? tokens : width});
  strides.insert(strides.end(), {keys ? 1 : all, keys ? all : 1});
  return Operand(sizes, strides);
}

Operand scores_of(const std::vector<Operand>& in) {
  Dims sizes = in[0].sizes;
  sizes.back() = in[1].sizes.back();
  return Operand(sizes);
}

TEST(InterleavedProducts, HeadsAreMultipliedAlikeInEveryRank) {
  std::vector<std::vector<std::string>> found;
  for (const size_t rank : {3, 4, 5}) {
    const std::vector<Operand> in{heads_of(100, rank, false), heads_of(100, rank, true), {}};
    Operand out = scores_of(in);
    const auto kernel = make_product({}, in, out);
    run_product(*kernel, in, out);
    found.push_back(dynamic_cast<LibraryKernel&>(*kernel).implementations());
    expect_product({}, in, out);
    if (HasFatalFailure()) return;
  }
  EXPECT_FALSE(found[0].empty());
  EXPECT_EQ(found[1], found[0]);
  EXPECT_EQ(found[2], found[0]);
}

TEST(InterleavedProducts, OneKernelServesSeveralCallersAndLengths) {
  const std::vector<Operand> some{heads_of(100, 4, false), heads_of(100, 4, true), {}};
  const auto kernel = make_product({}, some, scores_of(some));
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&] {
      for (const int64_t tokens : {33, 1, 100, 7, 64}) {
        const std::vector<Operand> in{heads_of(tokens, 4, false), heads_of(tokens, 4, true), {}};
        Operand out = scores_of(in);
        run_product(*kernel, in, out);
        expect_product({}, in, out);
      }
    });
  for (std::thread& caller : callers) caller.join();
}

} // namespace
} // namespace tbx::extern_kernels
