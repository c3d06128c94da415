// Control flow that can be decided while compiling: If of a known condition, Loop and Scan of known length.
#include <algorithm>
#include <optional>

#include "graph/names.h"
#include "lowering/complex.h"
#include "lowering/op_helpers.h"
#include "lowering/ops/families.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

/// Whether the only output of a branch comes from a node of this type.
bool ends_in(const Graph& branch, std::string_view op_type) {
  const int producer = branch.at(branch.outputs[0]).producer;
  if (producer < 0) return false;
  const Node& node = branch.nodes[static_cast<size_t>(producer)];
  return node.op_type == op_type && is_onnx_domain(node.domain);
}

bool is_captured(const Graph& branch) {
  return std::any_of(branch.captures.begin(), branch.captures.end(),
                     [&](const Graph::Capture& c) { return c.inner == branch.outputs[0]; });
}

/// Exporters write the squeeze of an axis of unknown size as an If: x squeezed where the size is 1, else x.
/// The rank of the result depends on that size, and what follows most often takes the lower one alone. So the
/// axis is taken for one of size 1. A run for which that is wrong gets code for the sizes of its inputs that
/// decide: first for the ones that are 1 and any others from 2 on, with which an axis computed from them is
/// taken for one of another size; where that is wrong, too, for the very sizes. Nothing where the If is
/// another one.
std::optional<bool> condition_of_squeeze(OpContext& ctx) {
  const std::optional<SymInts> known = ctx.known(0);
  if (!known || known->size() != 1) return std::nullopt;
  const SymInt condition = known->front();
  if (condition.is_constant() || ir::has_unbacked(condition)) return std::nullopt;
  int squeezed = -1, passed = -1;
  for (int taken : {0, 1}) {
    const auto branch = ctx.attr_graph(taken ? "then_branch" : "else_branch");
    if (!branch || branch->outputs.size() != 1) return std::nullopt;
    if (ends_in(*branch, "Squeeze")) squeezed = taken;
    if (is_captured(*branch) || ends_in(*branch, "Identity")) passed = taken;
  }
  if (squeezed < 0 || passed < 0) return std::nullopt;
  constexpr const char* what = "whether an If squeezes its value";
  if (!ctx.program.assume_broadcast) {
    const bool several = is_made_of_several(condition), assume = ctx.program.assume_exact_floats;
    if (!assume && !several) return std::nullopt;
    if (!assume || !several) ask_for_size(condition, fmt::format("{} must be known while compiling", what));
    std::swap(squeezed, passed);
  }
  ctx.program.add_check(condition - squeezed, true, what, true);
  return squeezed == 1;
}

Values lower_if(OpContext& ctx) {
  std::optional<bool> taken = condition_of_squeeze(ctx);
  if (!taken) {
    const std::vector<int64_t> condition = ctx.ints_or_run(0, "the condition of an If");
    TBX_MODEL(condition.size() == 1, "the condition has {} elements", condition.size());
    taken = condition[0] != 0;
  }
  const char* name = *taken ? "then_branch" : "else_branch";
  auto branch = ctx.attr_graph(name);
  TBX_MODEL(branch != nullptr, "attribute '{}' is missing", name);
  return ctx.lower_subgraph(branch, {});
}

// --- Loop with a number of iterations known while compiling, unrolled

// A body that is run takes a few microseconds per iteration more than an unrolled one; compiling a copy per
// iteration takes milliseconds.
constexpr int64_t kMaxUnrolled = 64;        ///< iterations
constexpr int64_t kMaxUnrolledNodes = 1000; ///< iterations times nodes of the body

/// The iteration's number or the condition, for input `i` of the body.
LoweredValue number_for(const Graph& body, size_t i, DType dtype, int64_t value) {
  return KnownTensor{dtype, dims_of_loop_number(body, i), {value}, 1};
}

bool decide(const LoweredValue& v) {
  if (v.constant && v.constant->numel() == 1) return element_as_int(*v.constant, 0) != 0;
  if (v.known && v.known->values.size() == 1 && v.known->values[0].is_constant())
    return !v.known->values[0].is(0);
  ask_for_run("the condition of a Loop is not known while compiling");
}

