// Attention of one query that appends a key and a value, against plain loops in double: its text runs in the
// emulator always, on a GPU where there is one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/float_formats.h"
#include "device/fake/fake_device.h"
#include "extern_kernels/cuda/row_attention.h"
#include "library_kernels_helper.h"

namespace tbx::test {
namespace {

struct Case {
  int64_t batch, heads, kv_heads, keys, depth, width; ///< keys: with the new one
  DType query, cache, added, out;
};

using Runner = std::function<std::unique_ptr<extern_kernels::ExternKernel>(
    const AttentionProblem&, const std::vector<Operand>&, const Operand&)>;

class AppendingAttention : public testing::TestWithParam<const char*> {
protected:
  void SetUp() override {
    std::string why;
    device_ = open_for_test(GetParam(), why);
    if (!device_) GTEST_SKIP() << why;
  }

  std::unique_ptr<extern_kernels::ExternKernel> kernel_of(const AttentionProblem& p,
                                                          const std::vector<Operand>& in, const Operand& y) {
    const auto load = [this](const std::string& text) {
      return load_text(*device_, text, {"few_rows", "join_rows"});
    };
    std::function<std::shared_ptr<device::Module>(const std::string&)> own;
    if (device::is_fake(*device_)) own = load;
    EXPECT_EQ(extern_kernels::refuses_row_attention(infos_of(in), infos_of({y})), "");
    return extern_kernels::make_row_attention(*device_, p, infos_of(in), infos_of({y}), own);
  }

  Runner runner() {
    return [this](const AttentionProblem& p, const std::vector<Operand>& in, const Operand& y) {
      return kernel_of(p, in, y);
    };
  }

