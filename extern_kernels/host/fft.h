// The FFT of ducc0 behind an interface that is quick to compile.
#pragma once

#include <complex>
#include <cstdint>
#include <memory>

namespace tbx::extern_kernels {

/// Transforms of one length, computed in T, float or double. Immutable: one serves many threads.
template <class T> class Fft {
public:
  /// As many lines are transformed at once by run() with `all_lanes`.
  static const int64_t kLanes;

  /// `alone`: for lines that are transformed one by one, with vectors inside of each; there is no
  /// `all_lanes`.
  Fft(int64_t length, bool real, bool alone);
  ~Fft();

  int64_t length() const { return length_; }
  /// Numbers of an element: 1 of real transforms, 2 of complex ones.
  int64_t parts() const { return real_ ? 1 : 2; }
  bool alone() const { return alone_; }
  int64_t scratch_size(bool all_lanes) const;

  /// e^(-2 pi i j k / n) summed where `forward`, else e^(+2 pi i j k / n), times `scale`. `line` is [length,
  /// parts, lanes], the result has the same form and lies in `line` or `scratch`; both begin at 64 bytes.
  /// Real: forward from a signal to half of its spectrum, r0 r1 i1 r2 i2 ..., at the end r(n/2) where n is
  /// even; back from there.
  const T* run(T* line, T* scratch, bool forward, T scale, bool all_lanes) const;

private:
  struct Plan;
  int64_t length_;
  bool real_, alone_;
  std::unique_ptr<Plan> plan_;
};

/// e^(2 pi i k / n), from two tables of about sqrt(n) numbers of float64.
template <class T> class Roots {
public:
  explicit Roots(int64_t n);
  ~Roots();
  /// k: from 0 on, below n.
  std::complex<T> operator()(int64_t k) const;

private:
  struct Tables;
  std::unique_ptr<Tables> tables_;
};

extern template class Fft<float>;
extern template class Fft<double>;
extern template class Roots<float>;
extern template class Roots<double>;

} // namespace tbx::extern_kernels
