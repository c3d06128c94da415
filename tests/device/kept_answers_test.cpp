// What libraries of GPUs were measured to do best is kept from process to process. Needs a GPU with cuDNN.
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/nvrtc.h"
#include "extern_kernels/cuda/dnn_plan.h"
#include "library_kernels_helper.h"

namespace tbx::test {
namespace {

using namespace extern_kernels::cuda;

class Answers final : public device::cuda::BinaryCache {
public:
  std::optional<std::string> find(const std::string& source, const std::string&) override {
    const auto it = all.find(source);
    return it == all.end() ? std::nullopt : std::optional(it->second);
  }
  void keep(const std::string& source, const std::string&, const std::string& answer) override {
    all[source] = answer;
  }
  std::map<std::string, std::string> all;
};

constexpr int64_t kSize = 64;

/// y = gelu(a * b), which no kernel is ready for: cuDNN compiles one.
std::shared_ptr<dnn::Graph> product_with_gelu() {
  auto graph = std::make_shared<dnn::Graph>();
  const std::vector<int64_t> sizes{1, kSize, kSize}, strides{kSize * kSize, kSize, 1};
  dnn::Object &a = graph->tensor(1, dnn::kF16, sizes, strides, 16),
              &b = graph->tensor(2, dnn::kF16, sizes, strides, 16),
              &y = graph->tensor(3, dnn::kF16, sizes, strides, 16),
              &sums = graph->inner(dnn::kF32, sizes, strides);
  graph->product(a, b, sums);
  graph->pointwise(dnn::kGeluForward, sums, nullptr, y);
  return graph;
}

TEST(KeptAnswers, PlansAreTakenUpAgain) {
  std::string why;
  const std::shared_ptr<device::Device> device = open_for_test("cuda", why);
  if (!device) GTEST_SKIP() << why;
  const auto context = device::context_of(*device);
  const auto answers = std::make_shared<Answers>();
  const auto before = device::cuda::binary_cache();
  device::cuda::set_binary_cache(answers);
  dnn::PlanWish wish;
  wish.runtime_compiled = true;
  const auto memory = device->allocate(3 * kSize * kSize * 2);
  const auto stream = device->make_stream();
  const std::vector<uint16_t> ones(2 * kSize * kSize, 0x3c00);
  /// "" where the product is right: 64 in each place, as GELU leaves it.
  auto run = [&] {
    stream->upload(memory->data(), ones.data(), 2 * ones.size());
    const dnn::Found found = dnn::find_plans(context, wish, product_with_gelu);
    if (!found.plans) return found.refusal;
    auto* at = static_cast<uint16_t*>(memory->data());
    const auto workspace = device->allocate(static_cast<size_t>(found.plans->workspace_bytes() + 256));
    dnn::Plans::Addresses addresses;
    addresses.of = {{1, at}, {2, at + kSize * kSize}, {3, at + 2 * kSize * kSize}};
    addresses.workspace = workspace->data();
    addresses.workspace_bytes = found.plans->workspace_bytes();
    EXPECT_TRUE(found.plans->run(*stream, addresses));
    std::vector<uint16_t> y(kSize * kSize);
    stream->download(y.data(), at + 2 * kSize * kSize, 2 * y.size());
    stream->synchronize();
    for (uint16_t bits : y) EXPECT_EQ(bits, 0x5400);
    return found.plans->description();
  };
  EXPECT_EQ(run().find("measured before"), std::string::npos);
  ASSERT_EQ(answers->all.size(), 1U);
  EXPECT_NE(run().find("measured before"), std::string::npos);
  for (const char* damaged : {"", "plan", "plan 3", "plan 3 {", "plan x {\"a\": 1}", "another"}) {
    answers->all.begin()->second = damaged;
    EXPECT_EQ(run().find("measured before"), std::string::npos) << damaged;
    EXPECT_NE(answers->all.begin()->second, damaged) << "kept anew";
  }
  device::cuda::set_binary_cache(before);
}

} // namespace
} // namespace tbx::test