  std::shared_ptr<device::Device> device_;
};

INSTANTIATE_TEST_SUITE_P(Devices, AppendingAttention, testing::Values("fake", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

/// The numbers of an operand by their places.
class Numbers {
public:
  explicit Numbers(const Operand& t) : strides_(t.strides), values_(values_of(t)) {}
  double at(int64_t b, int64_t h, int64_t s, int64_t d) const {
    return values_[static_cast<size_t>(b * strides_[0] + h * strides_[1] + s * strides_[2] +
                                       d * strides_[3])];
  }

private:
  Dims strides_;
  std::vector<double> values_;
};

double rounded(double x, DType type) {
  if (type == DType::undefined || type == DType::f32) return x;
  return decode_float(type, encode_float(type, static_cast<float>(x)));
}

/// Heads [B, H, 1, D] after the rotation of the problem: element by element, as its description says.
std::vector<std::vector<double>> turned(const AttentionProblem& p, const std::vector<Operand>& in,
                                        size_t which, DType result) {
  const Numbers x(in[which]);
  const Dims& sizes = in[which].sizes;
  const extern_kernels::HeadRotation& r = p.rotation;
  std::vector<std::vector<double>> rows;
  for (int64_t row = 0; row < sizes[0] * sizes[1]; ++row) {
    const int64_t b = row / sizes[1], h = row % sizes[1];
    auto number = [&](size_t table, int64_t d) {
      const Operand& t = in[table];
      const int64_t half = r.width / 2, place = t.sizes[1] == r.width ? d : r.interleaved ? d / 2 : d % half;
      const int64_t at = (t.sizes[0] == 1 ? 0 : b) * t.strides[0] + place * t.strides[1];
      return values_of(t)[static_cast<size_t>(at)];
    };
    rows.emplace_back();
    for (int64_t d = 0; d < sizes[3]; ++d) {
      double y = x.at(b, h, 0, d);
      if (d < r.width) {
        const bool first = r.interleaved ? d % 2 == 0 : d < r.width / 2;
        const int64_t step = r.interleaved ? 1 : r.width / 2, other = first ? d + step : d - step;
        const double own = rounded(y * number(AttentionProblem::kCosines, d), r.rounded),
                     beside = rounded(x.at(b, h, 0, other) * number(AttentionProblem::kSines, d), r.rounded);
        y = first ? own - beside : own + beside;
      }
      rows.back().push_back(rounded(y, result));
    }
  }
  return rows;
}

/// What attention gives of caches that have the new token: a row [width] for each head of each batch entry.
std::vector<std::vector<double>> expected(const AttentionProblem& p, const std::vector<Operand>& in) {
  const std::vector<std::vector<double>> queries = turned(p, in, 0, p.rotation.queries);
  const Numbers k(in[1]), v(in[2]);
  const std::vector<double> mask = p.has_mask ? values_of(in[3]) : std::vector<double>();
  const int64_t batch = in[0].sizes[0], heads = in[0].sizes[1], depth = in[0].sizes[3], keys = in[1].sizes[2],
                width = in[2].sizes[3], shared = heads / in[1].sizes[1];
  const int64_t first = p.window > 0 ? std::max<int64_t>(0, keys - p.window) : 0;
  std::vector<std::vector<double>> rows;
  for (int64_t row = 0; row < batch * heads; ++row) {
    const int64_t b = row / heads, h = row % heads;
    std::vector<double> scores;
    for (int64_t key = first; key < keys; ++key) {
      double x = 0;
      for (int64_t d = 0; d < depth; ++d) x += queries[row][d] * k.at(b, h / shared, key, d);
      x *= p.scale;
      if (p.softcap > 0) x = p.softcap * std::tanh(x / p.softcap);
      scores.push_back(x + (p.has_mask ? mask[static_cast<size_t>(key)] : 0));
    }
    const double most = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    std::vector<double> total(static_cast<size_t>(width), 0);
    for (int64_t key = first; key < keys; ++key) {
      const double weight = std::exp(scores[static_cast<size_t>(key - first)] - most);
      sum += weight;
      for (int64_t d = 0; d < width; ++d)
        total[static_cast<size_t>(d)] += weight * v.at(b, h / shared, key, d);
    }
    for (double& x : total) x /= sum;
    rows.push_back(std::move(total));
  }
  return rows;
}

/// The last tokens are the new ones, the keys as the problem rotates them, and all others what they were.
void expect_stored(const AttentionProblem& p, const std::vector<Operand>& before,
                   const std::vector<Operand>& in, const std::string& where) {
  const std::vector<std::vector<double>> new_keys =
      turned(p, in, AttentionProblem::kCacheKeys, p.rotation.keys);
  for (size_t i : {1, 2}) {
    const Numbers now(in[i]), old(before[i]), added(in[5 + i]);
    const Dims& sizes = in[i].sizes;
    double rounding = in[i].dtype == DType::f16 ? 6e-4 : in[i].dtype == DType::bf16 ? 5e-3 : 0;
    // A sum that float32 rounds may become another one of the narrower type.
    if (p.rotation.width > 0 && i == 1) rounding += p.rotation.keys == DType::f16 ? 6e-4 : 1e-6;
    for (int64_t head = 0; head < sizes[0] * sizes[1]; ++head)
      for (int64_t s = 0; s < sizes[2]; ++s)
        for (int64_t d = 0; d < sizes[3]; ++d) {
          const int64_t b = head / sizes[1], h = head % sizes[1];
          if (s + 1 < sizes[2])
            ASSERT_EQ(now.at(b, h, s, d), old.at(b, h, s, d)) << where << ", token " << s;
          else
            ASSERT_NEAR(now.at(b, h, s, d), i == 1 ? new_keys[head][d] : added.at(b, h, 0, d), rounding)
                << where << ", element " << d;
        }
  }
}

/// Runs the kernel and looks at what it stored and what it gave; `numbers`: cosines and sines.
void check(device::Device& device, const Runner& kernel_of, const AttentionProblem& p, const Case& c,
           const std::vector<Operand>& numbers, const std::string& where) {
  std::vector<Operand> in = {random_operand(c.query, {c.batch, c.heads, 1, c.depth}),
                             random_operand(c.cache, {c.batch, c.kv_heads, c.keys, c.depth}),
                             random_operand(c.cache, {c.batch, c.kv_heads, c.keys, c.width}),
                             {},
                             {},
                             {},
                             random_operand(c.added, {c.batch, c.kv_heads, 1, c.depth}, {0, 2, 1, 3}),
                             random_operand(c.added, {c.batch, c.kv_heads, 1, c.width}, {0, 2, 1, 3})};
  if (p.has_mask) in[3] = random_operand(DType::f32, {1, 1, 1, c.keys});
  in.insert(in.end(), numbers.begin(), numbers.end());
  Operand y = random_operand(c.out, {c.batch, c.heads, 1, c.width});
  const auto kernel = kernel_of(p, in, y);
  const auto stream = device.make_stream();
  std::vector<std::unique_ptr<device::Memory>> blocks;
  auto place = [&](const Operand& t) {
    if (!t.present()) return extern_kernels::TensorRef{};
    blocks.push_back(device.allocate(t.bytes.size()));
    stream->upload(blocks.back()->data(), t.bytes.data(), t.bytes.size());
    return ref_of(t, blocks.back()->data());
  };
  std::vector<extern_kernels::TensorRef> given, made;
  for (const Operand& t : in) given.push_back(place(t));
  made.push_back(place(y));
  for (size_t i : {1, 2}) { // the last tokens of the caches
    const Operand& t = in[i];
    const auto last = static_cast<size_t>((c.keys - 1) * t.strides[2] * size_of(t.dtype));
    made.push_back({static_cast<std::byte*>(given[i].data) + last, t.dtype, in[5 + i].sizes, t.strides});
  }
  const auto workspace = device.allocate(static_cast<size_t>(kernel->workspace_bytes(given, made)));
  kernel->run({given, made, nullptr, workspace->data(), stream.get()});
  const std::vector<Operand> before = in;
  for (size_t i : {1, 2}) stream->download(in[i].bytes.data(), given[i].data, in[i].bytes.size());
  stream->download(y.bytes.data(), made[0].data, y.bytes.size());
  stream->synchronize();

  expect_stored(p, before, in, where);
  const double tolerance = c.out == DType::f32   ? 2e-6
                           : c.out == DType::f16 ? 1e-3
                                                 : 8e-3,
               of_queries = is_half(p.rotation.queries) ? 5e-4 : 0;
  const Numbers got(y);
  const std::vector<std::vector<double>> want = expected(p, in);
  for (int64_t row = 0; row < c.batch * c.heads; ++row)
    for (int64_t d = 0; d < c.width; ++d)
      ASSERT_NEAR(got.at(row / c.heads, row % c.heads, 0, d), want[row][d], tolerance + of_queries) << where;
  end_case();
}

TEST_P(AppendingAttention, StoresTheNewTokenAndSeesIt) {
  constexpr DType f32 = DType::f32, f16 = DType::f16, bf16 = DType::bf16;
  const Case cases[] = {
      {1, 2, 2, 1, 64, 64, f32, f32, f32, f32},      {1, 12, 12, 2, 64, 64, f32, f32, f32, f32},
      {2, 6, 2, 41, 32, 24, f32, f32, f32, f32},     {1, 6, 2, 70, 64, 64, f16, f32, f16, f16},
      {1, 2, 2, 300, 33, 17, f32, f16, f32, f16},    {1, 3, 1, 65, 128, 128, bf16, bf16, f32, f32},
      {1, 12, 12, 513, 64, 64, f32, f32, f32, f32},  {1, 12, 4, 2049, 64, 64, f16, f16, f16, f16},
      {1, 12, 12, 1500, 64, 64, f32, f32, f32, f32}, {1, 12, 12, 5001, 64, 64, f32, f32, f32, f32}};
  for (const Case& c : cases)
    for (int form = 0; form < 3; ++form) {
      if (device::is_fake(*device_) && (c.keys > 600 || (form > 0 && c.keys > 100))) continue; // slow there
      AttentionProblem p;
      p.scale = 0.3f;
      p.appends = true;
      p.has_mask = form == 1;
      p.softcap = form == 1 ? 0.5f : 0;
      p.causal = p.from_end = form == 2;
      p.window = form == 2 ? 30 : 0;
      check(*device_, runner(), p, c, {},
            fmt::format("{} keys of {} heads, form {}", c.keys, c.kv_heads, form));
    }
}

TEST_P(AppendingAttention, RotatesQueriesAndTheNewKey) {
  constexpr DType f32 = DType::f32, f16 = DType::f16, bf16 = DType::bf16, none = DType::undefined;
  struct Turn {
    int64_t width;
    bool interleaved, by_pair, by_entry; ///< a cosine for each pair, for each batch entry
    DType numbers, rounded, queries, keys;
  };
  struct Rotated {
    Case c;
    Turn t;
  };
  const Rotated cases[] = {
      {{1, 12, 4, 1, 64, 64, f32, f32, f32, f32}, {64, false, false, false, f32, none, none, none}},
      {{1, 12, 4, 2, 64, 64, f16, f32, f16, f16}, {64, false, true, false, f32, none, none, none}},
      {{2, 4, 2, 70, 64, 64, f32, f32, f32, f32}, {64, true, false, true, f32, none, none, none}},
      {{2, 4, 2, 41, 32, 24, f16, f16, f16, f16}, {16, true, true, true, f16, none, f16, none}},
      {{1, 6, 2, 65, 128, 128, f16, f16, f16, f16}, {128, false, false, false, f16, f16, f16, f16}},
      {{2, 3, 1, 33, 80, 80, f32, f32, f32, f32}, {20, false, true, false, f32, none, none, none}},
      {{1, 2, 2, 40, 33, 17, f32, f16, f32, f32}, {6, false, false, false, f32, none, none, f16}},
      {{1, 2, 1, 5, 8, 8, bf16, bf16, bf16, bf16}, {2, true, true, false, f32, none, bf16, bf16}},
      {{1, 8, 8, 300, 96, 96, f32, f32, f32, f32}, {96, false, true, false, f32, none, none, none}},
      {{1, 12, 4, 2049, 64, 64, f16, f16, f16, f16}, {64, false, false, false, f32, none, f16, f16}},
      {{1, 12, 4, 513, 64, 64, f16, f32, f16, f32}, {64, false, false, false, f32, none, none, none}},
      {{1, 12, 12, 1500, 64, 64, f32, f32, f32, f32}, {32, true, true, false, f32, none, none, none}}};
  for (const auto& [c, t] : cases) {
    if (device::is_fake(*device_) && c.keys > 600) continue; // slow there
    AttentionProblem p;
    p.scale = 0.3f;
    p.appends = true;
    p.rotation = {t.width, t.interleaved, t.rounded, t.queries, t.keys};
    const Dims sizes = {t.by_entry ? c.batch : 1, t.by_pair ? t.width / 2 : t.width};
    check(*device_, runner(), p, c, {random_operand(t.numbers, sizes), random_operand(t.numbers, sizes)},
          fmt::format("{} of {} turned, {} keys", t.width, c.depth, c.keys));
  }
}

} // namespace
} // namespace tbx::test
