// DFT along the last but one dimension of [..., n, 1 or 2]: forward, inverse, one-sided and real. Halves and
// f32 are transformed in f32, f64 in f64.
#include <fmt/format.h>
#include <tbb/cache_aligned_allocator.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <complex>
#include <mutex>
#include <vector>

#include "base/budget.h"
#include "base/error.h"
#include "base/float_formats.h"
#include "base/memory.h"
#include "extern_kernels/host/fft.h"
#include "extern_kernels/host/host_kernel.h"
#include "extern_kernels/host/long_fft.h"
#include "extern_kernels/host/tasks.h"

namespace tbx::extern_kernels {
namespace {

/// The tables of the last run's length, since lengths seldom change. Runs may be concurrent.
template <class T> class Kept {
public:
  std::shared_ptr<const Fft<T>> get(int64_t length, bool real, bool alone) const {
    {
      std::lock_guard lock(mutex_);
      if (fft_ && fft_->length() == length && (fft_->parts() == 1) == real && fft_->alone() == alone)
        return fft_;
    }
    auto made = std::make_shared<const Fft<T>>(length, real, alone);
    std::lock_guard lock(mutex_);
    return fft_ = made;
  }

private:
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Fft<T>> fft_;
};

/// Lines of a dense input [count, given, parts] and output [count, made, 1 where hermitian, else 2].
struct Lines {
  const void* from;
  void* to;
  DType type;
  int64_t count, given, parts, made, length;
  bool inverse, hermitian; ///< hermitian: half of a spectrum gives a real signal
  bool real() const { return parts == 1 || hermitian; }
  /// Elements that take part: longer signals are cut, shorter ones end in zeros.
  int64_t taken() const { return std::min(given, hermitian ? length / 2 + 1 : length); }
};

/// Between what tensors hold, S, and what is computed with, T.
template <class T, class S> struct Elements {
  DType type;
  T load(S x) const {
    if constexpr (std::is_same_v<T, S>)
      return x;
    else
      return decode_float(type, x);
  }
  S store(T x) const {
    if constexpr (std::is_same_v<T, S>)
      return x;
    else
      return static_cast<S>(encode_float(type, x));
  }
};

/// Transforms `lanes` lines at once, element by element beside each other.
template <class T, class S> struct Batch {
  const Lines& lines;
  const Fft<T>& fft;
  int64_t lanes;

  T load(S x) const { return Elements<T, S>{lines.type}.load(x); }
  S store(T x) const { return Elements<T, S>{lines.type}.store(x); }

  void run(int64_t first, T* line, T* scratch) const {
    const T scale = lines.inverse ? T(1) / static_cast<T>(lines.length) : T(1);
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const S* x = static_cast<const S*>(lines.from) + (first + lane) * lines.given * lines.parts;
      lines.hermitian ? load_spectrum(x, line + lane) : load_signal(x, line + lane);
    }
    // An inverse transform of a real signal is the conjugate of its transform.
    const bool forward = lines.hermitian ? false : lines.real() || !lines.inverse;
    const T* made = fft.run(line, scratch, forward, scale, lanes > 1);
    for (int64_t lane = 0; lane < lanes; ++lane) {
      S* y = static_cast<S*>(lines.to) + (first + lane) * lines.made * (lines.hermitian ? 1 : 2);
      if (lines.real() && !lines.hermitian)
        store_spectrum(made + lane, y);
      else
        for (int64_t i = 0; i < lines.made * fft.parts(); ++i) y[i] = store(made[i * lanes + lane]);
    }
  }

