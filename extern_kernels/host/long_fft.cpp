#include "extern_kernels/host/long_fft.h"

#include <tbb/cache_aligned_allocator.h>

#include <algorithm>
#include <vector>

#include "base/memory.h"
#include "base/stop.h"
#include "extern_kernels/host/tasks.h"

namespace tbx::extern_kernels {
namespace {

/// The rows and columns of a line.
struct Split {
  int64_t rows, columns;
  bool convolves; ///< the line is longer than it is asked for
  int64_t length() const { return rows * columns; }
};

bool has_small_factors(int64_t n) {
  for (int64_t factor : {2, 3, 5, 7, 11})
    while (n % factor == 0) n /= factor;
  return n == 1;
}

Split split_of(int64_t length) {
  constexpr int64_t kMostUneven = 16;
  int64_t rows = 1;
  for (int64_t d = 1; d * d <= length; ++d)
    if (length % d == 0) rows = d;
  if (length / rows <= kMostUneven * rows) return {rows, length / rows, false};
  const int64_t needed = 2 * length - 1;
  rows = 1;
  while (rows * rows < needed) rows *= 2;
  int64_t columns = (needed + rows - 1) / rows;
  while (!has_small_factors(columns)) ++columns;
  return {rows, columns, true};
}

/// std::complex looks for infinities.
template <class T> std::complex<T> product(std::complex<T> a, std::complex<T> b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

template <class T> std::shared_ptr<void> numbers(int64_t count) {
  return allocate_pages(count * static_cast<int64_t>(sizeof(std::complex<T>)), Pages::huge);
}

} // namespace

/// Number j of vector i lies at i * step + j * stride.
template <class T> struct SplitFft<T>::Vectors {
  Complex* at;
  int64_t step, stride;
};

template <class T>
SplitFft<T>::SplitFft(int64_t rows, int64_t columns)
    : columns_(rows, false, false), rows_(columns, false, false), roots_(rows * columns) {}

template <class T>
void SplitFft<T>::transform(const Fft<T>& fft, const Vectors& from, const Vectors& to, bool forward,
                            bool turned) const {
  const int64_t lanes = Fft<T>::kLanes, length = fft.length(), count = this->length() / length;
  share((count + lanes - 1) / lanes, 1, [&](int64_t begin, int64_t end) {
    using Buffer = std::vector<T, tbb::cache_aligned_allocator<T>>;
    Buffer block(static_cast<size_t>(2 * length * lanes)),
        scratch(static_cast<size_t>(fft.scratch_size(true)));
    for (int64_t b = begin; b < end; ++b) {
      check_stop();
      const int64_t first = b * lanes, used = std::min(lanes, count - first);
      for (int64_t j = 0; j < length; ++j)
        for (int64_t lane = 0; lane < used; ++lane) {
          const Complex z = from.at[(first + lane) * from.step + j * from.stride];
          block[2 * j * lanes + lane] = z.real();
          block[(2 * j + 1) * lanes + lane] = z.imag();
        }
      const T* made = fft.run(block.data(), scratch.data(), forward, T(1), true);
      for (int64_t j = 0; j < length; ++j)
        for (int64_t lane = 0; lane < used; ++lane) {
          Complex z{made[2 * j * lanes + lane], made[(2 * j + 1) * lanes + lane]};
          if (turned) {
            const Complex root = roots_((first + lane) * j);
            z = product(z, forward ? std::conj(root) : root);
          }
          to.at[(first + lane) * to.step + j * to.stride] = z;
        }
    }
  });
}

template <class T> void SplitFft<T>::run(Complex* line, Complex* made, bool forward) const {
  const int64_t rows = columns_.length(), columns = rows_.length();
  transform(columns_, {line, 1, columns}, {line, 1, columns}, forward, true);
  transform(rows_, {line, columns, 1}, {made, 1, rows}, forward, false);
}

template <class T> void SplitFft<T>::to_spectrum(Complex* line) const {
  const int64_t columns = rows_.length();
  transform(columns_, {line, 1, columns}, {line, 1, columns}, true, true);
  transform(rows_, {line, columns, 1}, {line, columns, 1}, true, false);
}

template <class T> void SplitFft<T>::from_spectrum(Complex* line) const {
  const int64_t columns = rows_.length();
  transform(rows_, {line, columns, 1}, {line, columns, 1}, false, true);
  transform(columns_, {line, 1, columns}, {line, 1, columns}, false, false);
}

template <class T> int64_t LongFft<T>::bytes(int64_t length) {
  const Split split = split_of(length);
  return (length + split.length() * (split.convolves ? 2 : 1)) * static_cast<int64_t>(sizeof(Complex));
}

template <class T>
LongFft<T>::LongFft(int64_t length)
    : length_(length), split_([&] {
        const Split split = split_of(length);
        return SplitFft<T>(split.rows, split.columns);
      }()),
      work_(numbers<T>(split_.length())) {
  if (split_.length() == length) return;
  roots_.emplace(2 * length);
  spectrum_ = numbers<T>(split_.length());
  auto* chirps = static_cast<Complex*>(spectrum_.get());
  const int64_t around = split_.length();
  const T scale = T(1) / static_cast<T>(around);
  for_each_number(around, [&](int64_t i) {
    const int64_t distance = std::min(i, around - i);
    chirps[i] = distance < length ? chirp(distance) * scale : Complex();
  });
  split_.to_spectrum(chirps);
}

template <class T> LongFft<T>::~LongFft() = default;

/// e^(pi i j^2 / n): 2 j k = j^2 + k^2 - (k - j)^2 makes a convolution of the transform.
template <class T> typename LongFft<T>::Complex LongFft<T>::chirp(int64_t i) const {
  const auto j = static_cast<uint64_t>(i);
  return (*roots_)(static_cast<int64_t>(j * j % static_cast<uint64_t>(2 * length_)));
}

template <class T> const typename LongFft<T>::Complex* LongFft<T>::run(Complex* line, bool forward) {
  auto* work = static_cast<Complex*>(work_.get());
  if (!roots_) {
    split_.run(line, work, forward);
    return work;
  }
  // The other direction is the conjugate of the transform of the conjugate.
  const auto* spectrum = static_cast<const Complex*>(spectrum_.get());
  for_each_number(split_.length(), [&](int64_t i) {
    work[i] = i < length_ ? product(forward ? line[i] : std::conj(line[i]), std::conj(chirp(i))) : Complex();
  });
  split_.to_spectrum(work);
  for_each_number(split_.length(), [&](int64_t i) { work[i] = product(work[i], spectrum[i]); });
  split_.from_spectrum(work);
  for_each_number(length_, [&](int64_t i) {
    const Complex z = product(work[i], std::conj(chirp(i)));
    line[i] = forward ? z : std::conj(z);
  });
  return line;
}

template class LongFft<float>;
template class LongFft<double>;

} // namespace tbx::extern_kernels
