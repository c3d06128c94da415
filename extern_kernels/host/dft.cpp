// DFT along the last but one dimension of [..., n, 1 or 2]: forward, inverse, one-sided and real.
#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>

#include "extern_kernels/host/fft.h"
#include "extern_kernels/host/host_kernel.h"
#include "extern_kernels/reference/dense.h"

namespace tbx::extern_kernels {

/// Inputs: 0 = signals [..., n, 1 or 2], 1 = the transform's length [1]. Output: [..., m, 1 or 2], where m is
/// the length, or half of it plus 1 (forward, one-sided). Longer signals are cut, shorter ones end in zeros.
void run_dft(const HostCall& call) {
  using Complex = Fft::Complex;
  const TensorRef &x = call.in(0), &y = call.out(0);
  const bool inverse = call.integer("inverse") != 0, onesided = call.integer("onesided") != 0;
  const int64_t length = *static_cast<const int64_t*>(call.in(1).data);
  const int64_t given = x.sizes.end()[-2], parts = x.sizes.back(), made = y.sizes.end()[-2],
                out_parts = y.sizes.back();
  TBX_MODEL(parts == 1 || parts == 2, "DFT: the last dimension of the input is {}, expected 1 or 2", parts);
  if (y.numel() == 0) return;
  const bool hermitian = inverse && onesided;
  const int64_t taken = std::min(given, hermitian ? length / 2 + 1 : length);
  const Fft fft(length);
  const std::vector<double> in = to_dense<double>(x);
  std::vector<double> out(static_cast<size_t>(y.numel()));
  const int64_t lines = y.numel() / (made * out_parts);
  const double scale = inverse ? 1 / static_cast<double>(length) : 1;
  tbb::parallel_for(tbb::blocked_range<int64_t>(0, lines), [&](const tbb::blocked_range<int64_t>& range) {
    std::vector<Complex> signal(static_cast<size_t>(length)), result(signal), scratch;
    for (int64_t line = range.begin(); line < range.end(); ++line) {
      const double* from = in.data() + line * given * parts;
      std::fill(signal.begin(), signal.end(), Complex());
      // An inverse transform is the conjugate of the transform of the conjugate.
      for (int64_t i = 0; i < taken; ++i) {
        double imaginary = parts == 2 ? from[i * parts + 1] : 0;
        signal[i] = {from[i * parts], inverse ? -imaginary : imaginary};
      }
      if (hermitian) {
        signal[0] = signal[0].real();
        if (length % 2 == 0) signal[length / 2] = signal[length / 2].real();
        for (int64_t i = 1; i < (length + 1) / 2; ++i) signal[length - i] = std::conj(signal[i]);
      }
      fft.run(signal.data(), result.data(), scratch);
      double* to = out.data() + line * made * out_parts;
      for (int64_t k = 0; k < made; ++k) {
        to[k * out_parts] = result[k].real() * scale;
        if (out_parts == 2) to[k * 2 + 1] = (inverse ? -result[k].imag() : result[k].imag()) * scale;
      }
    }
  });
  from_dense(out, y);
}

} // namespace tbx::extern_kernels
