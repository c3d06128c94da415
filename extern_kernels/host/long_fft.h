// Transforms of long lines: in pieces, which threads share and between which a run can end.
#pragma once

#include <complex>
#include <cstdint>
#include <memory>
#include <optional>

#include "extern_kernels/host/fft.h"

namespace tbx::extern_kernels {

/// A line of rows * columns numbers as a matrix: transforms of its columns, factors, transforms of its rows.
template <class T> class SplitFft {
public:
  using Complex = std::complex<T>;
  SplitFft(int64_t rows, int64_t columns);
  int64_t length() const { return rows_.length() * columns_.length(); }

  /// From `line`, which is lost, to `made`, in order.
  void run(Complex* line, Complex* made, bool forward) const;
  /// In place, to an order that from_spectrum() takes back (without a factor 1 / length).
  void to_spectrum(Complex* line) const;
  void from_spectrum(Complex* line) const;

private:
  struct Vectors;
  void transform(const Fft<T>& fft, const Vectors& from, const Vectors& to, bool forward, bool turned) const;

  Fft<T> columns_, rows_; ///< of a column, of a row
  Roots<T> roots_;
};

/// The transform of one line at a time. A length that has no two factors of about the same size becomes a
/// convolution (Bluestein).
template <class T> class LongFft {
public:
  using Complex = std::complex<T>;
  /// Takes the memory that it works in; throws what check_stop() throws.
  explicit LongFft(int64_t length);
  ~LongFft();

  /// Of a transform, with the line that it is given.
  static int64_t bytes(int64_t length);
  /// e^(-2 pi i j k / n) summed where `forward`, else e^(+2 pi i j k / n). The line is lost; the result is
  /// there until the next call.
  const Complex* run(Complex* line, bool forward);

private:
  Complex chirp(int64_t i) const;

  const int64_t length_;
  SplitFft<T> split_;
  std::shared_ptr<void> work_;
  // Of a convolution.
  std::optional<Roots<T>> roots_;
  std::shared_ptr<void> spectrum_; ///< of the chirp, in the order of to_spectrum()
};

extern template class LongFft<float>;
extern template class LongFft<double>;

} // namespace tbx::extern_kernels
