// Kernels of ours that several threads call at a time, each with a stream and memory of its own. What is
// compiled for all of them is compiled once.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <thread>

#include "base/float_formats.h"
#include "extern_kernels/cuda/float_attention.h"
#include "extern_kernels/cuda/gelu_product.h"
#include "library_kernels_helper.h"
#include "plain_reference_helper.h"

namespace tbx::test {
namespace {

using namespace extern_kernels;

constexpr size_t kCallers = 4;

/// Calls `call(i)` on a thread for each i; all begin together.
void call_together(const std::function<void(size_t)>& call) {
  std::atomic<size_t> ready{0};
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < kCallers; ++i)
    threads.emplace_back([&, i] {
      for (++ready; ready < kCallers;) std::this_thread::yield();
      call(i);
    });
}

/// The emulator's way to load texts, counted.
class CountedLoad {
public:
  CountedLoad(device::Device& device, const char* function) : device_(device), function_(function) {}
  std::function<std::shared_ptr<device::Module>(const std::string&)> load() {
    return [this](const std::string& text) {
      ++loads_;
      return load_text(device_, text, {function_});
    };
  }
  int loads() const { return loads_; }

private:
  device::Device& device_;
  const char* function_;
  std::atomic<int> loads_{0};
};

TEST(ConcurrentKernels, GeluPass) {
  std::string why;
  const auto device = open_for_test("fake", why);
  CountedLoad counted(*device, "gelu_rows");
  const cuda::GeluPass pass(*device, counted.load());
  constexpr int64_t kRows = 9, kColumns = 40, kStep = 48;
  call_together([&](size_t i) {
    const DType t = i % 2 == 0 ? DType::f16 : DType::bf16;
    const Operand before = random_operand(t, {kRows + static_cast<int64_t>(i), kStep});
    const int64_t rows = before.sizes[0];
    const std::vector<double> x = values_of(before);
    const auto stream = device->make_stream();
    const auto memory = device->allocate(before.bytes.size());
    for (int turn = 0; turn < 5; ++turn) {
      Operand after = before;
      stream->upload(memory->data(), before.bytes.data(), before.bytes.size());
      pass.run(*stream, t, memory->data(), rows, kColumns, kStep);
      stream->download(after.bytes.data(), memory->data(), after.bytes.size());
      stream->synchronize();
      const std::vector<double> y = values_of(after);
      for (size_t k = 0; k < y.size(); ++k) {
        const double right =
            static_cast<int64_t>(k) % kStep < kColumns ? 0.5 * x[k] * (1 + std::erf(x[k] * M_SQRT1_2)) : x[k];
        ASSERT_NEAR(y[k], right, std::fabs(right) * (t == DType::f16 ? 0x1p-11 : 0x1p-8) + 2e-7)
            << "caller " << i << ", turn " << turn << " at " << k;
      }
    }
  });
  EXPECT_EQ(counted.loads(), 2) << "one for each type";
}

TEST(ConcurrentKernels, FloatAttention) {
  std::string why;
  const auto device = open_for_test("fake", why);
  CountedLoad counted(*device, "float_attention");
  AttentionProblem p;
  p.causal = true;
  struct Call {
    std::vector<Operand> in;
    Operand out;
    Reference right;
  };
  std::vector<Call> calls(kCallers);
  for (size_t i = 0; i < kCallers; ++i) {
    const auto n = static_cast<int64_t>(20 + 9 * i); // all in one tile: one text is for all
    Call& c = calls[i];
    c.in = {random_operand(DType::f32, {1, 2, n, 16}),
            random_operand(DType::f32, {1, 2, n, 16}),
            random_operand(DType::f32, {1, 2, n, 16}),
            {},
            {},
            {}};
    c.out = random_operand(DType::f32, {1, 2, n, 16});
    c.right = reference_of(Problem(p), c.in, c.out);
  }
  const auto kernel = make_float_attention(*device, p, infos_of(calls[0].in), counted.load());
  call_together([&](size_t i) {
    const Call& c = calls[i];
    const auto stream = device->make_stream();
    std::vector<std::unique_ptr<device::Memory>> blocks;
    auto place = [&](const Operand& t) {
      if (!t.present()) return TensorRef{};
      blocks.push_back(device->allocate(t.bytes.size()));
      stream->upload(blocks.back()->data(), t.bytes.data(), t.bytes.size());
      return ref_of(t, blocks.back()->data());
    };
    std::vector<TensorRef> in;
    for (const Operand& t : c.in) in.push_back(place(t));
    const std::vector<TensorRef> out{place(c.out)};
    for (int turn = 0; turn < 3; ++turn) {
      kernel->run({in, out, nullptr, nullptr, stream.get()});
      Operand after = c.out;
      stream->download(after.bytes.data(), out[0].data, after.bytes.size());
      stream->synchronize();
      const std::vector<double> y = values_of(after);
      for (size_t k = 0; k < y.size(); ++k)
        ASSERT_NEAR(y[k], c.right.values[k], 2e-5 * c.right.size)
            << "caller " << i << ", turn " << turn << " at " << k;
    }
  });
  EXPECT_EQ(counted.loads(), 1);
}

} // namespace
} // namespace tbx::test
