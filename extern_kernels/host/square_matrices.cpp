// Det and Inverse of [..., n, n] by elimination with partial pivoting, in double precision.
#include <cmath>

#include "base/stop.h"
#include "extern_kernels/host/host_kernel.h"
#include "extern_kernels/host/tasks.h"
#include "extern_kernels/reference/dense.h"

namespace tbx::extern_kernels {
namespace {

/// The row from `k` on with the largest element in column `k`.
int64_t pivot_row(const double* a, int64_t n, int64_t k) {
  int64_t pivot = k;
  for (int64_t i = k + 1; i < n; ++i)
    if (std::abs(a[i * n + k]) > std::abs(a[pivot * n + k])) pivot = i;
  return pivot;
}

/// Overwrites the matrix.
double determinant(double* a, int64_t n) {
  double result = 1;
  for (int64_t k = 0; k < n; ++k) {
    check_stop();
    const int64_t pivot = pivot_row(a, n, k);
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

/// Overwrites `a`; `y` comes in as anything. A singular matrix gives infinities and NaN, as the division
/// does.
void invert(double* a, double* y, int64_t n) {
  std::fill(y, y + n * n, 0.0);
  for (int64_t i = 0; i < n; ++i) y[i * n + i] = 1;
  for (int64_t k = 0; k < n; ++k) {
    check_stop();
    const int64_t pivot = pivot_row(a, n, k);
    if (pivot != k) {
      std::swap_ranges(a + k * n, a + (k + 1) * n, a + pivot * n);
      std::swap_ranges(y + k * n, y + (k + 1) * n, y + pivot * n);
    }
    const double top = a[k * n + k];
    for (int64_t j = 0; j < n; ++j) {
      a[k * n + j] /= top;
      y[k * n + j] /= top;
    }
    for (int64_t i = 0; i < n; ++i) {
      const double factor = a[i * n + k];
      if (i == k || factor == 0) continue;
      for (int64_t j = k; j < n; ++j) a[i * n + j] -= factor * a[k * n + j];
      for (int64_t j = 0; j < n; ++j) y[i * n + j] -= factor * y[k * n + j];
    }
  }
}

/// The number of rows of the matrices.
int64_t order_of(const TensorRef& x, const char* op) {
  const int64_t rows = x.sizes[x.sizes.size() - 2], n = x.sizes.back();
  TBX_MODEL(rows == n, "{}: a matrix is {} by {}", op, rows, n);
  return n;
}

} // namespace

void run_det(const HostCall& call) {
  const TensorRef& x = call.in(0);
  const int64_t n = order_of(x, "Det");
  std::vector<double> values = to_dense<double>(x), results(static_cast<size_t>(call.out(0).numel()));
  for_each_task(static_cast<int64_t>(results.size()),
                [&](int64_t i) { results[i] = determinant(values.data() + i * n * n, n); });
  from_dense(results, call.out(0));
}

void run_inverse(const HostCall& call) {
  const TensorRef& x = call.in(0);
  const int64_t n = order_of(x, "Inverse");
  std::vector<double> values = to_dense<double>(x), results(values.size());
  if (values.empty()) return;
  for_each_task(static_cast<int64_t>(values.size()) / (n * n),
                [&](int64_t i) { invert(values.data() + i * n * n, results.data() + i * n * n, n); });
  from_dense(results, call.out(0));
}

} // namespace tbx::extern_kernels
