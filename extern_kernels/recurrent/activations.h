// Activation functions of recurrent layers, over short runs of values.
#pragma once

#include <cstdint>

#include "extern_kernels/problem.h"

namespace tbx::extern_kernels::recurrent {

using Activation = GateActivation;
using ActivationKind = GateActivation::Kind;

/// In place. `n` values; f32 sigmoid and tanh are within 3 ulp and run in vectors of 16.
void apply(const Activation& activation, float* x, int64_t n);
void apply(const Activation& activation, double* x, int64_t n);

/// Units of one call of the cells below.
constexpr int kPlainUnits = 16;

/// One step of kPlainUnits units of an LSTM with the usual activations and nothing else: gates are `sums`,
/// one after the other in the order of ONNX, plus `input` at distances of `stride`. Updates c and writes h.
void plain_lstm_cell(const float* sums, const float* input, int64_t stride, float* c, float* h);

/// The same of a GRU with linear_before_reset = 1 whose gates are a sigmoid and tanh: `sums` and `input` in
/// the order update, reset, hidden, `bias` that of the hidden gate's product with the state.
void plain_gru_cell(const float* sums, const float* input, int64_t stride, const float* bias, const float* h,
                    float* h_after);

} // namespace tbx::extern_kernels::recurrent
