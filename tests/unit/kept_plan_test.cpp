// Kept plans below the interface: where tensors lie in a model's files, the cache's files, and plans that
// somebody changed and sealed again. tests/python/test_kept_plans.py has what sessions do with them.
#include "driver/kept_plan.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>

#include "base/error.h"
#include "base/memory.h"
#include "codegen/kernel_cache.h"
#include "graph_helper.h"
#include "importer/tensor_places.h"
#include "tensorbox/tensorbox.h"
#include "tests/support/onnx_text.h"
#include "tests/support/temporary_folder.h"

namespace tbx::test {
namespace {

namespace fs = std::filesystem;
using importer::TensorPlace;
using importer::TensorPlaces;
using testing::HasSubstr;

class KeptPlans : public testing::Test {
protected:
  void SetUp() override {
    if (const char* before = std::getenv("TBX_CACHE_PLANS")) before_ = before;
    unsetenv("TBX_CACHE_PLANS");
    toolchain_.cache_dir = folder_ / "cache";
  }
  void TearDown() override {
    if (!before_.empty()) setenv("TBX_CACHE_PLANS", before_.c_str(), 1);
    fs::remove_all(folder_);
  }

  std::vector<fs::path> plans() const {
    std::vector<fs::path> all;
    for (const auto& file : fs::directory_iterator(toolchain_.cache_dir))
      if (file.path().extension() == ".plan") all.push_back(file.path());
    return all;
  }

  const fs::path folder_ = temporary_folder("kept-plans");
  codegen::Toolchain toolchain_;
  std::string before_;
};

Tensor tensor_in(const std::shared_ptr<const std::byte>& owner, size_t at, int64_t elements) {
  Tensor t;
  t.dtype = DType::f32;
  t.dims = {elements};
  t.data = owner.get() + at;
  t.owner = owner;
  return t;
}

TEST(TensorPlaces, KnowMemoryByItsOwner) {
  const std::shared_ptr<void> block = allocate_aligned(4096), other = allocate_aligned(4096);
  const std::shared_ptr<const std::byte> known(block, static_cast<const std::byte*>(block.get()));
  const std::shared_ptr<const std::byte> unknown(other, static_cast<const std::byte*>(other.get()));
  TensorPlaces places;
  places.note(known, {known.get(), 4096}, "weights.bin", 128);
  EXPECT_EQ(places.place_of(tensor_in(known, 0, 1024)), (TensorPlace{"weights.bin", 128, 4096}));
  EXPECT_EQ(places.place_of(tensor_in(known, 64, 3)), (TensorPlace{"weights.bin", 192, 12}));
  EXPECT_EQ(places.place_of(tensor_in(known, 4096, 0)), (TensorPlace{"weights.bin", 4224, 0}));
  EXPECT_EQ(places.place_of(tensor_in(known, 64, 1024)), std::nullopt); // goes past its end
  EXPECT_EQ(places.place_of(tensor_in(unknown, 0, 4)), std::nullopt);
  EXPECT_EQ(places.place_of(Tensor::make(DType::f32, {4})), std::nullopt);
  EXPECT_EQ(places.place_of(Tensor::of_strings({1}, {"a"})), std::nullopt);
  // The same address with another owner is other memory, which came there since.
  const std::shared_ptr<const std::byte> later(known.get(), [](const std::byte*) {});
  EXPECT_EQ(places.place_of(tensor_in(later, 0, 4)), std::nullopt);
}

TEST(TensorPlaces, KnowWhatWasMadeOfAPlace) {
  const std::shared_ptr<void> block = allocate_aligned(4096);
  const std::shared_ptr<const std::byte> known(block, static_cast<const std::byte*>(block.get()));
  TensorPlaces places;
  places.note(known, {known.get(), 4096}, "weights.bin", 128);
  Tensor half = Tensor::make(DType::f16, {100});
  places.note_encoded(tensor_in(known, 64, 100), half);
  EXPECT_EQ(places.place_of(half), (TensorPlace{"weights.bin", 192, 400, DType::f16}));
  EXPECT_EQ(places.place_of(half)->bytes_read(), 200U);
  half.data += 2 * 10;
  half.dims = {5}; // a part of it
  EXPECT_EQ(places.place_of(half), (TensorPlace{"weights.bin", 232, 20, DType::f16}));
  const Tensor unknown = Tensor::make(DType::bf16, {4});
  places.note_encoded(Tensor::make(DType::f32, {4}), unknown); // which lies in no file
  EXPECT_EQ(places.place_of(unknown), std::nullopt);
}

TEST_F(KeptPlans, LieInTheCacheWhole) {
  codegen::KernelCache cache(toolchain_);
  const std::string key(32, 'a'), other(32, 'b');
  size_t size = 0;
  std::string wrong;
  EXPECT_EQ(cache.find_plan(key, size, wrong), nullptr);
  EXPECT_EQ(wrong, "");
  for (const std::string& text : {std::string("x"), std::string(100'000, 'y')}) {
    EXPECT_EQ(cache.insert_plan(key, text), "");
    const auto found = cache.find_plan(key, size, wrong);
    ASSERT_TRUE(found);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(found.get()) % kTensorAlignment, 0U);
    EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(found.get()), size), text);
  }
  const fs::path file = toolchain_.cache_dir / (key + ".plan");
  fs::copy_file(file, toolchain_.cache_dir / (other + ".plan"));
  EXPECT_EQ(cache.find_plan(other, size, wrong), nullptr); // sealed for another name
  EXPECT_THAT(wrong, HasSubstr("damaged"));
  EXPECT_FALSE(fs::exists(toolchain_.cache_dir / (other + ".plan")));
  wrong.clear();
  chmod(file.c_str(), 0666);
  EXPECT_EQ(cache.find_plan(key, size, wrong), nullptr); // others could have written it
  cache.evict_plan(key);
  EXPECT_FALSE(fs::exists(file));
  EXPECT_EQ(cache.plan_seed(), codegen::KernelCache(toolchain_).plan_seed());
  codegen::Toolchain elsewhere;
  elsewhere.cache_dir = folder_ / "elsewhere";
  EXPECT_NE(cache.plan_seed(), codegen::KernelCache(elsewhere).plan_seed());
}

constexpr const char* kModel = R"(<ir_version: 10, opset_import: ["": 21]>
  kept (float[n, 16] x) => (float[n, 16] y) <float[16] b = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}>
  { s = Softmax(x)
    t = Mul(s, b)
    r = ReduceMax<keepdims=1>(t)
    u = Div(t, r)
    y = Add(u, x) })";