  void load_signal(const S* x, T* line) const {
    const int64_t taken = lines.taken() * lines.parts, all = lines.length * lines.parts;
    for (int64_t i = 0; i < taken; ++i) line[i * lanes] = load(x[i]);
    for (int64_t i = taken; i < all; ++i) line[i * lanes] = T(0);
  }
  void load_spectrum(const S* x, T* line) const {
    auto at = [&](int64_t k, int64_t part) {
      return k < lines.taken() && part < lines.parts ? load(x[k * lines.parts + part]) : T(0);
    };
    const int64_t n = lines.length;
    line[0] = at(0, 0);
    for (int64_t k = 1; 2 * k < n; ++k) {
      line[(2 * k - 1) * lanes] = at(k, 0);
      line[2 * k * lanes] = at(k, 1);
    }
    if (n % 2 == 0) line[(n - 1) * lanes] = at(n / 2, 0);
  }
  void store_spectrum(const T* made, S* y) const {
    const int64_t n = lines.length;
    // The other half, where it is wanted, is the conjugate.
    auto put = [&](int64_t k, T re, T im) {
      y[2 * k] = store(re);
      y[2 * k + 1] = store(lines.inverse ? -im : im);
      if (k == 0 || n - k == k || n - k >= lines.made) return;
      y[2 * (n - k)] = store(re);
      y[2 * (n - k) + 1] = store(lines.inverse ? im : -im);
    };
    put(0, made[0], T(0));
    for (int64_t k = 1; 2 * k < n; ++k) put(k, made[(2 * k - 1) * lanes], made[2 * k * lanes]);
    if (n % 2 == 0) put(n / 2, made[(n - 1) * lanes], T(0));
  }
};

template <class T, class S> void run_batches(const Batch<T, S>& batch, int64_t first, int64_t batches) {
  share(batches, 1, [&](int64_t begin, int64_t end) {
    using Buffer = std::vector<T, tbb::cache_aligned_allocator<T>>;
    Buffer line(static_cast<size_t>(batch.fft.length() * batch.fft.parts() * batch.lanes));
    Buffer scratch(static_cast<size_t>(batch.fft.scratch_size(batch.lanes > 1)));
    for (int64_t i = begin; i < end; ++i) {
      check_stop();
      batch.run(first + i * batch.lanes, line.data(), scratch.data());
    }
  });
}

void check_room(const Lines& lines, int64_t bytes, int64_t room) {
  TBX_MODEL(bytes <= memory_limit(), "a transform of length {} takes more memory than there is",
            lines.length);
  if (bytes <= room) return;
  throw Error(ErrorKind::model,
              fmt::format("a transform of length {} takes {} bytes of memory while it is computed, the limit "
                          "leaves {}",
                          lines.length, bytes, room),
              how_to_raise("max_memory"));
}

/// Lines so long that one takes a time worth looking at: one after the other, each by all threads.
template <class T, class S> void transform_long(const Lines& lines, int64_t room) {
  const Elements<T, S> as{lines.type};
  const int64_t n = lines.length, parts = lines.parts, taken = lines.taken();
  const int64_t least = 2 * static_cast<int64_t>(sizeof(std::complex<T>));
  check_room(lines, n > memory_limit() / least ? INT64_MAX : LongFft<T>::bytes(n), room);
  LongFft<T> fft(n);
  using Complex = std::complex<T>;
  const auto memory = allocate_pages(n * static_cast<int64_t>(sizeof(Complex)), Pages::huge);
  auto* line = static_cast<Complex*>(memory.get());
  for (int64_t l = 0; l < lines.count; ++l) {
    const S* x = static_cast<const S*>(lines.from) + l * lines.given * parts;
    auto given = [&](int64_t i) {
      if (i >= taken) return Complex();
      return Complex(as.load(x[i * parts]), parts == 2 ? as.load(x[i * parts + 1]) : T(0));
    };
    for_each_number(n, [&](int64_t i) {
      if (!lines.hermitian) {
        line[i] = given(i);
        return;
      }
      const Complex half = given(std::min(i, n - i)); // the other half is the conjugate
      const bool real = i == 0 || 2 * i == n;
      line[i] = {half.real(), real ? T(0) : 2 * i < n ? half.imag() : -half.imag()};
    });
    const Complex* made = fft.run(line, !lines.inverse);
    const int64_t width = lines.hermitian ? 1 : 2;
    S* y = static_cast<S*>(lines.to) + l * lines.made * width;
    const T scale = lines.inverse ? T(1) / static_cast<T>(n) : T(1);
    for_each_number(lines.made, [&](int64_t i) {
      y[i * width] = as.store(made[i].real() * scale);
      if (width == 2) y[i * width + 1] = as.store(made[i].imag() * scale);
    });
  }
}

/// Numbers per element in the tables of the library, at most: large prime factors make convolutions.
int64_t numbers_in_tables(int64_t length) {
  constexpr int64_t kLargestRadix = 110;
  for (int64_t factor = 2; factor < kLargestRadix && length > 1; ++factor)
    while (length % factor == 0) length /= factor;
  return length > 1 ? 8 : 2;
}

template <class T, class S> void transform(const Lines& lines, const Kept<T>& kept, int64_t room) {
  constexpr int64_t kLong = 1 << 24; // up to there the library takes seconds, and is faster than pieces
  if (lines.length > kLong) return transform_long<T, S>(lines, room);
  constexpr auto kNumber = static_cast<int64_t>(sizeof(T));
  // Long lines are vectorised inside: several at once would not fit into a second-level cache. Its size is
  // not asked, for the order of the sums depends on it.
  const int64_t longest = int64_t{65536} / kNumber;
  const int64_t batches = lines.length <= longest ? lines.count / Fft<T>::kLanes : 0;
  const int64_t rest = batches * Fft<T>::kLanes;
  const int64_t tables = numbers_in_tables(lines.length) * lines.length * kNumber;
  check_room(lines, tables, room); // before they are made
  auto fft = kept.get(lines.length, lines.real(), batches == 0);
  const int64_t lanes = batches > 0 ? Fft<T>::kLanes : 1;
  const int64_t at_once =
      std::min<int64_t>(batches > 0 ? batches : lines.count, tbb::this_task_arena::max_concurrency());
  const int64_t line = lines.length * fft->parts() * lanes + fft->scratch_size(lanes > 1);
  check_room(lines, tables + at_once * line * kNumber, room);
  check_stop();
  run_batches<T, S>({lines, *fft, Fft<T>::kLanes}, 0, batches);
  run_batches<T, S>({lines, *fft, 1}, rest, lines.count - rest);
}

class Dft : public ExternKernel {
public:
  explicit Dft(const HostProblem& p) : problem_(p) {}
  std::string description() const override { return "ducc0 " + to_string(Problem(problem_)); }

