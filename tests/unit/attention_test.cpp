// The fused attention kernel against the definition in double precision.
#include <gtest/gtest.h>
#include <tbb/task_arena.h>

#include <cmath>
#include <limits>
#include <random>
#include <thread>

#include "base/float_formats.h"
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

  /// The elements become what `type` holds, which is what ref_in() shows.
  void round_to(DType type) {
    halves.resize(data.size());
    encode_halves(type, data.data(), static_cast<int64_t>(data.size()), halves.data());
    decode_halves(type, halves.data(), static_cast<int64_t>(data.size()), data.data());
  }
  TensorRef ref_in(DType type) {
    if (type == DType::f32) return ref();
    round_to(type);
    return {halves.data(), type, sizes, strides};
  }
  std::vector<uint16_t> halves;
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
    std::vector<TensorRef> in = {q.ref_in(type), k.ref_in(type), v.ref_in(type)}, out = {y.ref()};
    if (is_half(result)) {
      y.halves.resize(y.data.size());
      out = {{y.halves.data(), result, y.sizes, y.strides}};
    }
    if (p.has_mask) in.push_back(mask.ref());
    std::vector<extern_kernels::OperandInfo> infos, out_infos;
    for (const TensorRef& t : in) infos.push_back({t.dtype, {t.sizes.begin(), t.sizes.end()}, {}, nullptr});
    out_infos.push_back({result, y.sizes, {}, nullptr});
    auto selected = extern_kernels::select(extern_kernels::Problem(p), infos, out_infos);
    EXPECT_EQ(selected.chosen, "fused_attention");
    int64_t bytes = selected.kernel->workspace_bytes(in, out);
    std::vector<float> workspace(static_cast<size_t>(bytes / 4));
    selected.kernel->run({in, out, nullptr, workspace.data()});
    if (is_half(result))
      decode_halves(result, y.halves.data(), static_cast<int64_t>(y.data.size()), y.data.data());
  }

  double expected(int64_t b, int64_t h, int64_t i, int64_t d) {
    int64_t g = h / (s.heads / s.kv_heads);
    std::vector<double> e(s.keys);
    double top = -kInf, sum = 0, out = 0;
    for (int64_t j = 0; j < s.keys; ++j) {
      for (int64_t l = 0; l < s.depth; ++l) e[j] += double(q.at(b, h, i, l)) * k.at(b, g, j, l);
      e[j] *= p.scale;
      if (p.softcap > 0) e[j] = p.softcap * std::tanh(e[j] / p.softcap);
      if (p.has_mask) e[j] += mask.at(b, h, i, j);
      if (p.causal && (j > i || (p.window > 0 && j <= i - p.window))) e[j] = -kInf;
      top = std::max(top, e[j]);
    }
    if (s.keys == 0) return 0; // a sum of no terms
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
              ASSERT_NEAR(got, want, tolerance + (2e-5 + of_result) * (1 + std::fabs(want)))
                  << b << " " << h << " " << i << " " << d;
            }
          }
  }

  /// Operands of bfloat16: each share of a value, of 2 at most, may be rounded by half a unit in its last
  /// place.
  Attention& of_bf16() {
    type = DType::bf16;
    tolerance = 2.0 / 512;
    return *this;
  }
  /// The result as well, which is rounded in turn.
  Attention& to_bf16() {
    result = DType::bf16;
    of_result = 1.0 / 512;
    return of_bf16();
  }

  Shape s;
  AttentionProblem p;
  DType type = DType::f32, result = DType::f32;
  double tolerance = 0, of_result = 0;
  Array q, k, v, mask, y;
};

const Shape kShapes[] = {{1, 2, 2, 5, 7, 3, 2},      {2, 4, 2, 97, 300, 40, 24}, {1, 1, 1, 197, 197, 64, 64},
                         {1, 6, 2, 1, 513, 64, 64},  {1, 2, 1, 3, 33, 20, 70},   {1, 2, 2, 13, 1, 8, 16},
                         {1, 1, 1, 7, 600, 33, 100}, {1, 1, 1, 580, 580, 17, 9}, {1, 2, 1, 16, 1, 1, 1},
                         {1, 1, 1, 33, 31, 32, 16}};

TEST(FusedAttention, ShapesAndStrides) {
  for (const Shape& s : kShapes)
    for (const auto& q_order : {kPlain, kTokensFirst})
      for (const auto& k_order : {kPlain, kTokensFirst, kTransposed}) {
        Attention(s, {0.125f}, q_order, k_order).check();
        Attention(s, {0.125f}, q_order, k_order).of_bf16().check();
        Attention(s, {0.125f}, q_order, k_order).to_bf16().check();
      }
}

