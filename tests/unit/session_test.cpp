// The runtime on whole models: shapes, errors, threads, limits, and no allocation in the steady state.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>
#include <thread>

#include "driver/compile.h"
#include "graph_helper.h"
#include "importer/export.h"
#include "runtime/block_pool.h"
#include "runtime/session.h"
#include "tensorbox/tensorbox.h"
#include "tests/support/places.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TBX_COUNT_ALLOCATIONS 0 // the sanitizers bring their own allocator
#else
#define TBX_COUNT_ALLOCATIONS 1
// Counts heap allocations of this thread while armed.
static thread_local bool counting = false;
static thread_local int allocations = 0;
// Never inlined: the compiler would see free() take what `new` returned, and warn.
[[gnu::noinline]] void* operator new(size_t n) {
  if (counting) ++allocations;
  if (void* p = std::malloc(n ? n : 1)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }
#endif

namespace tbx::test {
namespace {

using ::testing::HasSubstr;

std::string model_path() { return source_dir() + "/examples/digits/digits.onnx"; }

std::vector<float> picture() {
  std::vector<float> p(64);
  for (int i = 0; i < 64; ++i) p[i] = i % 8 == 3 || i % 8 == 4;
  return p;
}

// What would read or write past the memory of the caller, or make no sense, is refused with a message.

std::string refused(const std::function<void()>& f) {
  try {
    f();
  } catch (const Exception& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(PublicApi, ViewsAreAsLargeAsTheirDims) {
  std::vector<float> values(6);
  EXPECT_EQ(TensorView::of(values, {2, 3}).type, 1);
  EXPECT_EQ(TensorView::of(values, {0, 1000}).dims.size(), 2u);
  EXPECT_EQ(TensorView::of(values, {2}).dims, (std::vector<int64_t>{2})); // a part of a larger buffer
  EXPECT_THAT(refused([&] {
                TensorView::of(values, {2, 4});
              }),
              HasSubstr("6 elements, fewer than its dims [2, 4]"));
  EXPECT_THAT(refused([&] { TensorView::of(values, {-2, -3}); }), HasSubstr("fewer than its dims"));
  EXPECT_THAT(refused([&] { TensorView::of(values, {int64_t{1} << 62, 8}); }), HasSubstr("fewer than"));
  EXPECT_THAT(refused([&] { OnnxValue::of(values, {7}); }), HasSubstr("6 elements"));
}

TEST(PublicApi, ValuesAreReadAsWhatTheyAre) {
  auto session = Session::compile(model_path()).value();
  std::vector<float> one = picture();
  auto out = session.run({{session.inputs()[0].name, TensorView::of(one, {1, 1, 8, 8})}}).value();
  EXPECT_EQ(out[0].values<float>().size(), 10u);
  EXPECT_THAT(refused([&] { out[0].values<double>(); }), HasSubstr("the tensor is float32, not float64"));
  EXPECT_THAT(refused([&] { out[0].values<int32_t>(); }), HasSubstr("float32, not int32"));
  OutputTensor half{"h", 10, {2}, one.data(), nullptr, nullptr};
  EXPECT_EQ(half.values<uint16_t>().size(), 2u);
  EXPECT_THAT(refused([&] { half.values<float>(); }), HasSubstr("float16, not float32"));
}

TEST(PublicApi, OptionsThatCannotBe) {
  auto refusal = [](const std::function<void(CompileOptions&)>& set) {
    CompileOptions options;
    options.compile = false;
    set(options);
    auto session = Session::compile(model_path(), options);
    return session.ok() ? std::string("compiled") : session.error().message;
  };
  EXPECT_EQ(refusal([](CompileOptions&) {}), "compiled");
  EXPECT_THAT(refusal([](CompileOptions& o) { o.threads = -1; }),
              HasSubstr("threads is -1: expected 0 to 4096"));
  EXPECT_THAT(refusal([](CompileOptions& o) { o.threads = 100000; }), HasSubstr("threads is 100000"));
  EXPECT_THAT(refusal([](CompileOptions& o) { o.max_memory = -1; }), HasSubstr("max_memory is -1"));
  EXPECT_THAT(refusal([](CompileOptions& o) { o.time_limit_ms = -1; }), HasSubstr("time_limit_ms is -1"));
  EXPECT_THAT(refusal([](CompileOptions& o) { o.dims["nothing"] = 1; }),
              HasSubstr("dimension 'nothing', which the model does not have; its inputs have: "));
}

TEST(Session, RunsBatchesOfAnySizeWithOneCompilation) {
  auto session = Session::compile(model_path()).value();
  std::string input = session.inputs()[0].name;
  std::vector<float> one = picture();
  auto single = session.run({{input, TensorView::of(one, {1, 1, 8, 8})}}).value();
  for (int64_t batch : {2, 5, 1, 3}) {
    std::vector<float> many;
    for (int64_t i = 0; i < batch; ++i) many.insert(many.end(), one.begin(), one.end());
    auto out = session.run({{input, TensorView::of(many, {batch, 1, 8, 8})}}).value();
    EXPECT_EQ(out[0].dims, (std::vector<int64_t>{batch, 10}));
    for (int64_t i = 0; i < batch * 10; ++i)
      EXPECT_NEAR(out[0].values<float>()[i], single[0].values<float>()[i % 10], 1e-5);
  }
}

TEST(Session, AnEmptyBatchGivesAnEmptyResult) {
  auto session = Session::compile(model_path()).value();
  std::vector<float> none(1);
  auto out = session.run({{session.inputs()[0].name, TensorView::of(none, {0, 1, 8, 8})}}).value();
  EXPECT_EQ(out[0].dims, (std::vector<int64_t>{0, 10}));
}

TEST(Session, WrongInputsAreNamed) {
  auto session = Session::compile(model_path()).value();
  std::string input = session.inputs()[0].name;
  std::vector<float> p = picture();
  std::vector<double> d(64);
  auto message = [&](const Session::Inputs& in) {
    auto r = session.run(in);
    EXPECT_FALSE(r.ok());
    if (r.ok()) return std::string();
    EXPECT_EQ(r.error().kind, Failure::model_error);
    return r.error().message;
  };
  EXPECT_THAT(message({}), HasSubstr("input '" + input + "' is missing"));
  EXPECT_THAT(message({{"nope", TensorView::of(p, {1, 1, 8, 8})}}), HasSubstr("no input 'nope'"));
  EXPECT_THAT(message({{input, TensorView::of(d, {1, 1, 8, 8})}}),
              HasSubstr("has type float64, expected float32"));
  EXPECT_THAT(message({{input, TensorView::of(p, {64})}}), HasSubstr("has rank 1, expected 4"));
  EXPECT_THAT(message({{input, TensorView::of(p, {1, 1, 4, 16})}}), HasSubstr("is 4, expected 8"));
}

TEST(Session, ManyThreadsAtOnce) {
  auto session = Session::compile(model_path()).value();
  std::string input = session.inputs()[0].name;
  std::vector<float> p = picture();
  auto want = session.run({{input, TensorView::of(p, {1, 1, 8, 8})}}).value();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        std::vector<float> mine = picture();
        auto out = session.run({{input, TensorView::of(mine, {1, 1, 8, 8})}});
        if (!out) {
          ++wrong;
          continue;
        }
        for (int k = 0; k < 10; ++k) wrong += out.value()[0].values<float>()[k] != want[0].values<float>()[k];
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Session, TheEvaluatorAgreesWithGeneratedCode) {
  CompileOptions interpreted;
  interpreted.compile = false;
  auto a = Session::compile(model_path()).value(), b = Session::compile(model_path(), interpreted).value();
  std::vector<float> p = picture();
  auto x = a.run({{a.inputs()[0].name, TensorView::of(p, {1, 1, 8, 8})}}).value();
  auto y = b.run({{b.inputs()[0].name, TensorView::of(p, {1, 1, 8, 8})}}).value();
  for (int k = 0; k < 10; ++k) EXPECT_NEAR(x[0].values<float>()[k], y[0].values<float>()[k], 1e-5);
  for (const KernelReport& k : b.explain()) EXPECT_NE(k.kind, "generated");
}

TEST(Session, UnknownOptionsAreErrors) {
  CompileOptions options;
  options.disabled_passes = {"no_such_pass"};
  auto r = Session::compile(model_path(), options);
  ASSERT_FALSE(r.ok());
  EXPECT_THAT(r.error().message, HasSubstr("unknown pass 'no_such_pass'"));
  CompileOptions isa;
  isa.isa = "mmx";
  EXPECT_THAT(Session::compile(model_path(), isa).error().message, HasSubstr("unknown isa 'mmx'"));
}

TEST(Session, TheMemoryLimitHolds) {
  CompileOptions options;
  options.max_memory = 64;
  auto session = Session::compile(model_path(), options).value();
  std::vector<float> p = picture();
  auto r = session.run({{session.inputs()[0].name, TensorView::of(p, {1, 1, 8, 8})}});
  ASSERT_FALSE(r.ok());
  EXPECT_THAT(r.error().message, HasSubstr("the limit is 64"));
}

#if TBX_COUNT_ALLOCATIONS
/// Softmax and layer normalisation over [batch, 64]: generated kernels only. oneDNN allocates inside its own
/// calls.
std::string generated_model() {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {h.symbol("batch"), 64});
  ValueId norm = h.node("LayerNormalization", {x, h.constant(Tensor::make(DType::f32, {64}))}, {}, 17);
  h.output(h.node("Softmax", {norm}, {{"axis", int64_t{-1}}}, 17));
  h.graph.at(h.graph.outputs[0]).name = "y";
  h.graph.at(h.graph.outputs[0]).type = h.graph.at(x).type;
  h.graph.opset_imports[""] = 17;
  return export_bytes(h.graph);
}

TEST(Session, NoAllocationInTheSteadyState) {
  CompileOptions options;
  options.threads = 1;
  std::string model = generated_model();
  driver::Compiled compiled = driver::compile(std::as_bytes(std::span(model)), options);
  runtime::Session session(compiled.bound, {.threads = 1});
  std::vector<float> values(64 * 3, 0.5f), result(64 * 3);
  auto tensor = [](std::vector<float>& data, int64_t batch) {
    runtime::RunTensor t;
    t.data = data.data();
    t.dtype = DType::f32;
    t.dims = {batch, 64};
    return t;
  };
  std::vector<runtime::RunTensor> in1{tensor(values, 1)}, out1{tensor(result, 1)}, in3{tensor(values, 3)},
      out3{tensor(result, 3)};
  for (int i = 0; i < 3; ++i) {
    session.run(in1, out1);
    session.run(in3, out3);
  }
  counting = true;
  allocations = 0;
  session.run(in1, out1);
  session.run(in3, out3);
  counting = false;
  EXPECT_EQ(allocations, 0);
  EXPECT_NEAR(result[0], 1.0 / 64, 1e-6);
}
#endif

TEST(Session, CancelStopsTheRun) {
  driver::Compiled compiled = driver::compile(std::filesystem::path(model_path()), {});
  runtime::Session session(compiled.bound);
  std::vector<float> p = picture();
  std::vector<runtime::RunTensor> in(1), out(1);
  in[0] = {p.data(), DType::f32, {1, 1, 8, 8}, nullptr, nullptr};
  std::atomic<bool> cancel{true};
  runtime::RunOptions options;
  options.cancel = &cancel;
  EXPECT_THROW(session.run(in, out, options), Error);
}

TEST(Session, RunsOfAThreadInACancelScopeEnd) {
  const Session session = Session::compile(model_path()).value();
  std::vector<float> p = picture();
  auto run = [&] { return session.run({{"image", TensorView::of(p, {1, 1, 8, 8})}}); };
  std::atomic<bool> outer{false}, inner{true};
  const CancelScope scope(outer);
  {
    const CancelScope within(inner);
    const auto failed = run();
    ASSERT_FALSE(failed.ok());
    EXPECT_NE(failed.error().message.find("the run was cancelled"), std::string::npos);
    std::thread([&] { EXPECT_TRUE(run().ok()) << "of a thread that is in no scope"; }).join();
  }
  EXPECT_TRUE(run().ok());
}

TEST(BlockPool, BlocksComeBackWhenTheirLastOwnerLetsGo) {
  runtime::BlockPool pool;
  std::shared_ptr<void> a = pool.get(1 << 20), b = pool.get(1 << 20);
  EXPECT_NE(a, b);
  void* first = a.get();
  std::shared_ptr<void> second_owner = a;
  a.reset();
  EXPECT_NE(pool.get(1 << 20).get(), first) << "still owned";
  second_owner.reset();
  std::shared_ptr<void> again = pool.get((1 << 20) - 100);
  EXPECT_EQ(again.get(), first);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(again.get()) % 64, 0u);
  again.reset();
  EXPECT_NE(pool.get(1 << 16).get(), first) << "far too large for this";
  std::shared_ptr<void> outlives;
  {
    runtime::BlockPool brief;
    outlives = brief.get(1 << 20);
  }
  static_cast<char*>(outlives.get())[0] = 1;
}

TEST(Threads, AtLeastOneAndNoMoreThanOmpSays) {
  EXPECT_GE(runtime::default_threads(), 1);
  setenv("OMP_NUM_THREADS", "1", 1);
  EXPECT_EQ(runtime::default_threads(), 1);
  unsetenv("OMP_NUM_THREADS");
}

} // namespace
} // namespace tbx::test
