#include "extern_kernels/host/fft.h"

#include <ducc0/fft/fft1d_impl.h>

#include <optional>

namespace tbx::extern_kernels {
namespace {

template <class T> using Lanes = ducc0::native_simd<T>;

} // namespace

template <class T> struct Fft<T>::Plan {
  std::optional<ducc0::pocketfft_c<T>> complex;
  std::optional<ducc0::pocketfft_r<T>> real;

  template <class V> const V* run(T* line, T* scratch, bool forward, T scale) const {
    if (real) return real->exec(reinterpret_cast<V*>(line), reinterpret_cast<V*>(scratch), scale, forward);
    using Complex = ducc0::Cmplx<V>;
    return &complex
                ->exec(reinterpret_cast<Complex*>(line), reinterpret_cast<Complex*>(scratch), scale, forward)
                ->r;
  }
};

template <class T> const int64_t Fft<T>::kLanes = Lanes<T>::size();

template <class T>
Fft<T>::Fft(int64_t length, bool real, bool alone)
    : length_(length), real_(real), alone_(alone), plan_(std::make_unique<Plan>()) {
  if (real)
    plan_->real.emplace(static_cast<size_t>(length), alone);
  else
    plan_->complex.emplace(static_cast<size_t>(length), alone);
}

template <class T> Fft<T>::~Fft() = default;

template <class T> int64_t Fft<T>::scratch_size(bool all_lanes) const {
  const size_t elements = real_ ? plan_->real->bufsize() : plan_->complex->bufsize();
  return static_cast<int64_t>(elements) * parts() * (all_lanes ? kLanes : 1);
}

template <class T> const T* Fft<T>::run(T* line, T* scratch, bool forward, T scale, bool all_lanes) const {
  if (!all_lanes) return plan_->template run<T>(line, scratch, forward, scale);
  return reinterpret_cast<const T*>(plan_->template run<Lanes<T>>(line, scratch, forward, scale));
}

template <class T> struct Roots<T>::Tables {
  explicit Tables(int64_t n) : roots(static_cast<size_t>(n)) {}
  ducc0::UnityRoots<T, std::complex<T>> roots;
};

template <class T> Roots<T>::Roots(int64_t n) : tables_(std::make_unique<Tables>(n)) {}
template <class T> Roots<T>::~Roots() = default;

template <class T> std::complex<T> Roots<T>::operator()(int64_t k) const {
  return tables_->roots[static_cast<size_t>(k)];
}

template class Fft<float>;
template class Fft<double>;
template class Roots<float>;
template class Roots<double>;

} // namespace tbx::extern_kernels
