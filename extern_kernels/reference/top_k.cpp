// TopK by sorting each line whole. Ties go to the lower index; NaN counts as the largest value.
#include <tbb/parallel_for.h>

#include <algorithm>
#include <numeric>

#include "extern_kernels/host/host_kernel.h"
#include "extern_kernels/reference/dense.h"
#include "extern_kernels/reference/host.h"

namespace tbx::extern_kernels {
namespace {

template <class T> void sort_lines(const HostProblem& p, const RunArgs& args) {
  const TensorRef& x = args.inputs[0];
  const int64_t axis = integer(p, "axis"), k = args.outputs[0].sizes[axis];
  const bool largest = integer(p, "largest") != 0;
  const AxisView view(x.sizes, axis);
  TBX_MODEL(k <= view.length, "TopK: k is {}, the axis has size {}", k, view.length);
  if (args.outputs[0].numel() == 0) return;
  const std::vector<T> in = to_dense<T>(x);
  std::vector<T> values(static_cast<size_t>(view.outer * k * view.inner));
  std::vector<int64_t> positions(values.size());
  auto below = [](T a, T b) { return a < b || (b != b && a == a); };
  tbb::parallel_for(int64_t{0}, view.outer * view.inner, [&](int64_t line) {
    const int64_t o = line / view.inner, i = line % view.inner;
    auto at = [&](int64_t j) { return in[(o * view.length + j) * view.inner + i]; };
    std::vector<int64_t> order(static_cast<size_t>(view.length));
    std::iota(order.begin(), order.end(), int64_t{0});
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return largest ? below(at(b), at(a)) : below(at(a), at(b));
    });
    for (int64_t j = 0; j < k; ++j) {
      values[(o * k + j) * view.inner + i] = at(order[j]);
      positions[(o * k + j) * view.inner + i] = order[j];
    }
  });
  from_dense(values, args.outputs[0]);
  from_dense(positions, args.outputs[1]);
}

void top_k(const HostProblem& p, const RunArgs& args) {
  const DType type = args.inputs[0].dtype;
  if (is_float(type))
    sort_lines<double>(p, args);
  else if (type == DType::u64)
    sort_lines<uint64_t>(p, args);
  else
    sort_lines<int64_t>(p, args);
}

} // namespace

std::string supports_reference_top_k(const Problem& p, std::span<const OperandInfo>,
                                     std::span<const OperandInfo>, const Target&) {
  return is_host(p, "", "TopK") ? "" : "no TopK";
}

std::unique_ptr<ExternKernel> make_reference_top_k(const Problem& p, std::span<const OperandInfo>,
                                                   std::span<const OperandInfo>) {
  return std::make_unique<PlainHost>(p, top_k);
}

} // namespace tbx::extern_kernels
