#include "extern_kernels/host/fft.h"

#include <array>
#include <bit>
#include <numbers>

namespace tbx::extern_kernels {
namespace {

using Complex = Fft::Complex;

constexpr int64_t kLargestRadix = 31; ///< beyond it a convolution is cheaper than a radix

Complex root(int64_t k, int64_t n) {
  double angle = -2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n);
  return {std::cos(angle), std::sin(angle)};
}

/// a * b without the checks for infinities that the operator makes.
Complex times(Complex a, Complex b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

} // namespace

Fft::Fft(int64_t n) : n_(n) {
  int64_t rest = n;
  for (int64_t p : {int64_t{4}, int64_t{2}, int64_t{3}, int64_t{5}})
    for (; rest % p == 0; rest /= p) factors_.push_back(p);
  for (int64_t p = 7; p <= kLargestRadix && rest > 1; p += 2)
    for (; rest % p == 0; rest /= p) factors_.push_back(p);
  if (rest == 1) {
    for (int64_t k = 0; k < n; ++k) roots_.push_back(root(k, n));
    return;
  }
  factors_.clear();
  const auto m = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(2 * n - 1)));
  convolution_ = std::make_unique<Fft>(m);
  std::vector<Complex> conjugate(static_cast<size_t>(m)), scratch;
  for (int64_t k = 0; k < n; ++k) {
    // k^2 modulo 2n keeps the angle exact.
    chirp_.push_back(root(static_cast<int64_t>(static_cast<__int128>(k) * k % (2 * n)), 2 * n));
    conjugate[k] = std::conj(chirp_[k]);
    if (k > 0) conjugate[m - k] = conjugate[k];
  }
  kernel_.resize(conjugate.size());
  convolution_->run(conjugate.data(), kernel_.data(), scratch);
}

void Fft::run(const Complex* in, Complex* out, std::vector<Complex>& scratch) const {
  if (convolution_)
    bluestein(in, out, scratch);
  else
    mixed_radix(in, 1, out, n_, 0);
}

void Fft::mixed_radix(const Complex* in, int64_t stride, Complex* out, int64_t n, size_t level) const {
  if (n == 1) {
    out[0] = in[0];
    return;
  }
  const int64_t p = factors_[level], m = n / p;
  for (int64_t q = 0; q < p; ++q) mixed_radix(in + q * stride, stride * p, out + q * m, m, level + 1);
  // Element k of each part is turned by q * k and goes through a transform of length p.
  if (p == 2) {
    for (int64_t k = 0; k < m; ++k) {
      Complex a = out[k], b = times(out[m + k], roots_[k * stride]);
      out[k] = a + b;
      out[m + k] = a - b;
    }
    return;
  }
  if (p == 4) {
    for (int64_t k = 0; k < m; ++k) {
      Complex a = out[k], b = times(out[m + k], roots_[k * stride]),
              c = times(out[2 * m + k], roots_[2 * k * stride]),
              d = times(out[3 * m + k], roots_[3 * k * stride]);
      Complex even = a + c, odd = a - c, sum = b + d, turned{(b - d).imag(), -(b - d).real()};
      out[k] = even + sum;
      out[m + k] = odd + turned;
      out[2 * m + k] = even - sum;
      out[3 * m + k] = odd - turned;
    }
    return;
  }
  std::array<Complex, kLargestRadix> t;
  for (int64_t k = 0; k < m; ++k) {
    for (int64_t q = 0; q < p; ++q) t[q] = times(out[q * m + k], roots_[q * k * stride]);
    for (int64_t r = 0; r < p; ++r) {
      Complex sum = t[0];
      for (int64_t q = 1; q < p; ++q) sum += times(t[q], roots_[q * r % p * m * stride]);
      out[r * m + k] = sum;
    }
  }
}

void Fft::bluestein(const Complex* in, Complex* out, std::vector<Complex>& scratch) const {
  const int64_t m = convolution_->size();
  std::vector<Complex> none;
  scratch.assign(static_cast<size_t>(2 * m), Complex());
  Complex *a = scratch.data(), *b = a + m;
  for (int64_t k = 0; k < n_; ++k) a[k] = times(in[k], chirp_[k]);
  convolution_->run(a, b, none);
  // The inverse transform by conjugation.
  for (int64_t k = 0; k < m; ++k) b[k] = std::conj(times(b[k], kernel_[k]));
  convolution_->run(b, a, none);
  const double scale = 1 / static_cast<double>(m);
  for (int64_t k = 0; k < n_; ++k) out[k] = times(std::conj(a[k]) * scale, chirp_[k]);
}

} // namespace tbx::extern_kernels
