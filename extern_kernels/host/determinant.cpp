// Det: determinants of [..., n, n] by elimination with partial pivoting, in double precision.
#include <tbb/parallel_for.h>

#include <cmath>

#include "extern_kernels/host/host_kernel.h"
#include "extern_kernels/reference/dense.h"

namespace tbx::extern_kernels {
namespace {

/// Overwrites the matrix.
double determinant(double* a, int64_t n) {
  double result = 1;
  for (int64_t k = 0; k < n; ++k) {
    int64_t pivot = k;
    for (int64_t i = k + 1; i < n; ++i)
      if (std::abs(a[i * n + k]) > std::abs(a[pivot * n + k])) pivot = i;
    if (pivot != k) {
      std::swap_ranges(a + k * n, a + (k + 1) * n, a + pivot * n);
      result = -result;
    }
    const double top = a[k * n + k];
    result *= top;
    if (top == 0) return result;
    for (int64_t i = k + 1; i < n; ++i) {
      const double factor = a[i * n + k] / top;
      for (int64_t j = k + 1; j < n; ++j) a[i * n + j] -= factor * a[k * n + j];
    }
  }
  return result;
}

} // namespace

void run_det(const HostCall& call) {
  const TensorRef& x = call.in(0);
  const int64_t n = x.sizes.back();
  TBX_MODEL(x.sizes[x.sizes.size() - 2] == n, "Det: a matrix is {} by {}", x.sizes[x.sizes.size() - 2], n);
  std::vector<double> values = to_dense<double>(x), results(static_cast<size_t>(call.out(0).numel()));
  tbb::parallel_for(size_t{0}, results.size(), [&](size_t i) {
    results[i] = determinant(values.data() + static_cast<int64_t>(i) * n * n, n);
  });
  from_dense(results, call.out(0));
}

} // namespace tbx::extern_kernels
