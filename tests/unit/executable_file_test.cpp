// An executable as bytes and back, and bytes that are no executable. Checksums are the package's
// (package_file_test.cpp).
#include <cstring>
#include <gmock/gmock.h>
#include <random>

#include "base/archive.h"
#include "driver/compile.h"
#include "graph_helper.h"
#include "importer/export.h"
#include "plan_bytes.h"
#include "runtime/bind.h"
#include "runtime/session.h"
#include "runtime/verify.h"

namespace tbx::test {
namespace {

using runtime::Executable;
using testing::HasSubstr;

void add_output(GraphHelper& h, ValueId v, const std::string& name, DType type) {
  h.output(v);
  h.graph.at(v).name = name;
  h.graph.at(v).type = {ValueType::tensor, type};
}

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

Executable read(const PlanBytes& bytes) {
  Executable e = plan_of(bytes, runtime::from_bytes);
  if (const std::string defect = runtime::defect_of(e); !defect.empty()) archive::damaged(defect.c_str());
  return e;
}

TEST(ExecutableFile, WhatIsReadIsWhatWasWritten) {
  driver::Compiled model = some_model();
  const PlanBytes bytes = bytes_of(model.executable());
  Executable back = read(bytes);
  EXPECT_EQ(runtime::to_string(back), runtime::to_string(model.executable()));
  EXPECT_EQ(bytes_of(back), bytes);
  EXPECT_EQ(bytes_of(some_model().executable()), bytes) << "equal executables give equal bytes";
}

TEST(ExecutableFile, ResultsAreBitEqual) {
  driver::Compiled model = some_model();
  auto back = std::make_shared<const Executable>(read(bytes_of(model.executable())));
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

TEST(ExecutableFile, ConstantsAreViewsOfTheFileAndAligned) {
  const PlanBytes bytes = bytes_of(some_model().executable());
  const std::span<const std::byte> file = std::as_bytes(std::span(bytes.tensors));
  Executable e = runtime::from_bytes(std::as_bytes(std::span(bytes.plan)), {file, nullptr});
  ASSERT_FALSE(e.constants.empty());
  for (const auto& t : e.constants) {
    EXPECT_TRUE(t->data >= file.data() && t->data + t->bytes() <= file.data() + file.size());
    EXPECT_EQ((t->data - file.data()) % 64, 0);
  }
}

TEST(ExecutableFile, EqualConstantsLieInTheFileOnce) {
  TensorPool pool;
  const Tensor a = tensor({3}, {1, 2, 3}), same = tensor({3, 1}, {1, 2, 3}), other = tensor({3}, {1, 2, 4}),
               none = tensor({0}, {});
  EXPECT_EQ(pool.add(a), 0u);
  EXPECT_EQ(pool.add(same), 0u);
  EXPECT_EQ(pool.add(other), 64u);
  EXPECT_EQ(pool.add(none), 0u);
  EXPECT_EQ(pool.bytes(), 76u);
  EXPECT_EQ(pool.to_string().size(), 76u);
}

TEST(ExecutableFile, CutPlansAreDamaged) {
  const PlanBytes bytes = bytes_of(some_model().executable());
  for (size_t n = 0; n < bytes.plan.size(); n += 1 + n / 16)
    EXPECT_THAT(error_of([&] {
                  read({bytes.plan.substr(0, n), bytes.tensors});
                }),
                HasSubstr("is damaged"))
        << n;
  EXPECT_THAT(error_of([&] { read({bytes.plan + "x", bytes.tensors}); }), HasSubstr("follows the end"));
  EXPECT_THAT(error_of([&] {
                read({bytes.plan, bytes.tensors.substr(0, 8)});
              }),
              HasSubstr("outside of the file"));
}

/// What is read is an error or sound, never a crash.
TEST(ExecutableFile, ASpoiltPlanIsRefusedOrSound) {
  const PlanBytes bytes = bytes_of(some_model().executable());
  std::mt19937 random(7);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    try {
      Executable e = read(spoilt(bytes, random));
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
