// Transforms of lines in pieces, against sums in long double.
#include "extern_kernels/host/long_fft.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace tbx::test {
namespace {

template <class T> std::vector<std::complex<T>> some_line(int64_t length) {
  std::vector<std::complex<T>> line(static_cast<size_t>(length));
  for (size_t i = 0; i < line.size(); ++i) {
    const auto x = static_cast<double>(i);
    line[i] = {static_cast<T>(std::sin(x * x)), static_cast<T>(std::cos(3 * x + 0.01 * x * x))};
  }
  return line;
}

/// The largest error, in parts of the root of the sum of squares.
template <class T> double error_of(int64_t length, bool forward) {
  const std::vector<std::complex<T>> given = some_line<T>(length);
  std::vector<std::complex<T>> line = given;
  extern_kernels::LongFft<T> fft(length);
  fft.run(line.data(), !forward); // a second run is as good as the first
  line = given;
  const std::complex<T>* made = fft.run(line.data(), forward);
  double worst = 0, squares = 0;
  for (const auto& z : given) squares += std::norm(std::complex<double>(z));
  std::vector<std::complex<long double>> roots;
  for (int64_t k = 0; k < length; ++k)
    roots.push_back(std::polar(1.0L, (forward ? -2 : 2) * std::numbers::pi_v<long double> *
                                         static_cast<long double>(k) / static_cast<long double>(length)));
  for (int64_t k = 0; k < length; ++k) {
    std::complex<long double> sum = 0;
    for (int64_t j = 0; j < length; ++j) {
      const std::complex<long double> x(given[static_cast<size_t>(j)]),
          root = roots[static_cast<size_t>(j * k % length)];
      sum += std::complex<long double>(x.real() * root.real() - x.imag() * root.imag(),
                                       x.real() * root.imag() + x.imag() * root.real());
    }
    worst = std::max(worst, std::abs(std::complex<double>(made[k]) - std::complex<double>(sum)));
  }
  return worst / std::sqrt(squares);
}

// Two like factors, squares, primes and their multiples, which are convolutions.
TEST(LongFft, IsTheSum) {
  for (int64_t length : {1, 2, 3, 16, 30, 35, 64, 97, 202, 289, 509, 1000, 1009})
    for (bool forward : {true, false}) {
      EXPECT_LT(error_of<float>(length, forward), 3e-6) << length;
      EXPECT_LT(error_of<double>(length, forward), 5e-15) << length;
    }
}

TEST(LongFft, SaysWhatItTakes) {
  EXPECT_EQ(extern_kernels::LongFft<float>::bytes(1000), 2 * 1000 * 8);
  EXPECT_GE(extern_kernels::LongFft<double>::bytes(1009), (1009 + 2 * 2017) * 16);
  EXPECT_LE(extern_kernels::LongFft<double>::bytes(1009), (1009 + 2 * 2300) * 16);
}

} // namespace
} // namespace tbx::test
