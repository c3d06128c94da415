// DFT by its definition: a sum over the signal per frequency, in double. Operands as in host/dft.cpp.
#include <cmath>
#include <complex>

#include "extern_kernels/host/tasks.h"
#include "extern_kernels/reference/dense.h"
#include "extern_kernels/reference/host.h"

namespace tbx::extern_kernels {
namespace {

using Complex = std::complex<double>;

void dft(const HostProblem& p, const RunArgs& args) {
  const TensorRef &x = args.inputs[0], &y = args.outputs[0];
  const bool inverse = integer(p, "inverse") != 0, hermitian = inverse && integer(p, "onesided") != 0;
  const auto n = static_cast<int64_t>(to_dense<double>(args.inputs[1])[0]);
  const int64_t given = x.sizes.end()[-2], parts = x.sizes.back(), made = y.sizes.end()[-2],
                out_parts = y.sizes.back();
  TBX_MODEL(parts == 1 || parts == 2, "DFT: the last dimension of the input is {}, expected 1 or 2", parts);
  if (y.numel() == 0) return;
  const std::vector<double> in = to_dense<double>(x);
  std::vector<double> out(static_cast<size_t>(y.numel()));
  std::vector<Complex> turn(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    turn[i] = std::polar(1.0, (inverse ? 2 : -2) * M_PI * static_cast<double>(i) / static_cast<double>(n));
  for_each_task(y.numel() / (made * out_parts), [&](int64_t line) {
    // Longer signals are cut, shorter ones end in zeros; half of a spectrum has the other half's conjugate.
    std::vector<Complex> signal(static_cast<size_t>(n));
    const int64_t taken = std::min(given, hermitian ? n / 2 + 1 : n);
    for (int64_t i = 0; i < taken; ++i) {
      const double* at = in.data() + (line * given + i) * parts;
      signal[i] = {at[0], parts == 2 ? at[1] : 0};
    }
    if (hermitian)
      for (int64_t i = 0; 2 * i <= n; ++i) {
        if (i == 0 || 2 * i == n) signal[i] = signal[i].real();
        if (i > 0) signal[n - i] = std::conj(signal[i]);
      }
    for (int64_t k = 0; k < made; ++k) {
      check_stop();
      Complex sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += signal[i] * turn[i * k % n];
      if (inverse) sum /= static_cast<double>(n);
      double* to = out.data() + (line * made + k) * out_parts;
      to[0] = sum.real();
      if (out_parts == 2) to[1] = sum.imag();
    }
  });
  from_dense(out, y);
}

} // namespace

std::string supports_reference_dft(const Problem& p, std::span<const OperandInfo>,
                                   std::span<const OperandInfo>, const Target&) {
  return is_host(p, "", "DFT") || is_host(p, "", "STFT") ? "" : "no transform";
}

std::unique_ptr<ExternKernel> make_reference_dft(const Problem& p, std::span<const OperandInfo>,
                                                 std::span<const OperandInfo>) {
  return std::make_unique<PlainHost>(p, dft);
}

} // namespace tbx::extern_kernels
