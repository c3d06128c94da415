// One step of a recurrent layer for a few hidden units of one row: from summed gates to the new state.
#pragma once

#include <algorithm>
#include <limits>

#include "extern_kernels/recurrent/activations.h"

namespace tbx::extern_kernels::recurrent {

/// What the cells of one direction share.
struct CellOptions {
  Activation f, g, h;
  double clip = std::numeric_limits<double>::infinity(); ///< bound of what goes into an activation
  bool input_forget = false;

  /// The usual activations of a GRU's gates and nothing else.
  bool has_plain_gates() const {
    return f.kind == ActivationKind::sigmoid && g.kind == ActivationKind::tanh &&
           clip == std::numeric_limits<double>::infinity();
  }
  /// The same of an LSTM.
  bool is_plain() const { return has_plain_gates() && h.kind == ActivationKind::tanh && !input_forget; }
};

/// Values of `U` units; peepholes null where there are none.
template <class T> struct CellState {
  const T* h_before;
  T *h_after, *c;
  const T *peephole_i = nullptr, *peephole_o = nullptr, *peephole_f = nullptr;
};

template <class T> void activate(const Activation& a, double clip, T* x, int64_t n) {
  if (clip < std::numeric_limits<double>::infinity()) {
    T limit = static_cast<T>(clip);
    for (int64_t i = 0; i < n; ++i) x[i] = x[i] < -limit ? -limit : x[i] > limit ? limit : x[i];
  }
  apply(a, x, n);
}

/// `U` values as one: what the compiler makes vectors of however it aliases.
template <int U, class T> struct Units {
  typedef T V __attribute__((vector_size(U * sizeof(T))));
  V v;
  explicit Units(const T* from) { __builtin_memcpy(&v, from, sizeof v); }
  void store(T* to) const { __builtin_memcpy(to, &v, sizeof v); }
};

/// to += from
template <int U, class T> void add(T* to, const T* from) {
  Units<U, T> sum(to);
  sum.v += Units<U, T>(from).v;
  sum.store(to);
}

template <int U, class T> void add_product(T* to, const T* a, const T* b) {
  Units<U, T> sum(to);
  sum.v += Units<U, T>(a).v * Units<U, T>(b).v;
  sum.store(to);
}

/// `gates` in the order of ONNX: input, output, forget, cell.
template <int U, class T> void lstm_cell(const CellOptions& o, T* gates, const CellState<T>& s) {
  T *in = gates, *out = gates + U, *forget = gates + 2 * U, *cell = gates + 3 * U;
  if (s.peephole_i) {
    add_product<U>(in, s.peephole_i, s.c);
    add_product<U>(forget, s.peephole_f, s.c);
    activate(o.f, o.clip, in, U);
    activate(o.f, o.clip, forget, U);
  } else {
    activate(o.f, o.clip, gates, 3 * U);
  }
  activate(o.g, o.clip, cell, U);
  if (o.input_forget)
    for (int u = 0; u < U; ++u) forget[u] = 1 - in[u];
  Units<U, T> c(s.c);
  c.v = Units<U, T>(forget).v * c.v + Units<U, T>(in).v * Units<U, T>(cell).v;
  c.store(s.c);
  if (s.peephole_i) {
    add_product<U>(out, s.peephole_o, s.c);
    activate(o.f, o.clip, out, U);
  }
  c.store(s.h_after);
  apply(o.h, s.h_after, U);
  Units<U, T> h(s.h_after);
  h.v *= Units<U, T>(out).v;
  h.store(s.h_after);
}

/// h' = (1 - z) * candidate + z * h
template <int U, class T> void gru_mix(const T* update, const T* candidate, const CellState<T>& s) {
  Units<U, T> z(update), h(s.h_before);
  h.v = (1 - z.v) * Units<U, T>(candidate).v + z.v * h.v;
  h.store(s.h_after);
}

/// linear_before_reset = 1: `recurrent` are the gates' products with the state, `input` those with the input,
/// both in the order update, reset, hidden; `bias` is the hidden gate's recurrent bias.
template <int U, class T>
void gru_cell(const CellOptions& o, T* recurrent, const T* input, const T* bias, const CellState<T>& s) {
  for (int u = 0; u < 2 * U; ++u) recurrent[u] += input[u];
  activate(o.f, o.clip, recurrent, 2 * U);
  T *reset = recurrent + U, *hidden = recurrent + 2 * U;
  for (int u = 0; u < U; ++u) hidden[u] = input[2 * U + u] + reset[u] * (hidden[u] + bias[u]);
  activate(o.g, o.clip, hidden, U);
  gru_mix<U>(recurrent, hidden, s);
}

} // namespace tbx::extern_kernels::recurrent
