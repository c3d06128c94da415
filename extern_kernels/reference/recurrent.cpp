// LSTM, GRU and RNN by plain loops in double: a unit of a row of a step at a time.
#include <tbb/parallel_for.h>

#include "extern_kernels/recurrent/layer.h"
#include "extern_kernels/reference/dense.h"

namespace tbx::extern_kernels {
namespace {

using namespace recurrent;
using Values = std::vector<double>;

/// The operands of one call as dense arrays.
struct Call {
  int64_t steps, batch, hidden, directions;
  Values gates, weights, lengths, h, c, peepholes, bias; ///< what is absent is empty

  Call(const RunArgs& args, const Layer& layer) {
    const TensorRef &x = args.inputs[0], &r = args.inputs[1];
    steps = x.sizes[layer.batch_first ? 1 : 0];
    batch = x.sizes[layer.batch_first ? 0 : 1];
    hidden = r.sizes[2];
    directions = r.sizes[0];
    TBX_MODEL(directions == static_cast<int64_t>(layer.options.size()) &&
                  r.sizes[1] == layer.gates * hidden && x.sizes[2] == directions * r.sizes[1],
              "R is for {} directions of {} rows, the gates of the input are {}", directions, r.sizes[1],
              x.sizes[2]);
    gates = to_dense<double>(x);
    weights = to_dense<double>(r);
    auto read = [&](size_t i, int64_t numel, const char* what) {
      if (args.inputs.size() <= i || !args.inputs[i].data) return Values();
      TBX_MODEL(args.inputs[i].numel() == numel, "{} has {} elements, expected {}", what,
                args.inputs[i].numel(), numel);
      return to_dense<double>(args.inputs[i]);
    };
    lengths = read(2, batch, "sequence_lens");
    h = read(3, directions * batch * hidden, "initial_h");
    c = read(4, directions * batch * hidden, "initial_c");
    peepholes = read(5, directions * 3 * hidden, "P");
    bias = read(6, directions * hidden, "the recurrent bias");
    for (double length : lengths)
      TBX_MODEL(length >= 0 && length <= static_cast<double>(steps),
                "sequence_lens has {}, the input has {} steps", length, steps);
  }
};

double activated(const Activation& a, double x, double clip = std::numeric_limits<double>::infinity()) {
  x = x < -clip ? -clip : x > clip ? clip : x;
  apply(a, &x, 1);
  return x;
}

class ReferenceRecurrent : public ExternKernel {
public:
  explicit ReferenceRecurrent(const RecurrentProblem& p) : p_(p), layer_(p) {}
  std::string description() const override { return "reference " + to_string(Problem(p_)); }

  void run(const RunArgs& args) const override {
    const Call call(args, layer_);
    std::vector<Values> out(3);
    const auto states = static_cast<size_t>(call.directions * call.batch * call.hidden);
    out[0].resize(states * static_cast<size_t>(call.steps));
    out[1].resize(states);
    out[2].resize(states);
    tbb::parallel_for(int64_t{0}, call.directions * call.batch,
                      [&](int64_t i) { sequence(call, i / call.batch, i % call.batch, out); });
    for (int k = 0, at = 0; k < 3; ++k)
      if (layer_.outputs >> k & 1) from_dense(out[k], args.outputs[at++]);
  }

private:
  /// Where the state of a row begins: [directions, batch, hidden], layout 1: batch first.
  int64_t state_at(const Call& r, int64_t d, int64_t row) const {
    return (layer_.batch_first ? row * r.directions + d : d * r.batch + row) * r.hidden;
  }