/// The sizes of output `output` of a body that does not run: those it declares, those of its inputs and of
/// the model's inputs where it is declared to have them, 0 where nobody knows. `inputs`: the sizes of what
/// the body would get.
SymInts sizes_of_none(OpContext& ctx, const Graph& body, size_t output,
                      const std::vector<std::optional<SymInts>>& inputs) {
  const ValueType& type = body.at(body.outputs[output]).type;
  SymInts sizes = type.shape ? *type.shape : SymInts{};
  auto resolved = [&](SymInt d) -> SymInt {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto& declared = body.inputs[i] < 0 ? std::nullopt : body.at(body.inputs[i]).type.shape;
      if (!declared || !inputs[i] || inputs[i]->size() != declared->size()) continue;
      auto found = std::find(declared->begin(), declared->end(), d);
      if (found != declared->end()) return inputs[i]->at(static_cast<size_t>(found - declared->begin()));
    }
    for (const ir::ProgramInput& in : ctx.program.inputs) {
      const SymInts& given = ctx.program.at(in.buffer).sizes;
      if (std::find(given.begin(), given.end(), d) != given.end()) return d;
    }
    return 0;
  };
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i].is_constant()) continue;
    const int64_t declared = declared_size(body, output, i, sizes.size());
    sizes[i] = declared >= 0 ? SymInt(declared) : resolved(sizes[i]);
  }
  return sizes;
}

std::optional<SymInts> sizes_if_tensor(const LoweredValue& v) {
  return v.is_tensor() ? std::optional(v.sizes()) : std::nullopt;
}

/// n values of one shape, stacked along a new axis: a scan output. `none`: the sizes of a value where there
/// is none.
LoweredValue stack(OpContext& ctx, const Values& parts, const ValueType& type, SymInts none, int64_t along) {
  if (parts.empty()) {
    SymInts sizes = std::move(none);
    int axis = ctx.axis(along, static_cast<int>(sizes.size()) + 1);
    sizes.insert(sizes.begin() + axis, 0);
    if (!is_complex(type.dtype)) return full(ctx, type.dtype, sizes, 0);
    LoweredValue part = full(ctx, part_type(type.dtype), sizes, 0);
    return make_complex(part, part);
  }
  Values columns;
  int64_t axis = 0;
  for (const LoweredValue& part : parts) {
    if (!part.is_tensor()) ask_for_run("a scan output is no numeric tensor");
    const int at[] = {ctx.axis(along, static_cast<int>(part.sizes().size()) + 1)};
    axis = at[0];
    columns.emplace_back(ir::unsqueeze(ctx.program, ctx.box(part), at));
  }
  return lower_as(ctx, "Concat", 13, std::move(columns), {{"axis", axis}}).at(0);
}

void check_unrolling(int64_t iterations, const Graph& body) {
  if (iterations > kMaxUnrolled || iterations * static_cast<int64_t>(body.nodes.size()) > kMaxUnrolledNodes)
    ask_for_run(fmt::format("a loop of {} iterations or more", iterations));
}

Values lower_loop(OpContext& ctx) {
  auto body = ctx.attr_graph("body");
  TBX_MODEL(body && body->inputs.size() >= 2 && !body->outputs.empty(), "attribute 'body' is no loop body");
  int64_t limit = INT64_MAX;
  if (ctx.has(0)) limit = ctx.int_or_run(0, "the trip count of a Loop");
  Values carried;
  size_t num_carried = body->inputs.size() - 2;
  TBX_MODEL(ctx.num_inputs() <= static_cast<int>(2 + num_carried),
            "more initial values than inputs of the body");
  for (int i = 2; i < ctx.num_inputs(); ++i) carried.push_back(ctx.value(i));
  TBX_MODEL(body->outputs.size() >= 1 + num_carried, "the body has too few outputs");
  std::vector<Values> scanned(body->outputs.size() - 1 - num_carried);
  bool go = !ctx.has(1) || decide(ctx.value(1));
  for (int64_t i = 0; go && i < limit; ++i) {
    check_unrolling(i + 1, *body);
    Values inputs = {number_for(*body, 0, DType::i64, i), number_for(*body, 1, DType::boolean, 1)};
    inputs.insert(inputs.end(), carried.begin(), carried.end());
    Values out = ctx.lower_subgraph(body, std::move(inputs));
    for (size_t k = 0; k < scanned.size(); ++k) scanned[k].push_back(out[1 + num_carried + k]);
    carried.assign(out.begin() + 1, out.begin() + 1 + num_carried);
    go = decide(out[0]);
  }
  std::vector<std::optional<SymInts>> inputs(2);
  for (const LoweredValue& v : carried) inputs.push_back(sizes_if_tensor(v));
  Values stacked;
  for (size_t k = 0; k < scanned.size(); ++k) {
    const size_t output = 1 + num_carried + k;
    stacked.push_back(stack(ctx, scanned[k], body->at(body->outputs[output]).type,
                            sizes_of_none(ctx, *body, output, inputs), 0));
  }
  carried.insert(carried.end(), stacked.begin(), stacked.end());
  return carried;
}

