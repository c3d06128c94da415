// An executable as bytes and back, and bytes that are no executable.
#include "runtime/executable_file.h"

#include <gmock/gmock.h>
#include <xxhash.h>

#include <cstring>
#include <random>

#include "driver/compile.h"
#include "graph_helper.h"
#include "importer/export.h"
#include "runtime/bind.h"
#include "runtime/session.h"

namespace tbx::test {
namespace {

using runtime::Executable;
using testing::HasSubstr;

void add_output(GraphHelper& h, ValueId v, const std::string& name, DType type) {
  h.output(v);
  h.graph.at(v).name = name;
  h.graph.at(v).type = {ValueType::tensor, type};
}

constexpr size_t kHeader = 72; ///< magic, version, two parts (offset, size, checksum), checksum

driver::Compiled compiled(GraphHelper& h) {
  h.graph.opset_imports[""] = 17;
  std::string bytes = export_bytes(h.graph);
  CompileOptions options;
  options.compile = false;
  return driver::compile(std::as_bytes(std::span(bytes)), options);
}

/// Products, convolutions with post-operations, attention-like rows, host operators with attributes, sizes
/// that depend on data.
driver::Compiled some_model() {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {h.symbol("batch"), 2, h.symbol("h"), 5});
  std::vector<float> k(36), w(20);
  for (size_t i = 0; i < k.size(); ++i) k[i] = static_cast<float>(i % 7) / 4 - 1;
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 5) / 3 - 1;
  ValueId conv = h.node("Conv", {x, h.constant(tensor({2, 2, 3, 3}, k))},
                        {{"pads", std::vector<int64_t>{1, 1, 1, 1}}}, 17);
  ValueId relu = h.node("Relu", {conv}, {}, 17);
  ValueId y = h.node("Softmax", {h.node("MatMul", {relu, h.constant(tensor({5, 4}, w))}, {}, 17)},
                     {{"axis", int64_t{-1}}}, 17);
  add_output(h, y, "y", DType::f32);
  ValueId top = h.node("TopK", {y, h.constant(ints({1}, {2}))}, {{"axis", int64_t{-1}}}, 17, 2);
  add_output(h, top, "top", DType::f32);
  ValueId at = h.node("NonZero", {h.node("Greater", {y, h.constant(tensor({}, {0.25f}))}, {}, 17)}, {}, 17);
  add_output(h, at, "at", DType::i64);
  return compiled(h);
}

Executable read(const std::string& bytes) {
  auto kept = std::make_shared<const std::string>(bytes);
  return runtime::from_bytes(std::as_bytes(std::span(*kept)), kept);
}

TEST(ExecutableFile, WhatIsReadIsWhatWasWritten) {
  driver::Compiled model = some_model();
  const std::string bytes = runtime::to_bytes(model.executable());
  Executable back = read(bytes);
  EXPECT_EQ(runtime::to_string(back), runtime::to_string(model.executable()));
  EXPECT_EQ(runtime::to_bytes(back), bytes);
  EXPECT_EQ(runtime::to_bytes(some_model().executable()), bytes) << "equal executables give equal bytes";
}

TEST(ExecutableFile, ResultsAreBitEqual) {
  driver::Compiled model = some_model();
  auto back = std::make_shared<const Executable>(read(runtime::to_bytes(model.executable())));
  runtime::Session a(model.bound, {.threads = 1}),
      b(runtime::bind(back, model.bound->modules), {.threads = 1});
  for (int64_t batch : {0, 1, 3})
    for (int64_t height : {1, 4}) {
      std::vector<float> x(static_cast<size_t>(batch * 2 * height * 5));
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 37 % 11) - 5;
      std::vector<runtime::RunTensor> in(1), out_a(3), out_b(3);
      in[0] = {x.data(), DType::f32, {batch, 2, height, 5}, nullptr, nullptr};
      a.run(in, out_a);
      b.run(in, out_b);
      for (size_t i = 0; i < out_a.size(); ++i) {
        EXPECT_EQ(out_a[i].dims, out_b[i].dims);
        const auto n = static_cast<size_t>(checked_numel(out_a[i].dims) * size_of(out_a[i].dtype));
        EXPECT_TRUE(n == 0 || std::memcmp(out_a[i].data, out_b[i].data, n) == 0);
      }
    }
}

TEST(ExecutableFile, ConstantsLieInTheFile) {
  std::string bytes = runtime::to_bytes(some_model().executable());
  auto kept = std::shared_ptr<char>(static_cast<char*>(std::aligned_alloc(64, (bytes.size() + 63) / 64 * 64)),
                                    std::free);
  std::copy(bytes.begin(), bytes.end(), kept.get());
  std::span<const std::byte> file = std::as_bytes(std::span(kept.get(), bytes.size()));
  Executable e = runtime::from_bytes(file, kept);
  ASSERT_FALSE(e.constants.empty());
  for (const auto& t : e.constants) {
    EXPECT_TRUE(t->data >= file.data() && t->data + t->bytes() <= file.data() + file.size());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(t->data) % 64, 0u);
  }
}

TEST(ExecutableFile, DamageIsFound) {
  const std::string bytes = runtime::to_bytes(some_model().executable());
  EXPECT_THAT(error_of([] { read("a text"); }), HasSubstr("this is no saved model"));
  std::string other = bytes;
  other[8] = 77;
  EXPECT_THAT(error_of([&] { read(other); }), HasSubstr("has version 77 of the format, this is version 1"));
  for (size_t n = 0; n < bytes.size(); n += 1 + n / 16)
    EXPECT_NE(error_of([&] { read(bytes.substr(0, n)); }), "no error") << "cut off after " << n;
  uint64_t plan_size = 0;
  std::memcpy(&plan_size, bytes.data() + 24, sizeof plan_size);
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    std::string spoilt = bytes;
    const size_t at = i % 2 ? random() % kHeader : kHeader + random() % (plan_size - 1);
    spoilt[at] = static_cast<char>(spoilt[at] ^ (1 + random() % 255));
    EXPECT_NE(error_of([&] { read(spoilt); }), "no error") << "byte " << at;
  }
}

/// A changed plan with checksums that fit: what is read is an error or sound, never a crash.
TEST(ExecutableFile, ASpoiltPlanIsRefusedOrSound) {
  const std::string bytes = runtime::to_bytes(some_model().executable());
  auto number = [](std::string& of, size_t at) {
    uint64_t v = 0;
    std::memcpy(&v, of.data() + at, sizeof v);
    return v;
  };
  auto put = [](std::string& of, size_t at, uint64_t v) { std::memcpy(of.data() + at, &v, sizeof v); };
  constexpr size_t kPlan = 16, kHeaderSum = 64;
  std::mt19937 random(7);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string spoilt = bytes;
    const size_t offset = number(spoilt, kPlan), size = number(spoilt, kPlan + 8);
    for (int k = 0, n = 1 + static_cast<int>(random() % 3); k < n; ++k)
      spoilt[offset + random() % size] = static_cast<char>(random() % 4 ? random() % 4 : random() % 256);
    put(spoilt, kPlan + 16, XXH3_64bits(spoilt.data() + offset, size));
    put(spoilt, kHeaderSum, XXH3_64bits(spoilt.data(), kHeaderSum));
    try {
      Executable e = read(spoilt);
      EXPECT_EQ(runtime::defect_of(e), "");
      runtime::to_string(e);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::model) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

} // namespace
} // namespace tbx::test
