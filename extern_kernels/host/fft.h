// Discrete Fourier transforms of one length, in double precision.
#pragma once

#include <complex>
#include <cstdint>
#include <memory>
#include <vector>

namespace tbx::extern_kernels {

/// out[k] = sum over j of in[j] * e^(-2 pi i j k / n). O(n log n) for every n: mixed radices, and by a
/// convolution (Bluestein) where n has a large prime factor. Immutable: one plan serves many threads.
class Fft {
public:
  using Complex = std::complex<double>;
  explicit Fft(int64_t n);

  int64_t size() const { return n_; }
  /// Both of n elements, not overlapping. `scratch` grows as needed and may be used again.
  void run(const Complex* in, Complex* out, std::vector<Complex>& scratch) const;

private:
  void mixed_radix(const Complex* in, int64_t stride, Complex* out, int64_t n, size_t level) const;
  void bluestein(const Complex* in, Complex* out, std::vector<Complex>& scratch) const;

  int64_t n_;
  std::vector<int64_t> factors_; ///< of n, empty when it goes by Bluestein
  std::vector<Complex> roots_;   ///< e^(-2 pi i k / n)
  std::unique_ptr<Fft> convolution_;
  std::vector<Complex> chirp_, kernel_; ///< Bluestein: e^(-pi i k^2 / n), transform of its conjugate
};

} // namespace tbx::extern_kernels
