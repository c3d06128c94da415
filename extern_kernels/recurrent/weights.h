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
/// 0. Of weights in bfloat16 each pair of k has the place of one value, where the CPU multiplies pairs.
template <class T> class GateWeights {
public:
  /// `r`: element (row, k) at r[row * row_stride + k * k_stride].
  GateWeights(const T* r, int64_t row_stride, int64_t k_stride, int64_t hidden, int first, int count);
  /// The same in bfloat16.
  GateWeights(const uint16_t* r, int64_t row_stride, int64_t k_stride, int64_t hidden, int first, int count);

  int64_t hidden() const { return hidden_; }
  int64_t panels() const { return (hidden_ + units_ - 1) / units_; }
  int64_t units() const { return units_; }
  int64_t width() const { return units_ * count_; }
  int64_t bytes() const { return panels() * depth() * width() * static_cast<int64_t>(sizeof(T)); }

  /// The states of `rows` rows as `multiply` takes them: as they are, or rounded into `to`, which has the
  /// same stride.
  const T* operands(const T* states, int64_t stride, int64_t rows, T* to) const;
  /// sums[row * width() + g * units() + u] = sum over k of states[row * stride + k] * panel[k, g, u], of the
  /// states that operands() gives.
  void multiply(int64_t panel, const T* states, int64_t stride, int64_t rows, T* sums) const;

private:
  GateWeights(int64_t hidden, int count, bool pairs);
  int64_t depth() const { return pairs_ ? (hidden_ + 1) / 2 : hidden_; }
  /// Calls `put(k, row or -1)` for all values in the order of the panels, `step` values of k at a time.
  template <class F> void for_values(int first, int64_t step, const F& put) const;

  int64_t hidden_, units_;
  int count_;
  bool pairs_;
  std::unique_ptr<T, void (*)(void*)> data_;
};

extern template class GateWeights<float>;
extern template class GateWeights<double>;

} // namespace tbx::extern_kernels::recurrent