TEST(FusedAttention, SizesOfNetworks) {
  for (const Shape& s : {Shape{1, 2, 2, 128, 128, 64, 64},
                         {1, 1, 1, 200, 1500, 64, 64},
                         {1, 1, 1, 200, 77, 40, 40},
                         {4, 3, 3, 49, 49, 32, 32}})
    Attention(s, {0.125f}, kTokensFirst, kTokensFirst).to_bf16().check();
}

TEST(FusedAttention, NothingInOneDimension) {
  for (const Shape& s : {Shape{1, 2, 2, 20, 0, 8, 8},
                         {1, 2, 2, 0, 20, 8, 8},
                         {1, 1, 1, 20, 20, 0, 8},
                         {0, 1, 1, 20, 20, 8, 8},
                         {1, 1, 1, 20, 20, 8, 0}}) {
    Attention(s, {0.125f}, kPlain, kPlain).check();
    Attention(s, {0.125f}, kPlain, kPlain).to_bf16().check();
  }
}

TEST(FusedAttention, Masks) {
  for (const Shape& s : kShapes)
    for (const std::vector<int64_t>& m :
         std::vector<std::vector<int64_t>>{{1, 1, s.queries, s.keys},
                                           {s.batch, 1, 1, s.keys},
                                           {s.batch, s.heads, s.queries, s.keys},
                                           {s.batch, s.heads, s.queries, 1}}) {
      Attention(s, {0.5f}, kPlain, kPlain, m).check();
      Attention(s, {0.5f}, kPlain, kPlain, m).of_bf16().check();
    }
}

TEST(FusedAttention, Causal) {
  for (const Shape& s : kShapes) {
    AttentionProblem p{0.25f};
    p.causal = true;
    Attention(s, p, kTokensFirst, kPlain).check();
    Attention(s, p, kTokensFirst, kPlain).of_bf16().check();
    // Blocks of keys that begin anywhere, and capped scores.
    for (float softcap : {0.0f, 5.0f}) {
      p.window = 50;
      p.softcap = softcap;
      Attention(s, p, kPlain, kTokensFirst).check();
      Attention(s, p, kPlain, kTokensFirst).of_bf16().check();
    }
  }
}

TEST(FusedAttention, ScalesOfAnySignAndNone) {
  for (float scale : {-0.5f, 0.0f})
    for (int64_t keys : {5, 64, 259}) {
      Attention({1, 2, 2, 19, keys, 17, 9}, {scale}, kPlain, kPlain).check();
      Attention({1, 2, 2, 19, keys, 17, 9}, {scale}, kPlain, kPlain).of_bf16().check();
    }
}

