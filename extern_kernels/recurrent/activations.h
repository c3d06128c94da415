// Activation functions of recurrent layers, over short runs of values.
#pragma once

#include <cstdint>
#include <string_view>

namespace tbx::extern_kernels::recurrent {

enum class ActivationKind : uint8_t {
  affine, ///< alpha * x + beta
  relu,
  leaky_relu,       ///< x or alpha * x
  thresholded_relu, ///< x where x > alpha
  tanh,
  scaled_tanh, ///< alpha * tanh(beta * x)
  sigmoid,
  hard_sigmoid, ///< alpha * x + beta in [0, 1]
  elu,          ///< x or alpha * (e^x - 1)
  softsign,
  softplus,
};

struct Activation {
  ActivationKind kind = ActivationKind::tanh;
  double alpha = 0, beta = 0;
};

/// By ONNX name in any case; false when there is none. Leaves alpha and beta alone.
bool find_activation(std::string_view name, ActivationKind& kind);

/// In place. `n` values; f32 sigmoid and tanh are within 3 ulp and run in vectors of 16.
void apply(const Activation& activation, float* x, int64_t n);
void apply(const Activation& activation, double* x, int64_t n);

/// Units of one call of plain_lstm_cell.
constexpr int kPlainUnits = 16;

/// One step of kPlainUnits units of an LSTM with the usual activations and nothing else: gates are `sums`,
/// one after the other in the order of ONNX, plus `input` at distances of `stride`. Updates c and writes h.
void plain_lstm_cell(const float* sums, const float* input, int64_t stride, float* c, float* h);

} // namespace tbx::extern_kernels::recurrent