  /// All steps of one row in one direction.
  void sequence(const Call& r, int64_t d, int64_t row, std::vector<Values>& out) const {
    const int64_t n = r.hidden, gates = layer_.gates, begin = state_at(r, d, row);
    const int64_t length = r.lengths.empty() ? r.steps : static_cast<int64_t>(r.lengths[row]);
    Values h(static_cast<size_t>(n), 0.0), c = h;
    for (int64_t u = 0; u < n; ++u) {
      if (!r.h.empty()) h[u] = r.h[begin + u];
      if (!r.c.empty()) c[u] = r.c[begin + u];
    }
    for (int64_t s = 0; s < length; ++s) {
      const int64_t t = layer_.reverse[d] ? length - 1 - s : s;
      const double* x =
          r.gates.data() +
          ((layer_.batch_first ? row * r.steps + t : t * r.batch + row) * r.directions + d) * gates * n;
      step(r, d, x, h, c);
      const int64_t y = (layer_.batch_first ? (row * r.steps + t) * r.directions + d
                                            : (t * r.directions + d) * r.batch + row) *
                        n;
      std::copy(h.begin(), h.end(), out[0].begin() + y);
    }
    std::copy(h.begin(), h.end(), out[1].begin() + begin);
    std::copy(c.begin(), c.end(), out[2].begin() + begin);
  }

  /// The state after one step; `x` are the gates of the input.
  void step(const Call& r, int64_t d, const double* x, Values& h, Values& c) const {
    const CellOptions& o = layer_.options[d];
    const int64_t n = r.hidden;
    /// The product of a state with the weights of one unit of a gate.
    auto product = [&](int64_t gate, int64_t u, const Values& state) {
      const double* w = r.weights.data() + ((d * layer_.gates + gate) * n + u) * n;
      double sum = 0;
      for (int64_t k = 0; k < n; ++k) sum += w[k] * state[k];
      return sum;
    };
    auto gate = [&](int64_t g, int64_t u) { return x[g * n + u] + product(g, u, h); };
    auto peephole = [&](int64_t which, int64_t u) {
      return r.peepholes.empty() ? 0.0 : r.peepholes[(d * 3 + which) * n + u];
    };
    Values next(h.size());
    if (layer_.kind == Kind::rnn) {
      for (int64_t u = 0; u < n; ++u) next[u] = activated(o.f, gate(0, u), o.clip);
    } else if (layer_.kind == Kind::lstm) {
      for (int64_t u = 0; u < n; ++u) {
        const double in = activated(o.f, gate(0, u) + peephole(0, u) * c[u], o.clip);
        const double forget =
            o.input_forget ? 1 - in : activated(o.f, gate(2, u) + peephole(2, u) * c[u], o.clip);
        c[u] = forget * c[u] + in * activated(o.g, gate(3, u), o.clip);
        next[u] = activated(o.f, gate(1, u) + peephole(1, u) * c[u], o.clip) * activated(o.h, c[u]);
      }
    } else {
      const bool linear = layer_.kind == Kind::gru_linear;
      Values reset(h.size()), kept(h.size());
      for (int64_t u = 0; u < n; ++u) {
        reset[u] = activated(o.f, gate(1, u), o.clip);
        kept[u] = reset[u] * h[u];
      }
      for (int64_t u = 0; u < n; ++u) {
        const double update = activated(o.f, gate(0, u), o.clip);
        const double bias = linear && !r.bias.empty() ? r.bias[d * n + u] : 0;
        const double state = linear ? reset[u] * (product(2, u, h) + bias) : product(2, u, kept);
        next[u] = (1 - update) * activated(o.g, x[2 * n + u] + state, o.clip) + update * h[u];
      }
    }
    h = std::move(next);
  }

  RecurrentProblem p_;
  Layer layer_;
};

} // namespace

std::string supports_reference_recurrent(const Problem&, std::span<const OperandInfo>,
                                         std::span<const OperandInfo>, const Target&) {
  return {};
}

std::unique_ptr<ExternKernel> make_reference_recurrent(const Problem& problem, std::span<const OperandInfo>,
                                                       std::span<const OperandInfo>) {
  return std::make_unique<ReferenceRecurrent>(std::get<RecurrentProblem>(problem));
}

} // namespace tbx::extern_kernels
