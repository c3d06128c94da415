#include "extern_kernels/cuda/gelu_product.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "device/cuda/cuda_device.h"
#include "extern_kernels/cuda/notes.h"

namespace tbx::extern_kernels::cuda {

namespace {

const char* const kText =
#include "extern_kernels/cuda/gelu_product.inc"
    ;

enum Id : int64_t { kA = 1, kB, kBias, kC };
constexpr int64_t kMostRows = 512; ///< from which on two kernels are as fast
constexpr size_t kPlans = 2; ///< each is compiled, which takes up to a second; a third was never the fastest

/// All that a plan depends on.
struct Key {
  Gemm gemm;
  int bias_align = 16;
  auto operator<=>(const Key&) const = default; // NOLINT(modernize-use-nullptr): clang-tidy 14 sees a 0 here
};

std::shared_ptr<dnn::Graph> gelu_graph(const Key& key) {
  const Gemm& g = key.gemm;
  const int half = g.type == lt::kF16 ? dnn::kF16 : dnn::kBf16;
  auto graph = std::make_shared<dnn::Graph>();
  auto matrix = [&](int64_t id, int64_t rows, int64_t columns, int64_t step, bool dense_columns,
                    int align) -> auto& {
    const int64_t all = step * (dense_columns ? columns : rows);
    return graph->tensor(id, half, {1, rows, columns},
                         {all, dense_columns ? 1 : step, dense_columns ? step : 1}, align);
  };
  dnn::Object &a = matrix(kA, g.m, g.k, g.a_step, g.a_columns, g.align_a),
              &b = matrix(kB, g.k, g.n, g.b_step, g.b_columns, g.align_b),
              &c = matrix(kC, g.m, g.n, g.c_step, false, g.align_c);
  auto inner = [&]() -> dnn::Object& { return graph->inner(dnn::kF32, {1, g.m, g.n}, {g.m * g.n, g.n, 1}); };
  dnn::Object* sums = &inner();
  graph->product(a, b, *sums);
  if (g.bias) {
    dnn::Object& biased = inner();
    graph->pointwise(dnn::kAdd, *sums,
                     &graph->tensor(kBias, half, {1, 1, g.n}, {g.n, g.n, 1}, key.bias_align), biased);
    sums = &biased;
  }
  graph->pointwise(dnn::kGeluForward, *sums, nullptr, c);
  return graph;
}

Gemm without_gelu(Gemm g) {
  g.activation = Activation::none;
  return g;
}

} // namespace

GeluPass::GeluPass(device::Device& device, Load load) : device_(device), load_(std::move(load)) {
  if (!load_) load_ = [&device](const std::string& text) { return loaded(device, text); };
}

constexpr int64_t kEach = 8; ///< halves of a vector

device::Kernel GeluPass::kernel_for(DType half, bool vectors) const {
  std::scoped_lock lock(mutex_);
  std::shared_ptr<device::Module>& module = modules_[{half, vectors}];
  if (!module)
    module = load_(fmt::format("#define HALF {}\n#define EACH {}\n{}", static_cast<int>(half),
                               vectors ? kEach : 1, kText));
  return module->kernel("gelu_rows");
}

void GeluPass::run(device::Stream& stream, DType half, void* c, int64_t rows, int64_t columns,
                   int64_t c_step) const {
  const bool vectors = columns % kEach == 0 && c_step % kEach == 0 && alignment_of(c) == 16;
  const int64_t each = vectors ? kEach : 1;
  const device::Kernel kernel = kernel_for(half, vectors);
  int64_t count = rows * columns / each, of_row = columns / each, step = c_step;
  void* pointers[] = {&c, &count, &of_row, &step};
  stream.launch(kernel, shape_of_elements(count, device_.properties()), pointers);
}

GeluProduct::GeluProduct(device::Device& device) : context_(device::context_of(device)), pass_(device) {}

dnn::Found GeluProduct::plans_of(const Gemm& gemm, int bias_align) const {
  static auto* cache = new dnn::PlanCache<Key>;
  if (!measuring()) return {nullptr, "nothing is measured"};
  if (gemm.batch != 1) return {nullptr, "a batch of products"};
  const Key key{gemm, bias_align};
  dnn::PlanWish wish;
  wish.runtime_compiled = true; // there are no others
  wish.most = kPlans;
  return cache->get(context_, key, wish, [&] { return gelu_graph(key); });
}

int64_t GeluProduct::workspace_bytes(const Gemm& gemm) const {
  const dnn::Found found = plans_of(gemm, 16);
  if (found.plans) pass_.prepare(half_type(gemm)); // it is measured
  return std::max(found.plans ? found.plans->workspace_bytes() : 0,
                  static_cast<int64_t>(plan_of(context_, without_gelu(gemm))->workspace_bytes()));
}

std::string GeluProduct::run(device::Stream& stream, const Gemm& gemm, const GemmAddresses& at, float alpha,
                             void* workspace, size_t workspace_bytes) const {
  const std::shared_ptr<GemmPlan> plain = plan_of(context_, without_gelu(gemm));
  if (plain->empty()) return "the library has no algorithm";
  auto two_kernels = [&] {
    if (!plain->run(stream, at, alpha, workspace, workspace_bytes)) return false;
    const DType half = half_type(gemm);
    for (int64_t i = 0; i < gemm.batch; ++i)
      pass_.run(stream, half, static_cast<char*>(at.c) + i * gemm.c_batch * size_of(half), gemm.m, gemm.n,
                gemm.c_step);
    return true;
  };
  const dnn::Found found = alpha == 1 ? plans_of(gemm, alignment_of(at.bias)) : dnn::Found{};
  if (!found.plans) return two_kernels() ? "" : kLargerWorkspace;
  dnn::Plans::Addresses there;
  there.of = {{kA, at.a}, {kB, at.b}, {kC, at.c}};
  if (gemm.bias) there.of.emplace_back(kBias, at.bias);
  there.workspace = workspace;
  there.workspace_bytes = static_cast<int64_t>(workspace_bytes);
  there.hot = {left_of(gemm, at)}; // weights are not
  there.other = [&](const dnn::Plans::Addresses&) {
    if (!two_kernels()) throw_backend_error("{}", kLargerWorkspace);
  };
  there.other_name = "cuBLASLt and a pass of our own";
  return found.plans->run(stream, there) ? "" : kLargerWorkspace;
}

std::string GeluProduct::description(const Gemm& gemm, const GemmAddresses& at) const {
  const dnn::Found found = plans_of(gemm, alignment_of(at.bias));
  if (found.plans) return found.plans->description();
  return fmt::format("{} and a pass of our own: {}", plan_of(context_, without_gelu(gemm))->description(),
                     found.refusal);
}

std::string refuse_gelu(std::span<const OperandInfo> inputs, const OperandInfo& result, const Epilogue& e) {
  if (!is_half(result.dtype) || result.dtype != inputs[0].dtype)
    return "the exact GELU of a product that is not in half types";
  if (e.residual >= 0) return "the exact GELU of a product with an addition";
  const std::vector<int64_t>& b = inputs[1].sizes;
  if (std::any_of(b.begin(), b.end() - 2, [](int64_t size) { return size != 1; }))
    return "the exact GELU of many products";
  int64_t rows = 1;
  int batches = 0; // strides of one batch always suit the library
  for (size_t d = 0; d + 1 < result.sizes.size(); ++d) {
    const int64_t size = result.sizes[d] < 0 ? kMostRows + 1 : std::min(result.sizes[d], kMostRows + 1);
    rows = std::min(rows * size, kMostRows + 1);
    batches += d + 2 < result.sizes.size() && size != 1;
  }
  if (rows < 2 || rows > kMostRows)
    return "the exact GELU of one row, of many, or of a number that is not known";
  if (batches > 1) return "the exact GELU of batches in several dimensions";
  return {};
}

} // namespace tbx::extern_kernels::cuda
