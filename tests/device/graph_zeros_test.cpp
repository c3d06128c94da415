// Memory that a graph clears ahead of its work, on a GPU where there is one.
#include <gtest/gtest.h>

#include "base/error.h"
#include "codegen/build_module.h"
#include "codegen/device_binary.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/graph_zeros.h"

namespace tbx::test {
namespace {

using device::cuda::zeros_of_graph;

/// sums[i] += what `count` held; count is one more then.
constexpr const char* kCount =
    "namespace tbx {\nextern \"C\" __global__ void count(int* count, int* sums, i64 i) {"
    " sums[i] += atomicAdd(count, 1); }\n}\n";

class GraphZeros : public testing::Test {
protected:
  void SetUp() override {
    try {
      device_ = device::make_cuda_device(0);
    } catch (const Error& e) {
      GTEST_SKIP() << e.what();
    }
    codegen::EmittedKernel k;
    k.function = "count", k.text = kCount;
    module_ = device_->load(codegen::device_binary({k}, device_->properties()));
    stream_ = device_->make_stream();
    sums_ = device_->allocate(kSteps * 4), spare_ = device_->allocate(256);
    stream_->fill(sums_->data(), 0, sums_->bytes());
  }
  /// A library that clears what it counts in, as step `i` of the graph.
  void count(int64_t i, void* counter) {
    void* sums = sums_->data();
    void* arguments[] = {&counter, &sums, &i};
    stream_->fill(counter, 0, 4);
    stream_->launch(module_->kernel("count"), {1, 1, 0, true}, arguments);
  }
  std::vector<int> sums() {
    std::vector<int> all(kSteps, -1);
    stream_->download(all.data(), sums_->data(), kSteps * 4);
    stream_->synchronize();
    return all;
  }

  static constexpr size_t kSteps = 5;
  std::shared_ptr<device::Device> device_;
  std::shared_ptr<device::Module> module_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<device::Memory> sums_, spare_;
};

TEST_F(GraphZeros, FillsBecomeOneThatComesFirst) {
  for (bool pieces : {false, true}) {
    stream_->begin_capture();
    for (size_t i = 0; i < kSteps; ++i) {
      if (pieces) stream_->begin_piece({});
      void* counter = zeros_of_graph(*stream_, 16);
      ASSERT_TRUE(counter);
      count(static_cast<int64_t>(i), counter);
    }
    stream_->join_pieces();
    const std::unique_ptr<device::Graph> graph = stream_->end_capture();
    EXPECT_EQ(graph->nodes(), kSteps + 1);
    for (int run = 0; run < 3; ++run) stream_->launch(*graph);
    EXPECT_EQ(sums(), std::vector<int>(kSteps, 0)) << "a count that was not cleared";
  }
}

TEST_F(GraphZeros, OtherFillsStayWhereTheyAre) {
  stream_->begin_capture();
  count(0, zeros_of_graph(*stream_, 4));
  for (size_t i = 1; i < kSteps; ++i) count(static_cast<int64_t>(i), spare_->data());
  const std::unique_ptr<device::Graph> graph = stream_->end_capture();
  EXPECT_EQ(graph->nodes(), 2 * kSteps);
  for (int run = 0; run < 3; ++run) stream_->launch(*graph);
  EXPECT_EQ(sums(), std::vector<int>(kSteps, 0));
}

TEST_F(GraphZeros, FillsBehindWorkOfTheirCallStayWhereTheyAre) {
  stream_->begin_capture();
  void* counter = zeros_of_graph(*stream_, 4);
  count(0, counter);
  count(1, counter); // of the same call: it finds what the first has left
  const std::unique_ptr<device::Graph> graph = stream_->end_capture();
  EXPECT_EQ(graph->nodes(), 4U);
  for (int run = 0; run < 3; ++run) stream_->launch(*graph);
  EXPECT_EQ(sums(), std::vector<int>(kSteps, 0));
}

TEST_F(GraphZeros, IsThereForGraphsAloneAndEnds) {
  EXPECT_EQ(zeros_of_graph(*stream_, 16), nullptr);
  stream_->begin_capture();
  EXPECT_EQ(zeros_of_graph(*stream_, device::cuda::kMostZeros + 1), nullptr);
  size_t pieces = 0;
  while (pieces < 10'000 && zeros_of_graph(*stream_, 1)) ++pieces;
  EXPECT_EQ(pieces, 1024U);
  count(0, spare_->data());
  const std::unique_ptr<device::Graph> graph = stream_->end_capture();
  stream_->launch(*graph);
  EXPECT_EQ(sums()[0], 0);
}

} // namespace
} // namespace tbx::test