// --- Scan over a number of slices known while compiling, unrolled

/// The directions or axes of the scanned inputs (or outputs), zeros by default.
std::vector<int64_t> per_scan(OpContext& ctx, const char* name, size_t count) {
  std::vector<int64_t> values = ctx.attr_ints(name, std::vector<int64_t>(count, 0));
  TBX_MODEL(values.size() == count, "attribute '{}' has {} entries for {}", name, values.size(), count);
  return values;
}

Values lower_scan(OpContext& ctx) {
  auto body = ctx.attr_graph("body");
  int64_t scanned_inputs = ctx.required_int("num_scan_inputs");
  int64_t states = ctx.num_inputs() - scanned_inputs;
  TBX_MODEL(body && scanned_inputs > 0 && states >= 0 && static_cast<int64_t>(body->outputs.size()) >= states,
            "the body does not fit the inputs");
  auto axes = per_scan(ctx, "scan_input_axes", scanned_inputs);
  auto backwards = per_scan(ctx, "scan_input_directions", scanned_inputs);
  size_t scanned_outputs = body->outputs.size() - states;
  auto out_axes = per_scan(ctx, "scan_output_axes", scanned_outputs);
  auto out_backwards = per_scan(ctx, "scan_output_directions", scanned_outputs);

  Values state;
  for (int64_t i = 0; i < states; ++i) state.push_back(ctx.value(static_cast<int>(i)));
  std::optional<int64_t> steps;
  for (int64_t k = 0; k < scanned_inputs; ++k) {
    const TensorBox& x = ctx.in(static_cast<int>(states + k));
    int axis = ctx.axis(axes[k], x.rank());
    axes[k] = axis;
    auto n = x.sizes()[axis].as_constant();
    if (!n) ask_for_run("the length of a Scan is not known while compiling");
    TBX_MODEL(!steps || *steps == *n, "scanned inputs of {} and {} slices", *steps, *n);
    steps = n;
  }
  check_unrolling(*steps, *body);
  std::vector<Values> scanned(scanned_outputs);
  for (int64_t i = 0; i < *steps; ++i) {
    Values inputs = state;
    for (int64_t k = 0; k < scanned_inputs; ++k) {
      const int axis[] = {static_cast<int>(axes[k])};
      int64_t at = backwards[k] ? *steps - 1 - i : i;
      TensorBox part = ir::slice(ctx.program, ctx.in(static_cast<int>(states + k)), axis[0], at, 1, 1);
      inputs.emplace_back(ir::squeeze(ctx.program, part, axis));
    }
    Values out = ctx.lower_subgraph(body, std::move(inputs));
    state.assign(out.begin(), out.begin() + states);
    for (size_t k = 0; k < scanned_outputs; ++k)
      scanned[k].insert(out_backwards[k] ? scanned[k].begin() : scanned[k].end(), out[states + k]);
  }
  std::vector<std::optional<SymInts>> inputs;
  for (const LoweredValue& v : state) inputs.push_back(sizes_if_tensor(v));
  for (int64_t k = 0; k < scanned_inputs; ++k) {
    inputs.emplace_back(ctx.sizes(static_cast<int>(states + k)));
    inputs.back()->erase(inputs.back()->begin() + axes[k]);
  }
  Values stacked;
  for (size_t k = 0; k < scanned_outputs; ++k)
    stacked.push_back(stack(ctx, scanned[k], body->at(body->outputs[states + k]).type,
                            sizes_of_none(ctx, *body, states + k, inputs), out_axes[k]));
  state.insert(state.end(), stacked.begin(), stacked.end());
  return state;
}

} // namespace

void register_control(Registry& r) {
  r.add("If", since(1), lower_if);
  r.add("Loop", since(1), lower_loop);
  r.add("Scan", since(9), lower_scan);
  r.mark(Trait::any_values, {"If", "Loop", "Scan"});
  r.mark(Trait::runs_bodies, {"If", "Loop", "Scan"});
  r.need("Loop", 0, some());
}

} // namespace tbx::lowering