TEST(FusedAttention, MaskedRowsAndNaN) {
  for (bool zero : {false, true})
    for (int64_t queries : {2, 30}) {
      Shape s{1, 2, 2, queries, 270, 16, 16};
      AttentionProblem p{0.25f};
      p.zero_undefined_rows = zero;
      for (int narrow : {0, 1, 2}) {
        Attention a(s, p, kPlain, kPlain, {1, 1, queries, 270});
        if (narrow == 1) a.of_bf16();
        if (narrow == 2) a.to_bf16();
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
}

TEST(FusedAttention, GreatestAtEveryKey) {
  for (int64_t keys : {1, 15, 16, 17, 64, 65, 130, 259})
    for (float score : {500.0f, NAN}) { // what is not seen as the greatest overflows
      const Shape s{1, 1, 1, std::max<int64_t>(keys, 20), keys, 4, 6};
      Attention a(s, {0.5f}, kPlain, kPlain, {1, 1, s.queries, keys});
      for (int64_t i = 0; i < s.queries; ++i) a.mask.at(0, 0, i, i % keys) = score;
      a.check();
    }
}

/// Whatever shares the tasks: blocks of queries do not depend on it.
TEST(FusedAttention, ThreadsChangeNothing) {
  for (const bool causal : {false, true}) {
    AttentionProblem p{0.25f};
    p.causal = causal;
    std::vector<float> first;
    for (const int threads : {1, 2, 5, 16}) {
      Attention a({1, 3, 3, 203, 570, 24, 40}, p, kTokensFirst, kPlain);
      tbb::task_arena(threads).execute([&] { a.run(); });
      if (threads == 1) first = a.y.data;
      EXPECT_EQ(a.y.data, first) << threads;
    }
  }
}

/// Registers of a thread are what calls on it share: those of attention, and of products between them.
TEST(FusedAttention, SeveralCallers) {
  constexpr int64_t kRows = 70, kDepth = 96, kColumns = 64;
  const std::vector<int64_t> left{kRows, kDepth}, right{kDepth, kColumns}, both{kRows, kColumns};
  const std::vector<int64_t> left_strides{kDepth, 1}, strides{kColumns, 1};
  std::vector<uint16_t> a(kRows * kDepth, 0x3f80), b(kDepth * kColumns, 0x4000); // ones and twos
  extern_kernels::MatMulProblem product;
  const std::vector<extern_kernels::OperandInfo> infos{
      {DType::bf16, left, {}, nullptr}, {DType::bf16, right, {}, nullptr}, {}},
      results{{DType::f32, both, {}, nullptr}};
  Attention first({1, 3, 3, 203, 570, 24, 40}, {0.25f}, kTokensFirst, kPlain);
  tbb::task_arena(2).execute([&] { first.of_bf16().run(); });
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i)
    callers.emplace_back([&] {
      tbb::task_arena(2).execute([&] {
        for (int times = 0; times < 5; ++times) {
          Attention again({1, 3, 3, 203, 570, 24, 40}, {0.25f}, kTokensFirst, kPlain);
          again.of_bf16().run();
          EXPECT_EQ(again.y.data, first.y.data);
          std::vector<float> y(kRows * kColumns);
          const std::vector<TensorRef> in{
              {a.data(), DType::bf16, left, left_strides}, {b.data(), DType::bf16, right, strides}, {}},
              out{{y.data(), DType::f32, both, strides}};
          const auto kernel = select(extern_kernels::Problem(product), infos, results).kernel;
          std::vector<float> workspace(static_cast<size_t>(kernel->workspace_bytes(in, out) / 4 + 1));
          kernel->run({in, out, nullptr, workspace.data()});
          for (float x : y) ASSERT_EQ(x, 2 * kDepth);
        }
      });
    });
  for (std::thread& caller : callers) caller.join();
}

TEST(FusedAttention, LargeScores) {
  Attention a({1, 1, 1, 20, 40, 8, 8}, {300.0f}, kPlain, kPlain);
  a.run();
  for (float x : a.y.data) EXPECT_TRUE(std::isfinite(x));
  a.of_bf16().run();
  for (float x : a.y.data) EXPECT_TRUE(std::isfinite(x));
}

/// Few heads and many keys: threads share the keys of a head.
TEST(FusedAttention, KeysInParts) {
  for (const int threads : {3, 16}) {
    tbb::task_arena(threads).execute([] {
      for (const int64_t keys : {1023, 1024, 2600})
        for (const int64_t queries : {1, 3}) {
          const Shape s{1, 3, 1, queries, keys, 20, 24};
          Attention plain(s, {0.25f}, kPlain, kTokensFirst, {1, 1, queries, keys});
          for (int64_t j = 0; j < 700; ++j) plain.mask.at(0, 0, 0, j) = -kInf; // some parts see nothing
          plain.check();
          plain.q.at(0, 2, 0, 7) = NAN;
          plain.run();
          EXPECT_TRUE(std::isnan(plain.y.at(0, 2, 0, 3)));
          EXPECT_FALSE(std::isnan(plain.y.at(0, 1, 0, 3)));
          AttentionProblem p{0.25f};
          p.zero_undefined_rows = true;
          Attention empty(s, p, kPlain, kPlain, {1, 1, queries, keys});
          for (int64_t j = 0; j < keys; ++j) empty.mask.at(0, 0, queries - 1, j) = -kInf;
          empty.check();
          Attention({2, 2, 1, queries, keys, 16, 8}, {0.25f}, kTokensFirst, kPlain).of_bf16().check();
        }
    });
  }
}

/// Calls f(batch, head, token, element) for the tokens before `before`.
template <class F> void each_of_past(const Array& a, int64_t before, F f) {
  for (int64_t b = 0; b < a.sizes[0]; ++b)
    for (int64_t g = 0; g < a.sizes[1]; ++g)
      for (int64_t j = 0; j < before; ++j)
        for (int64_t e = 0; e < a.sizes[3]; ++e) f(b, g, j, e);
}

/// Tokens of before come from another place, and are in keys and values afterwards. The last query sees all,
/// or (not `from_end`) query i what is up to its number.
void check_carried(const Shape& s, int64_t before, DType type, AttentionProblem p,
                   const std::vector<int>& order, bool from_end = true) {
  p.causal = p.carries = true;
  p.from_end = from_end;
  Attention a(s, p, kPlain, order);
  a.type = type;
  Array past_k({s.batch, s.kv_heads, before, s.depth}, order),
      past_v({s.batch, s.kv_heads, before, s.width}, kPlain);
  for (auto [whole, past] : {std::pair{&a.k, &past_k}, {&a.v, &past_v}}) {
    if (type != DType::f32) whole->round_to(type);
    each_of_past(*whole, before, [&](auto... at) { past->at(at...) = whole->at(at...); });
  }
  const Array keys = a.k, values = a.v;
  for (const auto which : {extern_kernels::Kernels::fastest, extern_kernels::Kernels::plain}) {
    for (Array* whole : {&a.k, &a.v})
      each_of_past(*whole, before, [&](auto... at) { whole->at(at...) = NAN; });
    const std::vector<TensorRef> in = {a.q.ref_in(type),    a.k.ref_in(type),   a.v.ref_in(type), {}, {}, {},
                                       past_k.ref_in(type), past_v.ref_in(type)};
    std::vector<TensorRef> out = {a.y.ref(), in[1], in[2]};
    out[1].sizes = past_k.sizes;
    out[2].sizes = past_v.sizes;
    std::vector<extern_kernels::OperandInfo> infos, results;
    for (const TensorRef& t : in) infos.push_back({t.dtype, {t.sizes.begin(), t.sizes.end()}, {}, nullptr});
    for (const TensorRef& t : out)
      results.push_back({t.dtype, {t.sizes.begin(), t.sizes.end()}, {}, nullptr});
    const auto kernel = select(extern_kernels::Problem(p), infos, results, which).kernel;
    std::vector<float> workspace(static_cast<size_t>(kernel->workspace_bytes(in, out) / 4));
    kernel->run({in, out, nullptr, workspace.data()});
    for (Array* x : {&a.k, &a.v})
      if (type != DType::f32)
        decode_halves(type, x->halves.data(), static_cast<int64_t>(x->data.size()), x->data.data());
    EXPECT_EQ(a.k.data, keys.data);
    EXPECT_EQ(a.v.data, values.data);
    for (int64_t b = 0; b < s.batch; ++b)
      for (int64_t h = 0; h < s.heads; ++h)
        for (int64_t i = 0; i < s.queries; ++i) {
          const int64_t g = h * s.kv_heads / s.heads, end = (from_end ? s.keys - s.queries : 0) + i + 1,
                        first = p.window > 0 ? std::max<int64_t>(0, end - p.window) : 0;
          double sum = 0, want = 0;
          for (int64_t j = first; j < end; ++j) {
            double score = 0;
            for (int64_t l = 0; l < s.depth; ++l) score += double(a.q.at(b, h, i, l)) * a.k.at(b, g, j, l);
            sum += std::exp(score * p.scale);
            want += std::exp(score * p.scale) * a.v.at(b, g, j, i % s.width);
          }
          ASSERT_NEAR(a.y.at(b, h, i, i % s.width), want / sum, type == DType::f32 ? 1e-4 : 1e-2)
              << before << " of " << s.keys;
        }
  }
}

TEST(FusedAttention, CarriesCaches) {
  for (const int64_t queries : {1, 3, 9, 60})
    for (const int64_t before : {0, 1, 511, 512, 1500})
      for (const DType type : {DType::f32, DType::bf16, DType::f16})
        for (const int64_t window : {0, 600}) {
          AttentionProblem p{0.25f};
          p.window = window;
          check_carried({1, 4, 2, queries, before + queries, 20, 24}, before, type, p, kPlain);
        }
  check_carried({2, 2, 2, 1, 38, 7, 5}, 37, DType::f32, {0.25f}, kTokensFirst);
  check_carried({2, 2, 2, 2, 39, 7, 5}, 37, DType::f32, {0.25f}, kTransposed);
  check_carried({1, 3, 3, 1, 2100, 64, 64}, 2099, DType::f32, {0.125f}, kPlain);
  for (const int64_t queries : {1, 3, 60}) // most of what is past no query sees
    check_carried({1, 4, 2, queries, 700 + queries, 20, 24}, 700, DType::f32, {0.25f}, kPlain, false);
  check_carried({2, 1, 1, 0, 300, 64, 64}, 300, DType::f32, {0.125f}, kPlain); // nothing but the copy
  tbb::task_arena(16).execute([] { // threads share the keys of a head
    AttentionProblem p{0.125f};
    for (const int64_t window : {0, 1200}) {
      p.window = window;
      check_carried({1, 2, 1, 2, 2602, 24, 24}, 2600, DType::f32, p, kPlain);
    }
  });
}

} // namespace
} // namespace tbx::test
