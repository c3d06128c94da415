// DFT along the last but one dimension of [..., n, 1 or 2]: forward, inverse, one-sided and real. Halves and
// f32 are transformed in f32, f64 in f64.
#include <tbb/cache_aligned_allocator.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "base/float_formats.h"
#include "base/memory.h"
#include "extern_kernels/host/fft.h"
#include "extern_kernels/host/host_kernel.h"
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

/// Transforms `lanes` lines at once, element by element beside each other. T computes, S is what tensors
/// hold.
template <class T, class S> struct Batch {
  const Lines& lines;
  const Fft<T>& fft;
  int64_t lanes;

  T load(S x) const {
    if constexpr (std::is_same_v<T, S>)
      return x;
    else
      return decode_float(lines.type, x);
  }
  S store(T x) const {
    if constexpr (std::is_same_v<T, S>)
      return x;
    else
      return static_cast<S>(encode_float(lines.type, x));
  }

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

template <class T, class S> void transform(const Lines& lines, const Kept<T>& kept) {
  // Long lines are vectorised inside: several at once would not fit into a second-level cache. Its size is
  // not asked, for the order of the sums depends on it.
  const int64_t longest = int64_t{65536} / static_cast<int64_t>(sizeof(T));
  const int64_t batches = lines.length <= longest ? lines.count / Fft<T>::kLanes : 0;
  const int64_t rest = batches * Fft<T>::kLanes;
  // A prime length takes most: tables, a line, and its transform by a convolution of twice the length.
  constexpr int64_t kNumbers = 20;
  TBX_MODEL(lines.length <= memory_limit() / kNumbers / static_cast<int64_t>(sizeof(T)),
            "a transform of length {} takes more memory than there is", lines.length);
  auto fft = kept.get(lines.length, lines.real(), batches == 0);
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
    case DType::f32: return transform<float, float>(lines, single_);
    case DType::f64: return transform<double, double>(lines, double_);
    case DType::f16:
    case DType::bf16: return transform<float, uint16_t>(lines, single_);
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
