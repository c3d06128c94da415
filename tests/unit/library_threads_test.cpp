// The library has other implementations for one thread than for two, plain loops among them. It is asked for
// the threads that will run, and where a run has others, our own kernel takes the place of a plain loop.
#include <gtest/gtest.h>
#include <tbb/task_arena.h>

#include <cmath>
#include <random>

#include "extern_kernels/library_kernel.h"
#include "extern_kernels_helper.h"

namespace tbx::extern_kernels {
namespace {

struct Image {
  Dims sizes;
  Dims strides = dense_strides(sizes, channels_last(sizes.size()));
  std::vector<float> data = std::vector<float>(static_cast<size_t>(checked_numel(sizes)));
  TensorRef ref() { return {data.data(), DType::f32, sizes, strides}; }
  OperandInfo info() const { return {DType::f32, sizes, strides, nullptr}; }
};

/// One channel to many, with what comes after it: for these the library has products with two threads.
struct Case {
  bool has_bias;
  std::vector<PostOp> post_ops;
  std::string name;
};

/// The convolution of a kernel chosen for `asked` threads and run by `working`; `chosen` says by what.
Image run_case(const Case& c, int asked, int working, bool is_known, std::string& chosen) {
  std::mt19937 rng(7);
  std::normal_distribution<float> normal;
  auto random = [&](Image image) {
    for (float& v : image.data) v = normal(rng);
    return image;
  };
  ConvProblem p;
  p.spatial_rank = 2;
  p.transposed = true;
  p.has_bias = c.has_bias;
  p.strides = {1, 2};
  p.dilations = p.pads_begin = p.pads_end = {1, 1};
  p.post_ops = c.post_ops;
  Image x = random({{1, 1, 31, 19}}), y{{1, 24, 39, 39}}, added = random({{1, 24, 39, 39}});
  auto weights = std::make_shared<Tensor>(Tensor::make(DType::f32, {1, 24, 11, 5}));
  auto bias = std::make_shared<Tensor>(Tensor::make(DType::f32, {24}));
  for (float& v : weights->as_mutable<float>()) v = normal(rng);
  for (float& v : bias->as_mutable<float>()) v = normal(rng);
  const Dims of_weights = dense_strides(weights->dims, {}), one{1};
  auto constant = [](const std::shared_ptr<Tensor>& t, const Dims& strides) {
    return TensorRef{t->mutable_data(), DType::f32, t->dims, strides};
  };
  std::vector<OperandInfo> in{x.info(), {DType::f32, weights->dims, of_weights, weights}, {}};
  std::vector<TensorRef> refs{x.ref(), constant(weights, of_weights), {}};
  if (c.has_bias) {
    in[2] = {DType::f32, bias->dims, one, bias};
    refs[2] = constant(bias, one);
  }
  if (!c.post_ops.empty()) {
    in.push_back(added.info());
    refs.push_back(added.ref());
  }
  std::vector<OperandInfo> out{y.info()};
  const std::vector<TensorRef> to{y.ref()};
  if (!is_known)
    for (OperandInfo* info : {in.data(), out.data()}) {
      info->sizes[2] = info->sizes[3] = -1;
      info->strides.clear();
    }
  if (asked == 0) {
    run(*select(p, in, out, Kernels::plain).kernel, refs, to);
    return y;
  }
  Selection s;
  tbb::task_arena(asked).execute([&] { s = select(p, in, out); });
  tbb::task_arena(working).execute([&] { run(*s.kernel, refs, to); });
  chosen = s.chosen;
  if (const auto* library = dynamic_cast<const LibraryKernel*>(s.kernel.get()))
    for (const std::string& text : library->implementations()) chosen += " " + text;
  return y;
}

TEST(LibraryThreads, NoPlainLoopRunsWithAnyNumberOfThreads) {
  const std::vector<Case> cases{{false, {}, "alone"},
                                {true, {}, "with a bias"},
                                {true, {{PostOp::add, 0, 0, 3}, {PostOp::relu}}, "with work after it"}};
  for (const Case& c : cases)
    for (const bool is_known : {true, false}) {
      std::string chosen;
      const Image want = run_case(c, 0, 0, is_known, chosen);
      for (int asked : {1, 2, 4})
        for (int working : {1, 2, 4}) {
          const Image got = run_case(c, asked, working, is_known, chosen);
          const std::string what = c.name + ", asked for " + std::to_string(asked) + " threads, run by " +
                                   std::to_string(working) + ": " + chosen;
          EXPECT_EQ(chosen.substr(0, chosen.find("; in one call")).find("plain loop"), std::string::npos)
              << what;
          for (size_t i = 0; i < want.data.size(); ++i)
            ASSERT_NEAR(got.data[i], want.data[i], 1e-4) << what << ", element " << i;
        }
    }
}

} // namespace
} // namespace tbx::extern_kernels