Result<std::vector<OutputTensor>> run(const std::string& model, const CompileOptions& options,
                                      CompileStats& stats) {
  auto session = Session::compile(std::as_bytes(std::span(model)), options);
  if (!session) return session.error();
  stats = session.value().stats();
  std::vector<float> x(48);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 0.1F * static_cast<float>(i % 7);
  return session.value().run({{"x", TensorView::of(x, {3, 16})}});
}

/// Who has the key of the seals can write any plan. In the evaluator, where no step is native code, one is an
/// error of the plan or a run, or results, and never a crash. A session says what it did not use.
TEST_F(KeptPlans, ThatWereChangedAndSealedAgain) {
  const std::string model = to_bytes(parse_text(kModel));
  CompileOptions options;
  options.cache_dir = toolchain_.cache_dir;
  options.compile = false;
  options.max_memory = 64 << 20;
  options.time_limit_ms = 5000;
  std::string said;
  options.log = [&](const std::string& text) { said += text; };
  CompileStats stats;
  ASSERT_TRUE(run(model, options, stats).ok());
  ASSERT_EQ(stats.not_kept, "");
  ASSERT_EQ(plans().size(), 1U);
  const std::string key = plans()[0].stem().string();
  size_t size = 0;
  codegen::KernelCache cache(toolchain_);
  const auto found = cache.find_plan(key, size, said);
  ASSERT_TRUE(found);
  const std::string whole(reinterpret_cast<const char*>(found.get()), size);
  std::mt19937 random(7);
  int used = 0, refused = 0;
  for (int i = 0; i < 600; ++i) {
    std::string changed = whole;
    const size_t at = random() % whole.size();
    switch (i % 4) {
    case 0: changed[at] = static_cast<char>(changed[at] ^ (1 << random() % 8)); break;
    case 1: changed[at] = static_cast<char>(random()); break;
    case 2: changed.resize(at); break;
    default: {
      const uint64_t number = i % 8 == 3 ? ~uint64_t{0} : uint64_t{1} << random() % 64;
      if (at + sizeof number <= changed.size()) std::memcpy(changed.data() + at, &number, sizeof number);
    }
    }
    if (changed == whole || changed.empty()) continue;
    ASSERT_EQ(cache.insert_plan(key, changed), "");
    said.clear();
    const auto result = run(model, options, stats);
    if (!result) {
      EXPECT_TRUE(stats.kept_plan) << i << ": " << result.error().message;
      EXPECT_NE(result.error().kind, Failure::internal_error) << i << ": " << result.error().message;
    }
    ++(stats.kept_plan ? used : refused);
    EXPECT_EQ(stats.kept_plan, said.empty()) << i << ": " << said;
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(used, 10); // names and numbers for explain
}

TEST_F(KeptPlans, AreAnOption) {
  const std::string model = to_bytes(parse_text(kModel));
  CompileOptions options;
  options.cache_dir = toolchain_.cache_dir;
  options.compile = false;
  CompileStats stats;
  options.keep_plans = false;
  auto wanted = run(model, options, stats);
  EXPECT_FALSE(stats.kept_plan);
  EXPECT_THAT(stats.not_kept, HasSubstr("keep_plans"));
  EXPECT_FALSE(fs::exists(toolchain_.cache_dir));
  options.keep_plans = true;
  for (const bool kept : {false, true}) {
    auto found = run(model, options, stats);
    EXPECT_EQ(stats.kept_plan, kept);
    ASSERT_TRUE(found.ok() && wanted.ok());
    EXPECT_THAT(found.value()[0].values<float>(),
                testing::ElementsAreArray(wanted.value()[0].values<float>()));
  }
}

} // namespace
} // namespace tbx::test
