// Recurrence weights cut into panels that hold all gates of a few hidden units, and their products with
// states.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

namespace tbx::extern_kernels::recurrent {

/// Bytes of the states that one product advances together: the units of a panel fill whole vectors of it.
constexpr int kVectorBytes = 64;

/// R [gates * hidden, hidden] as panels. Panel p holds units [p * units(), ...) of the gates [first, first +
/// count): for each k the values R[(first + g) * hidden + unit, k] for g, then unit. Units beyond hidden are
/// 0.
template <class T> class GateWeights {
public:
  /// `r`: element (row, k) at r[row * row_stride + k * k_stride].
  GateWeights(const T* r, int64_t row_stride, int64_t k_stride, int64_t hidden, int first, int count);

  int64_t hidden() const { return hidden_; }
  int64_t panels() const { return (hidden_ + units_ - 1) / units_; }
  int64_t units() const { return units_; }
  int64_t width() const { return units_ * count_; }
  int64_t bytes() const { return panels() * hidden_ * width() * static_cast<int64_t>(sizeof(T)); }

  /// sums[row * width() + g * units() + u] = sum over k of states[row * stride + k] * panel[k, g, u].
  void multiply(int64_t panel, const T* states, int64_t stride, int64_t rows, T* sums) const;

private:
  int64_t hidden_, units_;
  int count_;
  std::unique_ptr<T, void (*)(void*)> data_;
};

extern template class GateWeights<float>;
extern template class GateWeights<double>;

} // namespace tbx::extern_kernels::recurrent
