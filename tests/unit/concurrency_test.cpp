// Many threads at once: one session with many shapes, variants made by runs, sessions that share an empty
// kernel cache. The thread sanitizer (preset tsan) watches these.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>
#include <thread>

#include "../support/temporary_folder.h"
#include "codegen/build_module.h"
#include "codegen/compiler.h"
#include "driver/compile.h"
#include "graph_helper.h"
#include "importer/export.h"
#include "runtime/session.h"
#include "tensorbox/tensorbox.h"

namespace tbx::test {
namespace {

constexpr int kThreads = 4;

void in_threads(const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back(work, t);
  for (std::thread& t : threads) t.join();
}

std::vector<float> some_values(int64_t n) {
  std::vector<float> v(static_cast<size_t>(n));
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i * 37 % 101) / 50 - 1;
  return v;
}

/// Makes `v` the output `name` of float32.
void output_like(GraphHelper& h, ValueId v, const std::string& name, ir::SymInts shape) {
  h.output(v);
  h.graph.at(v).name = name;
  h.graph.at(v).type.kind = ValueType::tensor;
  h.graph.at(v).type.dtype = DType::f32;
  h.graph.at(v).type.shape = std::move(shape);
  h.graph.opset_imports[""] = 17;
}

/// y = softmax(layer_norm(x w + x)), with x [batch, 48]: a library product and generated rows.
std::string rows_model() {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {h.symbol("batch"), 48});
  ValueId w = h.constant(tensor({48, 48}, some_values(48 * 48)));
  ValueId sum = h.node("Add", {h.node("MatMul", {x, w}, {}, 17), x}, {}, 17);
  ValueId norm = h.node("LayerNormalization", {sum, h.constant(tensor({48}, some_values(48)))}, {}, 17);
  output_like(h, h.node("Softmax", {norm}, {{"axis", int64_t{-1}}}, 17), "y", {h.symbol("batch"), 48});
  return export_bytes(h.graph);
}

/// y = sum of x [2, 3, 4] over axes that a run gives: a variant is compiled for each.
std::string axes_model() {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {2, 3, 4}), axes = h.input("axes", DType::i64, {1});
  output_like(h, h.node("ReduceSum", {x, axes}, {{"keepdims", int64_t{1}}}, 17), "y",
              {h.symbol("a"), h.symbol("b"), h.symbol("c")});
  return export_bytes(h.graph);
}

/// y = x [1, 1, h, 4] resized to 2 x 2 with antialiasing: a variant is compiled for each h.
std::string resize_model() {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {1, 1, h.symbol("h"), 4});
  ValueId y = h.node("Resize", {x, -1, -1, h.constant(ints({4}, {1, 1, 2, 2}))},
                     {{"antialias", int64_t{1}}, {"mode", std::string("linear")}}, 18);
  output_like(h, y, "y", {1, 1, 2, 2});
  h.graph.opset_imports[""] = 18;
  return export_bytes(h.graph);
}

Session session_of(const std::string& model, const CompileOptions& options) {
  return Session::compile(std::as_bytes(std::span(model)), options).value();
}