  /// Inputs: 0 = signals [..., n, 1 or 2], 1 = the transform's length [1]. Output: [..., m, 1 or 2], where m
  /// is the length, or half of it plus 1 (forward, one-sided).
  void run(const RunArgs& args) const override {
    const HostCall call{problem_, args};
    const TensorRef &x = call.in(0), &y = call.out(0);
    const bool inverse = call.integer("inverse") != 0, onesided = call.integer("onesided") != 0;
    const int64_t length = *static_cast<const int64_t*>(call.in(1).data);
    const int64_t given = x.sizes.end()[-2], parts = x.sizes.back(), made = y.sizes.end()[-2];
    TBX_MODEL(parts == 1 || parts == 2, "DFT: the last dimension of the input is {}, expected 1 or 2", parts);
    if (y.numel() == 0) return;
    const int64_t count = y.numel() / (made * y.sizes.back());
    // Lowering makes no others.
    TBX_MODEL(y.sizes.back() == (inverse && onesided ? 1 : 2) && x.numel() == count * given * parts &&
                  made == (onesided && !inverse ? length / 2 + 1 : length),
              "DFT of {} numbers to {}, of length {}: the package is damaged", x.numel(), y.numel(), length);
    const Lines lines{x.data, y.data, x.dtype, count,   given,
                      parts,  made,   length,  inverse, inverse && onesided};
    switch (x.dtype) {
    case DType::f32: return transform<float, float>(lines, single_, args.room);
    case DType::f64: return transform<double, double>(lines, double_, args.room);
    case DType::f16:
    case DType::bf16: return transform<float, uint16_t>(lines, single_, args.room);
    default: throw_unsupported("a DFT of {} elements", name_of(x.dtype));
    }
  }

private:
  HostProblem problem_;
  Kept<float> single_;
  Kept<double> double_;
};

} // namespace

std::unique_ptr<ExternKernel> make_dft(const HostProblem& p) { return std::make_unique<Dft>(p); }

} // namespace tbx::extern_kernels
