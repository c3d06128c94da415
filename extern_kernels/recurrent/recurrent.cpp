// LSTM, GRU and RNN: the products with the input are made before, for all steps at once; here the steps run.
// Directions and blocks of rows are independent; a single long sequence splits its hidden units over threads.
#include <fmt/format.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <optional>

#include "base/error.h"
#include "base/float_formats.h"
#include "base/task_work.h"
#include "extern_kernels/kernel.h"
#include "extern_kernels/recurrent/cells.h"
#include "extern_kernels/recurrent/layer.h"
#include "extern_kernels/recurrent/weights.h"
#include "extern_kernels/reference/dense.h"

namespace tbx::extern_kernels {
namespace {

using namespace recurrent;

constexpr int64_t kRows = 16;    ///< rows of a block share each read of the weights, at most
constexpr int64_t kTile = 4;     ///< rows that are multiplied together, at most
constexpr int64_t kPadding = 64; ///< states are padded to whole panels of any kind

/// Inputs of a RecurrentProblem.
constexpr size_t kLengths = 2, kInitialH = 3, kInitialC = 4, kPeepholes = 5, kHiddenBias = 6;

/// What there is of each direction and row: h and h of the next step, which take turns, c, the update gate,
/// the reset state, and what the weights multiply.
enum Buffer : uint8_t { kH, kOtherH, kC, kUpdate, kReset, kOperands, kBuffers };
/// And of each direction.
enum Parameter : uint8_t { kPeepholeI, kPeepholeO, kPeepholeF, kBias, kParameters };

template <class T> T value_at(const TensorRef& t, int64_t at) {
  switch (t.dtype) {
  case DType::f32: return static_cast<T>(static_cast<const float*>(t.data)[at]);
  case DType::f64: return static_cast<T>(static_cast<const double*>(t.data)[at]);
  default: return static_cast<T>(decode_float(t.dtype, static_cast<const uint16_t*>(t.data)[at]));
  }
}

template <class T> void store(const T* from, int64_t n, const TensorRef& t, int64_t at, int64_t stride) {
  if (t.dtype == (sizeof(T) == 8 ? DType::f64 : DType::f32) && stride == 1) {
    std::copy_n(from, n, static_cast<T*>(t.data) + at);
    return;
  }
  for (int64_t i = 0; i < n; ++i, at += stride) switch (t.dtype) {
    case DType::f32: static_cast<float*>(t.data)[at] = static_cast<float>(from[i]); break;
    case DType::f64: static_cast<double*>(t.data)[at] = static_cast<double>(from[i]); break;
    default:
      static_cast<uint16_t*>(t.data)[at] =
          static_cast<uint16_t>(encode_float(t.dtype, static_cast<float>(from[i])));
    }
}

/// One call's memory and shapes.
template <class T> struct Run {
  const RunArgs& args;
  int64_t steps, batch, hidden, padded, directions;
  const T* gates;                  ///< of the input, dense along its last dimension
  int64_t step_stride, row_stride; ///< of `gates`
  const GateWeights<T>*first, *second;
  int64_t rows() const { return directions * batch; }
  /// Of `padded` values each.
  T* buffer(Buffer which, int64_t direction, int64_t row) const {
    return static_cast<T*>(args.workspace) + ((which * directions + direction) * batch + row) * padded;
  }
  T* parameter(Parameter which, int64_t direction) const {
    return static_cast<T*>(args.workspace) + (kBuffers * rows() + which * directions + direction) * padded;
  }
  bool has(size_t input) const { return args.inputs.size() > input && args.inputs[input].data; }
};

/// Rows of a block, of which there are enough for the threads. A row alone takes as long as two do, which
/// wait for the same weights.
int64_t rows_of_block(int64_t rows, int64_t directions, int64_t threads) {
  const int64_t each = std::max<int64_t>(2, (rows * directions + threads - 1) / threads);
  return std::min(kRows, each < kTile ? each : (each + kTile - 1) / kTile * kTile);
}

template <class T> class Recurrent : public ExternKernel {
public:
  Recurrent(const RecurrentProblem& p, const OperandInfo& r) : p_(p), layer_(p) {
    if (r.constant && r.strides.size() == 3) {
      pack(r.constant->data, r.dtype, r.sizes, r.strides, packed_);
      drop_pages(*r.constant);
    }
  }

  std::string description() const override { return "recurrent " + to_string(Problem(p_)); }

  int64_t packed_bytes() const override {
    int64_t n = 0;
    for (const auto& w : packed_) n += w.bytes();
    return n;
  }

  bool reads(size_t input) const override { return input != 1 || packed_.empty(); }

  int64_t workspace_bytes(std::span<const TensorRef> in, std::span<const TensorRef>) const override {
    const int64_t hidden = in[1].sizes[2], padded = (hidden + kPadding - 1) / kPadding * kPadding;
    const int64_t batch = in[0].sizes[layer_.batch_first ? 0 : 1], directions = in[1].sizes[0];
    const int64_t sizes[] = {kBuffers * batch + kParameters, directions, padded,
                             static_cast<int64_t>(sizeof(T))};
    return checked_numel(sizes);
  }

  bool is_serial(std::span<const TensorRef> in, std::span<const TensorRef>) const override {
    return is_little(in[0], in[1]);
  }

  void run(const RunArgs& args) const override;

private:
  /// The products of all steps and rows with these weights are few.
  static bool is_little(const TensorRef& x, const TensorRef& weights) {
    const auto products = static_cast<double>(x.sizes[0]) * static_cast<double>(x.sizes[1]) *
                          static_cast<double>(weights.numel());
    return products < kTaskWork.layer_products;
  }
  int gates() const { return layer_.gates; }

  /// Weights per direction; without linear_before_reset a GRU has a second set for the hidden gate.
  void pack(const void* r, DType type, std::span<const int64_t> sizes, std::span<const int64_t> strides,
            std::vector<GateWeights<T>>& to) const {
    auto pack_as = [&]<class S>(const S* at) {
      for (int64_t d = 0; d < sizes[0]; ++d, at += strides[0]) {
        to.emplace_back(at, strides[1], strides[2], sizes[2], 0, layer_.kind == Kind::gru ? 2 : gates());
        if (layer_.kind == Kind::gru) to.emplace_back(at, strides[1], strides[2], sizes[2], 2, 1);
      }
    };
    if (type == DType::bf16)
      pack_as(static_cast<const uint16_t*>(r));
    else
      pack_as(static_cast<const T*>(r));
  }

  /// `n` values of an input into a padded buffer; zeros where it is absent.
  static void load(const Run<T>& r, size_t input, int64_t at, int64_t stride, T* to, int64_t n) {
    std::fill_n(to, r.padded, T(0));
    if (!r.has(input)) return;
    for (int64_t i = 0; i < n; ++i) to[i] = value_at<T>(r.args.inputs[input], at + i * stride);
  }
  /// `dense` takes the gates of the input where they do not lie side by side.
  Run<T> run_of(const RunArgs& args, std::vector<T>& dense) const;
  /// Throws Error (model) where an input does not fit the others.
  void check(const Run<T>& r) const;
  void load_parameters(const Run<T>& r) const;
  void sequence(const Run<T>& r, int64_t d, int64_t begin, int64_t end, bool split) const;
  void step(const Run<T>& r, int64_t d, int64_t begin, int64_t end, int64_t s, bool flip, bool split) const;
  int64_t length_of(const Run<T>& r, int64_t row) const {
    return r.has(kLengths) ? value_of_length(r.args.inputs[kLengths], row) : r.steps;
  }
  static int64_t value_of_length(const TensorRef& t, int64_t row) {
    int64_t at = row * t.strides[0];
    return t.dtype == DType::i64 ? static_cast<const int64_t*>(t.data)[at]
                                 : static_cast<const int32_t*>(t.data)[at];
  }
  /// Output `which` of Y, Y_h, Y_c, if it is asked for.
  std::optional<TensorRef> output(const RunArgs& args, int which) const {
    if (!(layer_.outputs >> which & 1)) return std::nullopt;
    int at = 0;
    for (int k = 0; k < which; ++k) at += layer_.outputs >> k & 1;
    return args.outputs[at];
  }
  /// Element 0 of a row of an initial or last state: [directions, batch, hidden], layout 1: batch first.
  int64_t state_at(const TensorRef& t, int64_t d, int64_t row) const {
    return d * t.strides[layer_.batch_first ? 1 : 0] + row * t.strides[layer_.batch_first ? 0 : 1];
  }
  int64_t y_at(const TensorRef& y, int64_t t, int64_t d, int64_t row) const {
    return layer_.batch_first ? row * y.strides[0] + t * y.strides[1] + d * y.strides[2]
                              : t * y.strides[0] + d * y.strides[1] + row * y.strides[2];
  }

  RecurrentProblem p_;
  Layer layer_;
  std::vector<GateWeights<T>> packed_;
};

template <class T> Run<T> Recurrent<T>::run_of(const RunArgs& args, std::vector<T>& dense) const {
  const TensorRef &x = args.inputs[0], &weights = args.inputs[1];
  Run<T> r{args,
           x.sizes[layer_.batch_first ? 1 : 0],
           x.sizes[layer_.batch_first ? 0 : 1],
           weights.sizes[2],
           0,
           weights.sizes[0],
           static_cast<const T*>(x.data),
           x.strides[layer_.batch_first ? 1 : 0],
           x.strides[layer_.batch_first ? 0 : 1],
           nullptr,
           nullptr};
  if (x.strides[2] != 1 && x.numel() > 0) {
    dense = to_dense<T>(x);
    r.gates = dense.data();
    r.step_stride = layer_.batch_first ? x.sizes[2] : x.sizes[1] * x.sizes[2];
    r.row_stride = layer_.batch_first ? x.sizes[1] * x.sizes[2] : x.sizes[2];
  }
  r.padded = (r.hidden + kPadding - 1) / kPadding * kPadding;
  return r;
}

template <class T> void Recurrent<T>::check(const Run<T>& r) const {
  const TensorRef &x = r.args.inputs[0], &weights = r.args.inputs[1];
  TBX_MODEL(r.directions == static_cast<int64_t>(layer_.options.size()) &&
                weights.sizes[1] == gates() * r.hidden && x.sizes[2] == r.directions * gates() * r.hidden,
            "R is [{}], the gates of the input are [{}]", fmt::join(weights.sizes, ", "),
            fmt::join(x.sizes, ", "));
  auto check = [&](size_t input, std::vector<int64_t> want, const char* what) {
    if (!r.has(input)) return;
    std::span<const int64_t> got = r.args.inputs[input].sizes;
    TBX_MODEL(std::equal(got.begin(), got.end(), want.begin(), want.end()), "{} is [{}], expected [{}]", what,
              fmt::join(got, ", "), fmt::join(want, ", "));
  };
  auto state = layer_.batch_first ? std::vector{r.batch, r.directions, r.hidden}
                                  : std::vector{r.directions, r.batch, r.hidden};
  check(kLengths, {r.batch}, "sequence_lens");
  check(kInitialH, state, "initial_h");
  check(kInitialC, state, "initial_c");
  check(kPeepholes, {r.directions, 3 * r.hidden}, "P");
  check(kHiddenBias, {r.directions, r.hidden}, "the recurrent bias");
  if (!r.has(kLengths)) return;
  for (int64_t b = 0; b < r.batch; ++b)
    TBX_MODEL(length_of(r, b) >= 0 && length_of(r, b) <= r.steps,
              "sequence_lens[{}] is {}, the input has {} steps", b, length_of(r, b), r.steps);
}

template <class T> void Recurrent<T>::load_parameters(const Run<T>& r) const {
  for (int64_t d = 0; d < r.directions; ++d) {
    for (Parameter p : {kPeepholeI, kPeepholeO, kPeepholeF}) { // as they follow each other in the input
      if (!r.has(kPeepholes)) break;
      const TensorRef& t = r.args.inputs[kPeepholes];
      load(r, kPeepholes, d * t.strides[0] + p * r.hidden * t.strides[1], t.strides[1], r.parameter(p, d),
           r.hidden);
    }
    const TensorRef* bias = r.has(kHiddenBias) ? &r.args.inputs[kHiddenBias] : nullptr;
    load(r, kHiddenBias, bias ? d * bias->strides[0] : 0, bias ? bias->strides[1] : 0, r.parameter(kBias, d),
         r.hidden);
  }
}

template <class T> void Recurrent<T>::run(const RunArgs& args) const {
  const TensorRef &x = args.inputs[0], &weights = args.inputs[1];
  std::vector<T> dense;
  const Run<T> r = run_of(args, dense);
  check(r);
  load_parameters(r);
  std::vector<GateWeights<T>> made;
  if (packed_.empty()) pack(weights.data, weights.dtype, weights.sizes, weights.strides, made);
  const std::vector<GateWeights<T>>& packed = packed_.empty() ? made : packed_;

  const bool serial = is_little(x, weights);
  const int64_t threads = serial ? 1 : tbb::this_task_arena::max_concurrency();
  const int64_t block = rows_of_block(r.batch, r.directions, threads);
  const int64_t blocks = (r.batch + block - 1) / block, tasks = r.directions * blocks;
  const bool split = 2 * tasks <= threads && packed[0].bytes() >= kTaskWork.step_bytes;
  const size_t sets = layer_.kind == Kind::gru ? 2 : 1;
  auto run = [&](int64_t task) {
    int64_t d = task / blocks, begin = task % blocks * block;
    Run<T> mine = r;
    mine.first = &packed[static_cast<size_t>(d) * sets];
    mine.second = &packed[static_cast<size_t>(d) * sets + sets - 1];
    sequence(mine, d, begin, std::min(begin + block, r.batch), split);
  };
  if (serial)
    for (int64_t task = 0; task < tasks; ++task) run(task);
  else
    tbb::parallel_for(int64_t{0}, tasks, run);
}

/// All steps of rows [begin, end) in one direction.
template <class T>
void Recurrent<T>::sequence(const Run<T>& r, int64_t d, int64_t begin, int64_t end, bool split) const {
  int64_t longest = 0;
  for (int64_t b = begin; b < end; ++b) {
    longest = std::max(longest, length_of(r, b));
    for (size_t k : {kInitialH, kInitialC}) {
      const TensorRef* t = r.has(k) ? &r.args.inputs[k] : nullptr;
      load(r, k, t ? state_at(*t, d, b) : 0, t ? t->strides[2] : 0, r.buffer(k == kInitialH ? kH : kC, d, b),
           r.hidden);
    }
  }
  bool flip = false;
  for (int64_t s = 0; s < longest; ++s, flip = !flip) step(r, d, begin, end, s, flip, split);

  auto y = output(r.args, 0), y_h = output(r.args, 1), y_c = output(r.args, 2);
  for (int64_t b = begin; b < end; ++b) {
    if (y_h)
      store(r.buffer(flip ? kOtherH : kH, d, b), r.hidden, *y_h, state_at(*y_h, d, b), y_h->strides[2]);
    if (y_c) store(r.buffer(kC, d, b), r.hidden, *y_c, state_at(*y_c, d, b), y_c->strides[2]);
    T* zero = r.buffer(kUpdate, d, b); // which no step needs any more
    std::fill_n(zero, r.hidden, T(0));
    if (y)
      for (int64_t t = length_of(r, b); t < r.steps; ++t)
        store(zero, r.hidden, *y, y_at(*y, t, d, b), y->strides[3]);
  }
}

/// Runs `work(panel, sums)` with the products of `rows` states for every panel. Every other step goes `back`
/// from the last panel to the first: a cache that does not hold all of them still has those that were read
/// last.
template <class T, class F>
void for_panels(const GateWeights<T>& w, const T* states, int64_t stride, int64_t rows, bool split, bool back,
                const F& work) {
  auto one = [&](int64_t p) {
    alignas(64) T sums[kRows * 4 * kVectorBytes / sizeof(T)];
    w.multiply(p, states, stride, rows, sums);
    work(p, sums);
  };
  if (split)
    tbb::parallel_for(int64_t{0}, w.panels(), one);
  else
    for (int64_t p = 0; p < w.panels(); ++p) one(back ? w.panels() - 1 - p : p);
}

/// Step number `s` of each row that has one; `flip` says which of the two h buffers is the old state.
template <class T>
void Recurrent<T>::step(const Run<T>& r, int64_t d, int64_t begin, int64_t end, int64_t s, bool flip,
                        bool split) const {
  constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));
  const CellOptions& o = layer_.options[static_cast<size_t>(d)];
  const Buffer old = flip ? kOtherH : kH, next = flip ? kH : kOtherH;
  const bool plain = o.is_plain() && !r.has(kPeepholes);
  const auto y = output(r.args, 0);
  const T* x = r.gates + d * gates() * r.hidden;
  auto is_active = [&](int64_t row) { return s < length_of(r, row); };
  auto time_of = [&](int64_t row) {
    return layer_.reverse[static_cast<size_t>(d)] ? length_of(r, row) - 1 - s : s;
  };
  auto input_of = [&](int64_t row, int64_t unit) {
    return x + time_of(row) * r.step_stride + row * r.row_stride + unit;
  };
  /// The input's share of `count` gates for `U` units from `first`, gate by gate; adds it to `to`.
  auto add_input = [&]<int U>(std::integral_constant<int, U>, int64_t row, int gate, int count, int64_t first,
                              T* to) {
    const T* at = input_of(row, gate * r.hidden + first);
    const int64_t n = std::min<int64_t>(U, r.hidden - first);
    for (int g = 0; g < count; ++g, at += r.hidden, to += U)
      if (n == U)
        add<U>(to, at);
      else
        for (int64_t u = 0; u < n; ++u) to[u] += at[u];
  };
  auto state = [&](int64_t row, int64_t unit) {
    CellState<T> c{r.buffer(old, d, row) + unit, r.buffer(next, d, row) + unit, r.buffer(kC, d, row) + unit};
    if (layer_.kind == Kind::lstm && r.has(kPeepholes)) {
      c.peephole_i = r.parameter(kPeepholeI, d) + unit;
      c.peephole_o = r.parameter(kPeepholeO, d) + unit;
      c.peephole_f = r.parameter(kPeepholeF, d) + unit;
    }
    return c;
  };
  /// Calls `cell(row, unit, sums)` for active rows; the others keep their state.
  auto cells = [&]<int U>(std::integral_constant<int, U>, const GateWeights<T>& w, Buffer from,
                          const auto& cell) {
    const T* states =
        w.operands(r.buffer(from, d, begin), r.padded, end - begin, r.buffer(kOperands, d, begin));
    for_panels(w, states, r.padded, end - begin, split, flip, [&](int64_t p, T* sums) {
      for (int64_t row = begin; row < end; ++row) {
        T* mine = sums + (row - begin) * w.width();
        if (is_active(row))
          cell(row, p * U, mine);
        else
          std::copy_n(r.buffer(old, d, row) + p * U, U, r.buffer(next, d, row) + p * U);
      }
    });
  };
  constexpr std::integral_constant<int, kLanes> kOne{};
  constexpr std::integral_constant<int, 2 * kLanes> kTwo{};
  constexpr std::integral_constant<int, 4 * kLanes> kFour{};
  switch (layer_.kind) {
  case Kind::lstm:
    cells(kOne, *r.first, old, [&](int64_t row, int64_t unit, T* sums) {
      if constexpr (std::is_same_v<T, float> && kLanes == kPlainUnits) {
        if (plain && unit + kLanes <= r.hidden) {
          float* c = r.buffer(kC, d, row) + unit;
          return plain_lstm_cell(sums, input_of(row, unit), r.hidden, c, r.buffer(next, d, row) + unit);
        }
      }
      add_input(kOne, row, 0, 4, unit, sums);
      lstm_cell<kLanes>(o, sums, state(row, unit));
    });
    break;
  case Kind::gru_linear:
    cells(kOne, *r.first, old, [&](int64_t row, int64_t unit, T* sums) {
      if constexpr (std::is_same_v<T, float> && kLanes == kPlainUnits)
        if (o.has_plain_gates() && unit + kLanes <= r.hidden)
          return plain_gru_cell(sums, input_of(row, unit), r.hidden, r.parameter(kBias, d) + unit,
                                r.buffer(old, d, row) + unit, r.buffer(next, d, row) + unit);
      T input[3 * kLanes] = {};
      add_input(kOne, row, 0, 3, unit, input);
      gru_cell<kLanes>(o, sums, input, r.parameter(kBias, d) + unit, state(row, unit));
    });
    break;
  case Kind::gru:
    cells(kTwo, *r.first, old, [&](int64_t row, int64_t unit, T* sums) {
      add_input(kTwo, row, 0, 2, unit, sums);
      activate(o.f, o.clip, sums, 4 * kLanes);
      std::copy_n(sums, 2 * kLanes, r.buffer(kUpdate, d, row) + unit);
      T* reset = r.buffer(kReset, d, row) + unit;
      for (int u = 0; u < 2 * kLanes; ++u) reset[u] = sums[2 * kLanes + u] * r.buffer(old, d, row)[unit + u];
    });
    cells(kFour, *r.second, kReset, [&](int64_t row, int64_t unit, T* sums) {
      add_input(kFour, row, 2, 1, unit, sums);
      activate(o.g, o.clip, sums, 4 * kLanes);
      gru_mix<4 * kLanes>(r.buffer(kUpdate, d, row) + unit, sums, state(row, unit));
    });
    break;
  case Kind::rnn:
    cells(kFour, *r.first, old, [&](int64_t row, int64_t unit, T* sums) {
      add_input(kFour, row, 0, 1, unit, sums);
      activate(o.f, o.clip, sums, 4 * kLanes);
      std::copy_n(sums, 4 * kLanes, r.buffer(next, d, row) + unit);
    });
    break;
  }
  if (!y) return;
  for (int64_t row = begin; row < end; ++row)
    if (is_active(row))
      store(r.buffer(next, d, row), r.hidden, *y, y_at(*y, time_of(row), d, row), y->strides[3]);
}

} // namespace

std::string supports_recurrent(const Problem&, std::span<const OperandInfo> inputs,
                               std::span<const OperandInfo>, const Target&) {
  const DType gates = inputs[0].dtype, weights = inputs[1].dtype;
  const bool narrow = gates == DType::f32 && weights == DType::bf16;
  if ((gates != weights && !narrow) || (gates != DType::f32 && gates != DType::f64))
    return fmt::format("{} gates and {} weights", name_of(gates), name_of(weights));
  return {};
}

std::unique_ptr<ExternKernel> make_recurrent(const Problem& problem, std::span<const OperandInfo> inputs,
                                             std::span<const OperandInfo>) {
  const auto& p = std::get<RecurrentProblem>(problem);
  if (inputs[0].dtype == DType::f64) return std::make_unique<Recurrent<double>>(p, inputs[1]);
  return std::make_unique<Recurrent<float>>(p, inputs[1]);
}

} // namespace tbx::extern_kernels
