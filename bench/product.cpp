// Products with constant matrices in shapes of networks, by the library and by tiles of our own: operations
// per second of each. Matrices are many, so that they come from memory as those of a network do. usage:
// tbx_bench_product [threads [name]]
#include <fmt/format.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <string_view>

#include "extern_kernels/kernel.h"

namespace {

using namespace tbx;
using namespace tbx::extern_kernels;

struct Shape {
  const char* name;
  int64_t rows, depth, columns;
  bool gelu = false;
};

constexpr Shape kShapes[] = {
    {"prefill", 64, 768, 2304},   {"prefill", 64, 768, 3072, true}, {"prefill", 64, 3072, 768},
    {"bert", 128, 768, 768},      {"bert", 128, 768, 3072, true},   {"bert", 128, 3072, 768},
    {"vit", 197, 768, 2304},      {"vit", 197, 768, 768},           {"vit", 197, 768, 3072, true},
    {"vit", 197, 3072, 768},      {"unet", 1024, 128, 128},         {"unet", 256, 256, 256},
    {"unet", 1024, 128, 1024},    {"unet", 256, 1024, 256},         {"bert 512", 512, 768, 768},
    {"bert 512", 512, 768, 3072}, {"whisper", 1500, 384, 384},      {"whisper", 1500, 384, 1536, true},
    {"whisper", 1500, 1536, 384},
};

Tensor numbers(std::vector<int64_t> sizes, std::mt19937& random) {
  Tensor t = Tensor::make(DType::f32, std::move(sizes));
  std::normal_distribution<float> normal;
  for (float& x : t.as_mutable<float>()) x = normal(random);
  return t;
}

class Products {
public:
  Products(const Shape& s, const Candidate& by)
      : x_(numbers({s.rows, s.depth}, random_)), bias_(numbers({1, s.columns}, random_)),
        y_(Tensor::make(DType::f32, {s.rows, s.columns})), b_sizes_{s.depth, s.columns}, b_strides_{s.columns,
                                                                                                    1} {
    MatMulProblem p;
    p.has_bias = true;
    if (s.gelu) p.post_ops.push_back({PostOp::gelu_erf});
    auto w = std::make_shared<Tensor>(numbers(b_sizes_, random_));
    const std::vector<OperandInfo> inputs{{DType::f32, x_.dims, strides_of(x_), nullptr},
                                          {DType::f32, b_sizes_, b_strides_, w},
                                          {DType::f32, bias_.dims, strides_of(bias_), nullptr}};
    const std::vector<OperandInfo> outputs{{DType::f32, y_.dims, strides_of(y_), nullptr}};
    constexpr int64_t kBytes = 96 << 20; // no cache holds them
    const int64_t copies = kBytes / (s.depth * s.columns * 4) + 1;
    for (int64_t i = 0; i < copies; ++i) kernels_.push_back(by.make(p, inputs, outputs));
  }

  /// Of one call: the least of the means over all matrices.
  double seconds() const {
    double least = 1e30, all = 0;
    for (int i = 0; i < 3 || all < 0.4; ++i) {
      const auto start = std::chrono::steady_clock::now();
      for (const auto& kernel : kernels_) run(*kernel);
      const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      least = std::min(least, took / static_cast<double>(kernels_.size()));
      all += took;
    }
    return least;
  }

private:
  static std::vector<int64_t> strides_of(const Tensor& t) { return {t.dims[1], 1}; }
  static TensorRef ref(const Tensor& t, std::span<const int64_t> strides) {
    return {const_cast<std::byte*>(t.data), t.dtype, t.dims, strides};
  }
  void run(const ExternKernel& kernel) const {
    const std::vector<int64_t> x = strides_of(x_), bias = strides_of(bias_), y = strides_of(y_);
    const std::vector<TensorRef> in{
        ref(x_, x), {nullptr, DType::f32, b_sizes_, b_strides_}, ref(bias_, bias)},
        out{ref(y_, y)};
    kernel.workspace_bytes(in, out);
    kernel.run({in, out});
  }

  std::mt19937 random_{1};
  Tensor x_, bias_, y_;
  std::vector<int64_t> b_sizes_, b_strides_;
  std::vector<std::unique_ptr<ExternKernel>> kernels_;
};

} // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::stoi(argv[1]) : 1;
  tbb::task_arena(threads).execute([&] {
    for (const Shape& s : kShapes) {
      if (argc > 2 && s.name != std::string_view(argv[2])) continue;
      fmt::print("{:10} {:4} x {:4} x {:4}{}", s.name, s.rows, s.depth, s.columns,
                 s.gelu ? " gelu" : "     ");
      for (const Candidate& by : candidates(Problem(MatMulProblem())))
        if (std::string_view name = by.name; name == "blocked_matmul" || name == "onednn_matmul")
          fmt::print("  {} {:6.1f}", name,
                     2e-9 * static_cast<double>(s.rows * s.depth * s.columns) / Products(s, by).seconds());
      fmt::print("\n");
    }
  });
}
