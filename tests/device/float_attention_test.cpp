// Our attention of float32 in tiles against plain loops in double: the text runs in the emulator always, on a
// GPU where there is one.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "device/fake/fake_device.h"
#include "extern_kernels/cuda/float_attention.h"
#include "library_kernels_helper.h"

namespace tbx::test {
namespace {

struct Case {
  int64_t batch, heads, kv_heads, queries, keys, depth, width;
};

class FloatAttention : public testing::TestWithParam<const char*> {
protected:
  void SetUp() override {
    std::string why;
    device_ = open_for_test(GetParam(), why);
    if (!device_) GTEST_SKIP() << why;
    fake_ = device::is_fake(*device_);
  }
  void check(const AttentionProblem& p, const std::vector<Operand>& in, const Operand& out) {
    const auto infos = infos_of(in), outs = infos_of({out});
    ASSERT_EQ(extern_kernels::refuses_float_attention(device_->properties(), infos, outs), "");
    const auto kernel = extern_kernels::make_float_attention(*device_, p, infos, fake_ ? load_ : nullptr);
    expect_right(*device_, *kernel, p, in, out);
  }
  std::shared_ptr<device::Device> device_;
  bool fake_ = true;
  std::function<std::shared_ptr<device::Module>(const std::string&)> load_ = [this](const std::string& text) {
    return load_text(*device_, text, {"float_attention"});
  };
};

INSTANTIATE_TEST_SUITE_P(Devices, FloatAttention, testing::Values("fake", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

const std::vector<int> kTokens{0, 2, 1, 3}; ///< heads beside each other in a row of tokens

std::vector<Operand> operands(const Case& c) {
  const DType t = DType::f32;
  return {random_operand(t, {c.batch, c.heads, c.queries, c.depth}, kTokens),
          random_operand(t, {c.batch, c.kv_heads, c.keys, c.depth}, kTokens),
          random_operand(t, {c.batch, c.kv_heads, c.keys, c.width}),
          {},
          {},
          {}};
}

Operand result(const Case& c, const AttentionProblem& p) {
  return random_operand(DType::f32, p.tokens_first ? Dims{c.batch, c.queries, c.heads, c.width}
                                                   : Dims{c.batch, c.heads, c.queries, c.width});
}

/// Parts of tiles and whole ones, one query, none, one key, none; rows that are whole vectors and not; on a
/// GPU sizes of real layers.
TEST_P(FloatAttention, AllForms) {
  std::vector<Case> cases{
      {1, 2, 2, 33, 70, 8, 8},  {1, 3, 3, 40, 270, 12, 36}, {2, 4, 2, 5, 65, 5, 7},
      {1, 1, 1, 1, 1, 1, 1},    {1, 2, 1, 0, 5, 8, 8},      {1, 1, 1, 3, 20, 64, 72},
      {1, 9, 9, 65, 65, 68, 8}, {1, 9, 9, 65, 30, 8, 68}, // eight rows for a thread, parts of tiles
      {1, 2, 1, 3, 0, 8, 8},    {1, 2, 2, 40, 0, 12, 36}};
  if (!fake_)
    cases.insert(cases.end(), {{1, 6, 6, 1500, 1500, 64, 64},
                               {1, 12, 12, 197, 197, 64, 64},
                               {2, 12, 12, 128, 128, 64, 64},
                               {1, 8, 2, 100, 333, 128, 128},
                               {1, 8, 8, 1024, 77, 40, 40},
                               {64, 3, 3, 49, 49, 32, 32},
                               {4, 8, 8, 500, 257, 64, 64},        // more blocks than have room at once
                               {2, 8, 8, 500, 1111, 40, 64},       // two blocks share the keys
                               {2, 24, 24, 1000, 130, 128, 100}}); // eight rows for a thread
  int turn = 0;
  for (const Case& c : cases)
    for (int form = 0; form < 9; ++form) {
      if (fake_ && ++turn % 2 != 0) continue; // emulated threads are slow: each form with some sizes
      AttentionProblem p;
      p.scale = 0.3f;
      p.has_mask = form == 1 || form == 5;
      p.causal = form == 2 || form == 3 || form == 4 || form >= 7;
      p.from_end = form == 3 || form == 8;
      p.has_starts = form == 4;
      p.has_sinks = form == 5;
      p.softcap = form == 6 ? 0.5f : 0;
      p.window = form >= 7 ? 3 : 0;
      p.tokens_first = form == 1;
      p.zero_undefined_rows = form == 3 || form == 4;
      p.zero_hidden_rows = form == 8;
      std::vector<Operand> in = operands(c);
      if (p.has_mask)
        in[3] = random_operand(form == 1 ? DType::f32 : DType::f16,
                               form == 1 ? Dims{c.batch, 1, 1, c.keys} : Dims{1, c.heads, c.queries, c.keys});
      if (p.has_starts) {
        in[4] = random_operand(DType::i32, {c.batch});
        for (int64_t b = 0; b < c.batch; ++b)
          reinterpret_cast<int32_t*>(in[4].bytes.data())[b] = static_cast<int32_t>(b % 3);
      }
      if (p.has_sinks) in[5] = random_operand(DType::f32, {c.heads});
      SCOPED_TRACE(testing::Message()
                   << c.queries << " queries, " << c.keys << " keys of " << c.depth << ", form " << form);
      check(p, in, result(c, p));
    }
}

/// What a row may not see counts for nothing, whatever it is; rows that see it have no number.
TEST_P(FloatAttention, HiddenValuesThatAreNoNumbers) {
  AttentionProblem p;
  p.causal = true;
  const Case c{1, 1, 1, 40, 40, 8, 8};
  std::vector<Operand> in = operands(c);
  const float odd[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()};
  for (int i = 0; i < 2; ++i) {
    std::memcpy(in[2].bytes.data() + ((36 + i) * c.width + 3) * 4, &odd[i], 4); // value 36 + i, column 3
    std::memcpy(in[1].bytes.data() + ((38 + i) * c.depth + 1) * 4, &odd[i], 4); // key 38 + i
  }
  check(p, in, result(c, p));
}

/// Scores whose product with log2(e) no float32 is: one key has all the weight, or all keys the same.
TEST_P(FloatAttention, HugeScores) {
  for (bool equal : {false, true})
    for (float sign : {1.0f, -1.0f})
      for (int64_t keys : {64, 70}) { // a whole tile, and a part of one
        AttentionProblem p;
        const Case c{1, 1, 1, 40, keys, 8, 8};
        std::vector<Operand> in = operands(c);
        auto fill = [&](Operand& t, auto value) {
          auto* v = reinterpret_cast<float*>(t.bytes.data());
          for (size_t i = 0; i < t.bytes.size() / sizeof(float); ++i) v[i] = i % 8 == 0 ? value(i / 8) : 0.0f;
        };
        fill(in[0], [](size_t) { return 1e19f; });
        fill(in[1], [&](size_t key) { return sign * (equal || key == 5 ? 2.9e19f : 1e19f); });
        SCOPED_TRACE(testing::Message() << equal << " " << sign << " " << keys);
        check(p, in, result(c, p));
      }
}

TEST(FloatAttentionTakes, WhatItSays) {
  const auto device = device::make_fake_device();
  auto refusal = [&](auto change) {
    auto in = infos_of(operands({1, 2, 2, 9, 9, 64, 64})),
         out = infos_of({random_operand(DType::f32, {1, 2, 9, 64})});
    device::Properties properties = device->properties();
    change(in, out[0], properties);
    return extern_kernels::refuses_float_attention(properties, in, out);
  };
  EXPECT_EQ(refusal([](auto&, auto&, auto&) {}), "");
  EXPECT_NE(refusal([](auto& in, auto&, auto&) { in[1].dtype = DType::f16; }), "");
  EXPECT_NE(refusal([](auto&, auto& out, auto&) { out.dtype = DType::f16; }), "");
  EXPECT_NE(refusal([](auto& in, auto&, auto&) { in[0].sizes[3] = -1; }), "");
  EXPECT_NE(refusal([](auto& in, auto&, auto&) { in[2].sizes[3] = 132; }), "");
  EXPECT_NE(refusal([](auto&, auto&, auto& properties) { properties.shared_bytes_block = 48 << 10; }), "");
}

} // namespace
} // namespace tbx::test
