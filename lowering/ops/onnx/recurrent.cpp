// LSTM, GRU, RNN: one matrix product with the input for all steps and directions, then a kernel that runs the
// steps (extern_kernels/recurrent).
#include <algorithm>
#include <cctype>
#include <limits>

#include "lowering/ops/families.h"
#include "lowering/ops/host_call.h"
#include "lowering/ops/products.h"

namespace tbx::lowering {
namespace {

using extern_kernels::GateActivation;
using extern_kernels::RecurrentProblem;

/// An activation function, with the parameters that it has when the node does not say more.
struct KnownActivation {
  const char* name;
  bool has_alpha, has_beta;
  GateActivation standard;
};

constexpr KnownActivation kActivations[] = {
    {"affine", true, true, {GateActivation::affine, 1, 0}},
    {"relu", false, false, {GateActivation::relu, 0, 0}},
    {"leakyrelu", true, false, {GateActivation::leaky_relu, 0.01, 0}},
    {"thresholdedrelu", true, false, {GateActivation::thresholded_relu, 1, 0}},
    {"tanh", false, false, {GateActivation::tanh, 0, 0}},
    {"scaledtanh", true, true, {GateActivation::scaled_tanh, 1, 1}},
    {"sigmoid", false, false, {GateActivation::sigmoid, 0, 0}},
    {"hardsigmoid", true, true, {GateActivation::hard_sigmoid, 0.2, 0.5}},
    {"elu", true, false, {GateActivation::elu, 1, 0}},
    {"softsign", false, false, {GateActivation::softsign, 0, 0}},
    {"softplus", false, false, {GateActivation::softplus, 0, 0}},
};

/// The activations of all directions with their parameters; alpha and beta are handed out in order to the
/// functions that have them.
std::vector<GateActivation> activations_of(OpContext& ctx, const RecurrentProblem& problem) {
  static const std::vector<std::string> all_usual[] = {
      {"tanh"}, {"sigmoid", "tanh"}, {"sigmoid", "tanh", "tanh"}};
  const auto& usual = all_usual[problem.activations_of_direction() - 1];
  std::vector<std::string> names = ctx.attr_strings("activations");
  const size_t count = usual.size() * static_cast<size_t>(problem.directions());
  if (names.empty())
    while (names.size() < count) names.insert(names.end(), usual.begin(), usual.end());
  // ONNX's default of RNN names two. ONNX Runtime writes them into the models that it saves, for one
  // direction, too.
  if (problem.cell == RecurrentProblem::rnn && names.size() == 2) names.resize(count);
  TBX_MODEL(names.size() == count, "{} activations, expected {}", names.size(), count);
  std::vector<float> alphas = ctx.attr_floats("activation_alpha"), betas = ctx.attr_floats("activation_beta");
  size_t next_alpha = 0, next_beta = 0;
  std::vector<GateActivation> all;
  for (std::string& name : names) {
    for (char& ch : name) ch = static_cast<char>(std::tolower(static_cast<unsigned char>(ch)));
    const auto* known = std::find_if(std::begin(kActivations), std::end(kActivations),
                                     [&](const KnownActivation& a) { return name == a.name; });
    TBX_MODEL(known != std::end(kActivations), "unknown activation '{}'", name);
    GateActivation& a = all.emplace_back(known->standard);
    if (known->has_alpha && next_alpha < alphas.size()) a.alpha = alphas[next_alpha++];
    if (known->has_beta && next_beta < betas.size()) a.beta = betas[next_beta++];
  }
  return all;
}

/// What the attributes say, but for the outputs.
RecurrentProblem problem_of(OpContext& ctx) {
  const std::string& op = ctx.node.op_type;
  RecurrentProblem p;
  p.cell = op == "LSTM"                                  ? RecurrentProblem::lstm
           : op == "RNN"                                 ? RecurrentProblem::rnn
           : ctx.attr_int("linear_before_reset", 0) != 0 ? RecurrentProblem::gru_linear
                                                         : RecurrentProblem::gru;
  const int64_t layout = ctx.attr_int("layout", 0);
  TBX_MODEL(layout == 0 || layout == 1, "layout is {}", layout);
  p.batch_first = layout == 1;
  const std::string direction = ctx.attr_string("direction", "forward");
  TBX_MODEL(direction == "forward" || direction == "reverse" || direction == "bidirectional",
            "unknown direction '{}'", direction);
  p.direction = direction == "bidirectional" ? RecurrentProblem::bidirectional
                : direction == "reverse"     ? RecurrentProblem::reverse
                                             : RecurrentProblem::forward;
  p.input_forget = op == "LSTM" && ctx.attr_int("input_forget", 0) != 0;
  p.activations = activations_of(ctx, p);
  if (ctx.has_attr("clip")) p.clip = ctx.attr_float("clip", 0);
  TBX_MODEL(p.clip >= 0, "clip is {}", p.clip);
  return p;
}

/// Input `i` in the type the steps compute in; constants are converted here.
TensorBox in_type(OpContext& ctx, int i, DType type) {
  auto constant = ctx.constant(i);
  if (!constant || constant->dtype == type) return convert(ctx, ctx.in(i), type);
  Tensor t = Tensor::make(type, constant->dims);
  for (int64_t k = 0; k < t.numel(); ++k) {
    if (type == DType::f64)
      t.as_mutable<double>()[k] = element_as_double(*constant, k);
    else
      t.as_mutable<float>()[k] = static_cast<float>(element_as_double(*constant, k));
  }
  return ctx.box(LoweredValue(std::make_shared<const Tensor>(std::move(t))));
}

/// ModelError when an input is there, of fixed sizes, and of another shape.
void check_sizes(OpContext& ctx, int i, const char* name, const SymInts& want) {
  if (!ctx.has(i)) return;
  SymInts have = ctx.sizes(i);
  TBX_MODEL(have.size() == want.size(), "{} has rank {}, expected {}", name, have.size(), want.size());
  for (size_t k = 0; k < want.size(); ++k) {
    TBX_MODEL(!have[k].is_constant() || !want[k].is_constant() || have[k] == want[k],
              "{} has size {} along dimension {}, expected {}", name, have[k].constant(), k,
              want[k].constant());
    ctx.program.add_check(have[k] - want[k], true,
                          fmt::format("{}: {} has a wrong size", ctx.node.op_type, name));
  }
}

/// Biases that are plain sums, per direction and gate row: those of the input, and of the recurrence for the
/// first `both` gates' rows.
TensorBox summed_bias(OpContext& ctx, DType type, SymInt rows, SymInt both) {
  const TensorBox b = in_type(ctx, 3, type);
  SymInts sizes{b.sizes()[0], rows};
  return generate(ctx, type, sizes, [&](std::span<const SymInt> at) {
    const SymInt own[] = {at[0], at[1]}, recurrent[] = {at[0], at[1] + rows};
    Expr sum = ir::add(b.load(ctx.program, own), b.load(ctx.program, recurrent));
    if (ir::provably_equal(rows, both)) return sum;
    Expr summed = ir::binary(Op::less, ctx.c.index(at[1]), ctx.c.index(both));
    return ir::where(summed, sum, b.load(ctx.program, own));
  });
}

/// Weights, which are narrow beside an input of float32 where `precision` says so: then their kernels read
/// them as they are.
TensorBox weights(OpContext& ctx, int i, DType type) {
  const auto constant = ctx.constant(i);
  const bool narrow = ctx.in(0).dtype() == DType::f32 && constant && is_half(constant->dtype);
  return narrow ? ctx.in(i) : in_type(ctx, i, type);
}

/// The attribute, or what the weights say. It is a constant where one of them is, so that W, where it is a
/// constant, keeps known sizes beside an R of which only a run knows them.
SymInt hidden_size(OpContext& ctx, int gates) {
  const SymInt of_r = ctx.sizes(2)[2], rows = ctx.sizes(1)[1];
  if (ctx.has_attr("hidden_size")) {
    const int64_t given = ctx.attr_int("hidden_size", 0);
    TBX_MODEL(given >= 0, "hidden_size is {}", given);
    TBX_MODEL(!of_r.is_constant() || given == of_r.constant(), "hidden_size is {}, R is for {}", given,
              of_r.constant());
    return given;
  }
  if (of_r.is_constant() || !rows.is_constant()) return of_r;
  TBX_MODEL(rows.constant() % gates == 0, "W has {} rows for {} gates", rows.constant(), gates);
  return rows.constant() / gates;
}

std::vector<LoweredValue> recurrent(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  TBX_MODEL(x.rank() == 3 && ctx.rank(1) == 3 && ctx.rank(2) == 3,
            "X, W and R have ranks {}, {} and {}, expected 3", x.rank(), ctx.rank(1), ctx.rank(2));
  RecurrentProblem problem = problem_of(ctx);
  const int gates = problem.gates(), directions = problem.directions();
  const bool layout = problem.batch_first, linear = problem.cell == RecurrentProblem::gru_linear,
             lstm = problem.cell == RecurrentProblem::lstm;
  SymInt batch = x.sizes()[layout ? 0 : 1], steps = x.sizes()[layout ? 1 : 0];
  const SymInt hidden = hidden_size(ctx, gates);
  SymInt rows = hidden * SymInt(gates), all_rows = rows * SymInt(directions);
  SymInts state =
      layout ? SymInts{batch, SymInt(directions), hidden} : SymInts{SymInt(directions), batch, hidden};
  check_sizes(ctx, 1, "W", {directions, rows, x.sizes()[2]});
  check_sizes(ctx, 2, "R", {directions, rows, hidden});
  check_sizes(ctx, 3, "B", {directions, rows * SymInt(2)});
  check_sizes(ctx, 4, "sequence_lens", {batch});
  check_sizes(ctx, 5, "initial_h", state);
  check_sizes(ctx, 6, "initial_c", state);
  check_sizes(ctx, 7, "P", {directions, hidden * SymInt(3)});

  const DType type = compute_type(x.dtype());
  TBX_MODEL(type == DType::f32 || type == DType::f64, "X is of type {}", name_of(x.dtype()));
  TensorBox in = ir::reshape(ctx.program, convert(ctx, x, type), {steps * batch, x.sizes()[2]});
  TensorBox w = ir::reshape(ctx.program, weights(ctx, 1, type), {all_rows, ctx.sizes(1)[2]});
  w = ir::permute(ctx.program, w, std::vector<int>{1, 0});
  std::optional<TensorBox> bias, reset_bias;
  if (ctx.has(3)) {
    bias = ir::reshape(ctx.program, summed_bias(ctx, type, rows, linear ? hidden * SymInt(2) : rows),
                       {all_rows});
    if (linear)
      reset_bias = ir::slice(ctx.program, in_type(ctx, 3, type), 1, rows + hidden * SymInt(2), 1, hidden);
  }
  TensorBox product = matrix_product(ctx, in, w, bias ? &*bias : nullptr, 1, 1, type);
  SymInts gate_sizes{x.sizes()[0], x.sizes()[1], all_rows};
  auto operand = [&](int i) { return ctx.has(i) ? std::optional(ctx.in(i)) : std::nullopt; };
  std::vector<std::optional<TensorBox>> inputs{ir::reshape(ctx.program, product, gate_sizes),
                                               weights(ctx, 2, type),
                                               operand(4),
                                               operand(5),
                                               lstm ? operand(6) : std::nullopt,
                                               lstm ? operand(7) : std::nullopt,
                                               reset_bias};

  SymInts y = layout ? SymInts{batch, steps, SymInt(directions), hidden}
                     : SymInts{steps, SymInt(directions), batch, hidden};
  std::vector<HostOutput> outputs;
  bool* gives[] = {&problem.gives_y, &problem.gives_h, &problem.gives_c};
  for (int k = 0; k < (lstm ? 3 : 2); ++k)
    if ((*gives[k] = ctx.wants(k))) outputs.push_back({x.dtype(), k == 0 ? y : state});
  const bool given[] = {problem.gives_y, problem.gives_h, problem.gives_c};
  std::vector<LoweredValue> made = typed_call(ctx, inputs, outputs, std::move(problem)), values(3);
  for (size_t k = 0, next = 0; k < 3; ++k)
    if (given[k]) values[k] = made[next++];
  return values;
}

} // namespace

void register_recurrent(Registry& r) {
  for (const char* op : {"LSTM", "GRU", "RNN"}) r.add(op, since(1), recurrent);
  r.mark(Trait::half_product, {"LSTM", "GRU", "RNN"});
  r.mark(Trait::has_gates, {"LSTM", "GRU", "RNN"});
  for (const char* op : {"RNN", "GRU", "LSTM"}) r.need(op, 4, count_along(0, 0));
}

} // namespace tbx::lowering