class Concurrency : public testing::TestWithParam<bool> {
protected:
  void SetUp() override {
    if (GetParam() && !codegen::have_compiler()) GTEST_SKIP() << "no compiler";
    folder_ = temporary_folder("tbx-threads");
    options_.compile = GetParam();
    options_.cache_dir = folder_ / "kernels";
    options_.threads = 2;
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  std::filesystem::path folder_;
  CompileOptions options_;
};

std::vector<float> run_rows(const Session& session, int64_t batch) {
  std::vector<float> x = some_values(batch * 48);
  auto out = session.run({{"x", TensorView::of(x, {batch, 48})}}).value();
  auto y = out.at(0).values<float>();
  return {y.begin(), y.end()};
}

TEST_P(Concurrency, OneSessionWithManyShapes) {
  constexpr int64_t kShapes = 66; // more than the caches of shape plans and of library primitives hold
  Session session = session_of(rows_model(), options_);
  std::vector<std::vector<float>> want;
  for (int64_t batch = 1; batch <= kShapes; ++batch)
    want.push_back(run_rows(session_of(rows_model(), options_), batch));
  std::atomic<int> wrong{0};
  in_threads([&](int t) {
    for (int i = 0; i < 60; ++i) {
      int64_t batch = 1 + (i * (t + 1) * 7) % kShapes;
      wrong += run_rows(session, batch) != want[static_cast<size_t>(batch - 1)];
      if (i % 20 == t) wrong += session.explain().empty() || session.stats().nodes == 0;
      if (i % 20 == 10 + t) {
        std::vector<float> x = some_values(48);
        wrong += session.profile({{"x", TensorView::of(x, {1, 48})}}).value().empty();
      }
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST_P(Concurrency, VariantsMadeByRuns) {
  Session session = session_of(axes_model(), options_);
  std::atomic<int> wrong{0};
  in_threads([&](int t) {
    for (int i = 0; i < 9; ++i) {
      std::vector<int64_t> axis{(i + t) % 3}, dims{2, 3, 4};
      std::vector<float> x(24, 1);
      auto y = session.run({{"x", TensorView::of(x, dims)}, {"axes", TensorView::of(axis, {1})}}).value();
      auto reduced = static_cast<float>(dims[static_cast<size_t>(axis[0])]);
      for (float v : y.at(0).values<float>()) wrong += v != reduced;
    }
  });
  EXPECT_EQ(wrong, 0);
}

std::vector<float> run_resized(const Session& session, int64_t height) {
  std::vector<float> x = some_values(height * 4);
  auto out = session.run({{"x", TensorView::of(x, {1, 1, height, 4})}}).value();
  auto y = out.at(0).values<float>();
  return {y.begin(), y.end()};
}

TEST_P(Concurrency, RunsGoOnWhileAVariantIsCompiled) {
  std::promise<void> compiling, go_on;
  std::shared_future<void> allowed = go_on.get_future().share();
  std::atomic<bool> hold{false};
  CompileOptions slow = options_;
  slow.progress = [&](const std::string& stage, int, int) {
    if (stage != "lower" || !hold.exchange(false)) return;
    compiling.set_value();
    allowed.wait();
  };
  Session plain = session_of(resize_model(), options_), session = session_of(resize_model(), slow);
  const std::vector<float> want = run_resized(plain, 8);
  EXPECT_EQ(run_resized(session, 8), want);
  hold = true;
  auto first = std::async(std::launch::async, [&] { return run_resized(session, 6); });
  compiling.get_future().wait();
  auto others = std::async(std::launch::async, [&] {
    EXPECT_EQ(run_resized(session, 8), want) << "of shapes that are compiled";
    EXPECT_EQ(run_resized(session, 10), run_resized(plain, 10)) << "and of others";
    EXPECT_FALSE(session.explain().empty());
  });
  EXPECT_EQ(others.wait_for(std::chrono::minutes(2)), std::future_status::ready) << "they wait for it";
  go_on.set_value();
  others.get();
  EXPECT_EQ(first.get(), run_resized(plain, 6));
}

TEST_P(Concurrency, ManySessionsOneEmptyCache) {
  std::vector<std::vector<float>> results(kThreads);
  in_threads([&](int t) {
    CompileOptions options = options_;
    options.private_threads = t % 2;
    results[static_cast<size_t>(t)] = run_rows(session_of(rows_model(), options), 5);
  });
  for (const auto& r : results) EXPECT_EQ(r, results[0]);
  if (!GetParam()) return;
  EXPECT_EQ(session_of(rows_model(), options_).stats().compiled_units, 0) << "all of it is in the cache";
}

TEST_P(Concurrency, OutputsAreKeptWhileSessionsEnd) {
  std::string model = rows_model();
  std::vector<float> want = run_rows(session_of(model, options_), 3);
  std::atomic<int> wrong{0};
  in_threads([&](int) {
    for (int i = 0; i < 3; ++i) {
      std::vector<OutputTensor> kept;
      {
        Session session = session_of(model, options_);
        std::vector<float> x = some_values(3 * 48);
        for (int k = 0; k < 3; ++k)
          for (OutputTensor& o : session.run({{"x", TensorView::of(x, {3, 48})}}).value())
            kept.push_back(std::move(o));
      }
      for (const OutputTensor& o : kept) {
        auto y = o.values<float>();
        wrong += !std::equal(y.begin(), y.end(), want.begin(), want.end());
      }
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST_P(Concurrency, CancelledFromAnotherThreadWhileMemoryIsGivenBack) {
  std::string model = rows_model();
  driver::Compiled compiled = driver::compile(std::as_bytes(std::span(model)), options_);
  runtime::Session session(compiled.bound, {.threads = 2});
  std::atomic<bool> cancel{false};
  std::atomic<int> running{kThreads};
  std::thread other([&] {
    while (running > 0) {
      session.release_memory();
      cancel = true;
      std::this_thread::yield();
    }
  });
  in_threads([&](int t) {
    std::vector<float> x = some_values(4 * 48), y(4 * 48);
    std::vector<runtime::RunTensor> in(1), out(1);
    in[0] = {x.data(), DType::f32, {4, 48}, nullptr, nullptr};
    runtime::RunOptions options;
    if (t % 2) options.cancel = &cancel;
    for (int i = 0; i < 50; ++i) {
      out[0] = {y.data(), DType::f32, {4, 48}, nullptr, nullptr};
      try {
        session.run(in, out, options);
        EXPECT_GT(session.peak_bytes(in), 0);
      } catch (const Error&) {
        EXPECT_TRUE(t % 2);
      }
    }
    --running;
  });
  other.join();
}

INSTANTIATE_TEST_SUITE_P(, Concurrency, testing::Bool(),
                         [](const auto& p) { return p.param ? "Compiled" : "Evaluated"; });

} // namespace
} // namespace tbx::test
