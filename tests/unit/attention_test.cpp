// The fused attention kernel against the definition in double precision.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "extern_kernels/kernel.h"

namespace tbx::test {
namespace {

using extern_kernels::AttentionProblem;
using extern_kernels::TensorRef;

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Array {
  std::vector<int64_t> sizes, strides;
  std::vector<float> data;

  /// Memory order `order` (outermost first) of the dimensions.
  Array(std::vector<int64_t> s, std::vector<int> order) : sizes(std::move(s)), strides(4) {
    int64_t n = 1;
    for (int k = 3; k >= 0; --k) {
      strides[order[k]] = n;
      n *= sizes[order[k]];
    }
    data.resize(static_cast<size_t>(n));
  }
  float& at(int64_t a, int64_t b, int64_t c, int64_t d) {
    int64_t at[] = {a, b, c, d}, offset = 0;
    for (int k = 0; k < 4; ++k) offset += (sizes[k] == 1 ? 0 : at[k]) * strides[k];
    return data[static_cast<size_t>(offset)];
  }
  TensorRef ref() { return {data.data(), DType::f32, sizes, strides}; }
};

struct Shape {
  int64_t batch, heads, kv_heads, queries, keys, depth, width;
};

const std::vector<int> kPlain = {0, 1, 2, 3}, kTokensFirst = {0, 2, 1, 3}, kTransposed = {0, 1, 3, 2};

class Attention {
public:
  Attention(Shape shape, AttentionProblem problem, std::vector<int> q_order, std::vector<int> k_order,
            std::vector<int64_t> mask_sizes = {})
      : s(shape), p(problem), q({s.batch, s.heads, s.queries, s.depth}, q_order),
        k({s.batch, s.kv_heads, s.keys, s.depth}, k_order),
        v({s.batch, s.kv_heads, s.keys, s.width}, q_order),
        mask(mask_sizes.empty() ? std::vector<int64_t>{1, 1, 1, 1} : mask_sizes, kPlain),
        y({s.batch, s.heads, s.queries, s.width}, q_order) {
    std::mt19937 random(3);
    std::uniform_real_distribution<float> d(-2, 2);
    for (Array* a : {&q, &k, &v, &mask})
      for (float& x : a->data) x = d(random);
    p.has_mask = !mask_sizes.empty();
  }

  void run() {
    std::vector<TensorRef> in = {q.ref(), k.ref(), v.ref()}, out = {y.ref()};
    if (p.has_mask) in.push_back(mask.ref());
    std::vector<extern_kernels::OperandInfo> infos, out_infos;
    for (const TensorRef& t : in) infos.push_back({t.dtype, {t.sizes.begin(), t.sizes.end()}, {}, nullptr});
    out_infos.push_back({DType::f32, y.sizes, {}, nullptr});
    auto selected = extern_kernels::select(extern_kernels::Problem(p), infos, out_infos);
    EXPECT_EQ(selected.chosen, "fused_attention");
    int64_t bytes = selected.kernel->workspace_bytes(in, out);
    std::vector<float> workspace(static_cast<size_t>(bytes / 4));
    selected.kernel->run({in, out, nullptr, workspace.data()});
  }

  double expected(int64_t b, int64_t h, int64_t i, int64_t d) {
    int64_t g = h / (s.heads / s.kv_heads);
    std::vector<double> e(s.keys);
    double top = -kInf, sum = 0, out = 0;
    for (int64_t j = 0; j < s.keys; ++j) {
      for (int64_t l = 0; l < s.depth; ++l) e[j] += double(q.at(b, h, i, l)) * k.at(b, g, j, l);
      e[j] = e[j] * p.scale + (p.has_mask ? mask.at(b, h, i, j) : 0);
      if (p.causal && j > i) e[j] = -kInf;
      top = std::max(top, e[j]);
    }
    if (top == -kInf) return p.zero_undefined_rows ? 0 : NAN;
    for (double& x : e) sum += x = std::exp(x - top);
    for (int64_t j = 0; j < s.keys; ++j) out += e[j] / sum * v.at(b, g, j, d);
    return out;
  }

  void check() {
    run();
    for (int64_t b = 0; b < s.batch; ++b)
      for (int64_t h = 0; h < s.heads; ++h)
        for (int64_t i = 0; i < s.queries; ++i)
          for (int64_t d = 0; d < s.width; d += 1 + s.width / 4) {
            double want = expected(b, h, i, d), got = y.at(b, h, i, d);
            if (std::isnan(want)) {
              ASSERT_TRUE(std::isnan(got)) << i;
            } else {
              ASSERT_NEAR(got, want, 2e-5 * (1 + std::fabs(want))) << b << " " << h << " " << i << " " << d;
            }
          }
  }

  Shape s;
  AttentionProblem p;
  Array q, k, v, mask, y;
};

const Shape kShapes[] = {{1, 2, 2, 5, 7, 3, 2},     {2, 4, 2, 97, 300, 40, 24}, {1, 1, 1, 197, 197, 64, 64},
                         {1, 6, 2, 1, 513, 64, 64}, {1, 2, 1, 3, 33, 20, 70},   {1, 2, 2, 13, 1, 8, 16},
                         {1, 1, 1, 7, 600, 33, 100}};

TEST(FusedAttention, ShapesAndStrides) {
  for (const Shape& s : kShapes)
    for (const auto& q_order : {kPlain, kTokensFirst})
      for (const auto& k_order : {kPlain, kTokensFirst, kTransposed})
        Attention(s, {0.125f}, q_order, k_order).check();
}

TEST(FusedAttention, Masks) {
  for (const Shape& s : kShapes)
    for (const std::vector<int64_t>& m :
         std::vector<std::vector<int64_t>>{{1, 1, s.queries, s.keys},
                                           {s.batch, 1, 1, s.keys},
                                           {s.batch, s.heads, s.queries, s.keys},
                                           {s.batch, s.heads, s.queries, 1}})
      Attention(s, {0.5f}, kPlain, kPlain, m).check();
}

TEST(FusedAttention, Causal) {
  for (const Shape& s : kShapes) {
    AttentionProblem p{0.25f};
    p.causal = true;
    Attention(s, p, kTokensFirst, kPlain).check();
  }
}

TEST(FusedAttention, MaskedRowsAndNaN) {
  for (bool zero : {false, true})
    for (int64_t queries : {2, 30}) {
      Shape s{1, 2, 2, queries, 270, 16, 16};
      AttentionProblem p{0.25f};
      p.zero_undefined_rows = zero;
      Attention a(s, p, kPlain, kPlain, {1, 1, queries, 270});
      for (int64_t j = 0; j < 270; ++j) {
        a.mask.at(0, 0, 0, j) = -kInf;              // nothing to see
        if (j < 260) a.mask.at(0, 0, 1, j) = -kInf; // nothing in the first block of keys
      }
      a.check();
      a.q.at(0, 1, 1, 3) = NAN;
      a.run();
      EXPECT_EQ(std::isnan(a.y.at(0, 1, 1, 5)), !zero);
      EXPECT_FALSE(std::isnan(a.y.at(0, 0, 1, 5)));
    }
}

TEST(FusedAttention, LargeScores) {
  Attention a({1, 1, 1, 20, 40, 8, 8}, {300.0f}, kPlain, kPlain);
  a.run();
  for (float x : a.y.data) EXPECT_TRUE(std::isfinite(x));
}

} // namespace
} // namespace tbx::test
