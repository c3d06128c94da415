// Lowering of a graph: walks the nodes in order, calls each operator's lowering, applies the realize policy
// and puts the outputs into buffers of their own.
#include "lowering/lower.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <unordered_set>

#include "base/error.h"
#include "base/shown.h"
#include "base/stop.h"
#include "extern_kernels/catalogue.h"
#include "graph/function_body.h"
#include "graph/names.h"
#include "ir/check_bounds.h"
#include "lowering/ask.h"
#include "lowering/begun.h"
#include "lowering/complex.h"
#include "lowering/constant_node.h"
#include "lowering/op_registry.h"
#include "lowering/ops/custom.h"
#include "lowering/ops/products.h"
#include "lowering/realize_policy.h"
#include "lowering/symbolic_values.h"

namespace tbx::lowering {
namespace {

constexpr int64_t kMaxFolded = 4096; ///< elements of a constant that is evaluated on the way
constexpr int kMaxNesting = 64;      ///< function bodies and branches inside each other
/// Nodes that a value is said to come from. A chain that folds into one expression has any number of them.
constexpr size_t kMaxOrigins = 256;

/// Consumers of each value that read its elements. The outputs of a body are counted where they arrive.
std::vector<int> count_users(const Graph& g, const std::vector<char>& live, bool with_outputs) {
  std::vector<int> users(g.values.size(), 0);
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const Node& node = g.nodes[i];
    if (!live[i] || has(Trait::reads_shape, node)) continue;
    for (ValueId v : node.inputs)
      if (v >= 0) ++users[v];
    for_each_capture(node, [&](const Graph::Capture& capture) { ++users[capture.outer]; });
  }
  if (with_outputs)
    for (ValueId v : g.outputs) ++users[v];
  return users;
}

} // namespace

std::string element_symbol(const std::string& input, size_t element) {
  return fmt::format("{}[{}]", input, element);
}

namespace {

class Lowerer {
public:
  Lowerer(const Graph& graph, const LowerOptions& options) : options_(options) {
    program_.context = graph.context;
    program_.origin_names = graph.origins;
    program_.assume_broadcast = options.assume_broadcast;
    program_.target = options.target;
    program_.assume_exact_floats = options.assume_exact_floats;
  }

  ir::Program run(const Graph& graph);
  const Begun& begun() const { return begun_; }

private:
  using Values = std::vector<LoweredValue>;

  Values lower_graph(const Graph& g, Values inputs, const Values* outer);
  void lower_node(const Graph& g, const Node& node, Values& env, const std::vector<int>& users);
  Values lower_op(const Graph& g, const Node& node, const Values& env);
  Values lower_op(const Graph& g, const Node& node, const Values& env, const Values& inputs);
  std::optional<Values> fold(const Node& node, const Values& inputs);
  static bool has_dynamic_sizes(const Node& node, const Values& env);
  static std::vector<DType> types_of(const Node& node, const Values& env);
  void record_origins(const Values& inputs, const Values& outputs, size_t first_operation);
  void require_declared_type(const Node& node, const Value& declared, const LoweredValue& made);
  void keep_narrow(DType stored, const Values& inputs, const ir::TensorBox& box, size_t first_operation);
  void apply_policy(ValueId id, const Values& inputs, const ir::TensorBox& box, int users);
  void realize_residuals(const Node& node, const Values& env, const std::vector<int>& users);
  LoweredValue make_input(const Graph& g, ValueId id);
  ir::BufferId memory_of_last(ir::BufferId id, const std::vector<int>& stored_in) const;
  void make_output(const Graph& g, ValueId id, const LoweredValue& value, const std::vector<int>& stored_in,
                   std::set<ir::BufferId>& taken);

  const LowerOptions& options_;
  ir::Program program_;
  BoxPool pool_;
  Begun begun_;
  std::unordered_set<ValueId> is_output_; ///< of the outermost graph
  int depth_ = 0;
  int origin_ = -1;
};

/// Restores a counter or a current value on every way out of a scope.
template <class T> class Saved {
public:
  explicit Saved(T& place) : place_(place), old_(place) {}
  ~Saved() { place_ = std::move(old_); }
  Saved(const Saved&) = delete;
  Saved& operator=(const Saved&) = delete;

private:
  T& place_;
  T old_;
};

/// A tensor that no machine can hold is refused where it is asked for: what follows computes with its
/// strides.
void check_size(const LoweredValue& value, size_t output) {
  constexpr int64_t kMaxBytes = int64_t{1} << 47; // the address space of a process
  int64_t bytes = std::max<int64_t>(1, size_of(value.dtype()));
  const ir::SymInts sizes = value.sizes();
  ir::product(sizes); // throws when sizes that a run decides come with factors beyond 64 bits
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (!sizes[d].is_constant()) continue;
    const int64_t n = sizes[d].constant();
    TBX_MODEL(n >= 0, "output {} would have the shape {}: dimension {} is negative", output,
              ir::to_string(sizes), d);
    TBX_MODEL(!__builtin_mul_overflow(bytes, std::max<int64_t>(n, 1), &bytes) && bytes <= kMaxBytes,
              "output {} would have the shape {}: no machine holds that", output, ir::to_string(sizes));
  }
}

/// An input of the node has a size, or is made of sizes, that a run's input shapes decide.
bool Lowerer::has_dynamic_sizes(const Node& node, const Values& env) {
  auto dynamic = [](const ir::SymInts& values) {
    return std::any_of(values.begin(), values.end(),
                       [](ir::SymInt v) { return !v.is_constant() && !ir::has_unbacked(v); });
  };
  return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) {
    if (v < 0 || !env[v].is_tensor()) return false;
    return dynamic(env[v].sizes()) || (env[v].known && dynamic(env[v].known->values));
  });
}

/// Of its inputs, as far as they are tensors.
std::vector<DType> Lowerer::types_of(const Node& node, const Values& env) {
  std::vector<DType> types;
  for (ValueId v : node.inputs)
    types.push_back(v >= 0 && env[v].is_tensor() ? env[v].dtype() : DType::undefined);
  return types;
}

Lowerer::Values Lowerer::lower_graph(const Graph& g, Values inputs, const Values* outer) {
  Saved<int> depth(depth_);
  TBX_MODEL(++depth_ <= kMaxNesting, "bodies are nested more than {} deep", kMaxNesting);
  TBX_MODEL(inputs.size() <= g.inputs.size(), "{} arguments for a body of {} inputs", inputs.size(),
            g.inputs.size());
  Values env(g.values.size());
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    if (g.inputs[i] < 0) continue; // a function's input that the call leaves out
    if (i < inputs.size())
      env[g.inputs[i]] = std::move(inputs[i]);
    else
      env[g.inputs[i]].is_none = true;
  }
  if (outer)
    for (const Graph::Capture& capture : g.captures) env[capture.inner] = (*outer)[capture.outer];
  for (size_t v = 0; v < g.values.size(); ++v)
    if (const auto& t = g.values[v].constant)
      env[v] = is_complex(t->dtype) ? complex_constant(*t) : LoweredValue(t);

  std::vector<char> live = live_nodes(g);
  std::vector<int> users = count_users(g, live, outer == nullptr);
  for (size_t i = 0; i < g.nodes.size(); ++i)
    if (live[i]) lower_node(g, g.nodes[i], env, users);
  Values outputs;
  for (ValueId v : g.outputs) outputs.push_back(v < 0 ? LoweredValue() : env[v]);
  return outputs;
}

/// Of operators that ONNX knows no types of, the importer has to believe what the model declares.
void Lowerer::require_declared_type(const Node& node, const Value& declared, const LoweredValue& made) {
  if (!node.domain.starts_with("com.microsoft") || declared.type.kind != ValueType::tensor ||
      !made.is_tensor())
    return;
  const DType type = declared.type.dtype;
  if (type == DType::undefined || is_complex(type) || type == made.dtype()) return;
  Error e(ErrorKind::model, fmt::format("output {} is declared as {}, but it is {}", shown(declared.name),
                                        name_of(type), name_of(made.dtype())));
  e.set_where(program_.where);
  throw e;
}

void Lowerer::lower_node(const Graph& g, const Node& node, Values& env, const std::vector<int>& users) {
  check_stop();
  Saved<int> origin(origin_);
  if (node.origin >= 0) origin_ = node.origin;
  Saved<int> index_origin(program_.context->origin);
  program_.context->origin = origin_;
  size_t first_operation = program_.operations.size();
  Saved<std::string> where(program_.where);
  program_.where = describe(g, node) + (program_.where.empty() ? "" : ", in " + program_.where);
  realize_residuals(node, env, users);
  const size_t before = begun_.push(g, node, has_dynamic_sizes(node, env), types_of(node, env));
  Values outputs = lower_op(g, node, env);
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].is_tensor()) check_size(outputs[i], i);
  begun_.end(before);
  Values inputs;
  for (ValueId v : node.inputs)
    if (v >= 0) inputs.push_back(env[v]);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    ValueId v = node.outputs[i];
    if (v < 0 || g.at(v).constant) continue;
    if (i >= outputs.size()) {
      Error e(ErrorKind::model,
              fmt::format("the node has an output {}, the operator gives {}", i, outputs.size()));
      e.set_where(program_.where);
      throw e;
    }
    require_declared_type(node, g.at(v), outputs[i]);
    const ir::TensorBox& box = outputs[i].tensor;
    if (box.defined() && box.storage()->name.empty()) box.storage()->name = g.at(v).name;
    env[v] = outputs[i];
    if (options_.constant_found && depth_ == 1)
      if (auto constant = constant_of(env[v])) options_.constant_found(v, constant);
  }
  record_origins(inputs, outputs, first_operation);
  for (size_t i = 0; i < node.outputs.size() && i < outputs.size(); ++i)
    if (node.outputs[i] >= 0 && outputs[i].tensor.defined())
      keep_narrow(g.at(node.outputs[i]).stored, inputs, outputs[i].tensor, first_operation);
  for (size_t i = 0; i < node.outputs.size() && i < outputs.size(); ++i)
    if (node.outputs[i] >= 0 && outputs[i].tensor.defined())
      apply_policy(node.outputs[i], inputs, outputs[i].tensor, users[node.outputs[i]]);
}

Lowerer::Values Lowerer::lower_op(const Graph& g, const Node& node, const Values& env) {
  Values inputs;
  for (ValueId v : node.inputs) {
    inputs.emplace_back();
    if (v >= 0)
      inputs.back() = env[v];
    else
      inputs.back().is_none = true;
  }
  return lower_op(g, node, env, inputs);
}

Lowerer::Values Lowerer::lower_op(const Graph& g, const Node& node, const Values& env, const Values& inputs) {
  OpContext ctx(program_, g, node, inputs, pool_, [&](std::shared_ptr<const Graph> body, Values arguments) {
    const Graph& graph = *body;
    begun_.set_body(std::move(body));
    return lower_graph(graph, std::move(arguments), &env);
  });
  if (node.custom) return lower_custom(ctx);
  if (is_complex_node(node, inputs))
    return lower_complex(
        ctx, [&](const Node& real, const Values& parts) { return lower_op(g, real, env, parts); });
  if (auto known = known_results(ctx)) return {known->begin(), known->end()};
  if (auto folded = fold(node, inputs)) return std::move(*folded);
  if (const OpEntry* entry = Registry::instance().find(node.domain, node.op_type, node.opset))
    return entry->lower(ctx);
  if (options_.allow_expansion) {
    if (auto body = expand_function(g, node))
      return ctx.lower_subgraph(std::make_shared<const Graph>(std::move(*body)), inputs);
    bool dynamic = false;
    for (const LoweredValue& v : inputs)
      if (v.is_tensor())
        for (ir::SymInt s : v.sizes()) dynamic |= !s.is_constant();
    if (dynamic && has_function_body(node)) ask_for_sizes("the operator's body depends on its shapes");
  }
  if (has_function_body(node) && has_dynamic_sizes(node, env))
    ask_for_sizes(fmt::format("the body that ONNX defines for {} depends on sizes", node.op_type));
  ask_for_run(fmt::format("operator {}{} has no lowering for opset {}",
                          node.domain.empty() ? "" : node.domain + ".", node.op_type, node.opset),
              is_onnx_domain(node.domain)
                  ? "`tbx ops` lists the supported operators"
                  : "`tbx ops` lists the supported operators; a library that has this one is named "
                    "with operator_libraries (docs/custom_operators.md)");
}

/// The results of a node of small constants; nullopt where it has to be lowered (which also reports its
/// errors).
std::optional<Lowerer::Values> Lowerer::fold(const Node& node, const Values& inputs) {
  if (!options_.fold_constants || inputs.empty()) return std::nullopt;
  std::vector<std::shared_ptr<const Tensor>> constants;
  for (const LoweredValue& v : inputs) {
    constants.push_back(v.is_none ? nullptr : constant_of(v));
    if (!v.is_none && (!constants.back() || constants.back()->numel() > kMaxFolded)) return std::nullopt;
  }
  try {
    auto results = evaluate_node(node, constants, kMaxFolded);
    if (!results) return std::nullopt;
    Values out;
    for (Tensor& t : *results) out.emplace_back(std::make_shared<const Tensor>(std::move(t)));
    return out;
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::internal) throw;
    return std::nullopt;
  }
}

/// The buffers that a loop nest reads.
std::set<ir::BufferId> reads_of(const ir::Loops& loops) {
  std::set<ir::BufferId> reads;
  ir::visit(loops.body, [&](ir::Expr n) {
    if (n->op == ir::Op::load) reads.insert(n->buffer);
  });
  return reads;
}

/// Adds numbers to a sorted list while there is room for them.
void add_origins(std::vector<int>& to, const std::vector<int>& more) {
  if (more.empty() || to.size() >= kMaxOrigins) return;
  std::vector<int> fresh, all;
  std::set_difference(more.begin(), more.end(), to.begin(), to.end(), std::back_inserter(fresh));
  // The latest: they are nearest to what is computed.
  if (const size_t room = kMaxOrigins - to.size(); fresh.size() > room)
    fresh.erase(fresh.begin(), fresh.end() - static_cast<std::ptrdiff_t>(room));
  std::merge(to.begin(), to.end(), fresh.begin(), fresh.end(), std::back_inserter(all));
  to = std::move(all);
}

/// A value comes from its node and from the nodes whose loop nests were inlined into it: those of which it
/// reads all that they read.
void Lowerer::record_origins(const Values& inputs, const Values& outputs, size_t first_operation) {
  std::vector<ir::StorageBox*> inlined;
  for (const LoweredValue& v : inputs)
    if (v.tensor.defined() && !v.tensor.storage()->is_realized()) inlined.push_back(v.tensor.storage().get());
  const std::vector<int> own(origin_ >= 0 ? 1 : 0, origin_);
  std::vector<int> all = own;
  for (const ir::StorageBox* x : inlined) add_origins(all, x->origins);
  for (size_t i = first_operation; i < program_.operations.size(); ++i)
    if (program_.operations[i].origins.empty()) program_.operations[i].origins = all;
  for (const LoweredValue& v : outputs) {
    if (!v.tensor.defined() || !v.tensor.storage()->origins.empty()) continue;
    ir::StorageBox& storage = *v.tensor.storage();
    std::vector<int> origins = own;
    std::set<ir::BufferId> reads;
    if (!storage.is_realized()) reads = reads_of(storage.loops());
    for (const ir::StorageBox* x : inlined) {
      std::set<ir::BufferId> theirs = reads_of(x->loops());
      if (storage.is_realized() || std::includes(reads.begin(), reads.end(), theirs.begin(), theirs.end()))
        add_origins(origins, x->origins);
    }
    storage.origins = std::move(origins);
  }
}

/// Memory is to hold the result of a node as `stored`. What a view shows is stored as its input is.
void Lowerer::keep_narrow(DType stored, const Values& inputs, const ir::TensorBox& box,
                          size_t first_operation) {
  if (stored == DType::undefined || box.dtype() != DType::f32) return;
  ir::StorageBox& storage = *box.storage();
  if (std::any_of(inputs.begin(), inputs.end(), [&](const LoweredValue& v) {
        return v.tensor.defined() && v.tensor.storage() == box.storage();
      }))
    return;
  storage.stored = stored;
  if (!storage.is_realized()) return;
  const ir::BufferId id = storage.buffer();
  auto belongs = [&](ir::BufferId part) { return part == id || program_.at(part).slice_of == id; };
  // Only what this node wrote, and by what stores any float: loop nests and products.
  std::vector<ir::BufferId> written;
  for (size_t i = first_operation; i < program_.operations.size(); ++i) {
    const auto& what = program_.operations[i].what;
    if (const auto* compute = std::get_if<ir::Compute>(&what)) written.push_back(compute->output);
    const auto* call = std::get_if<ir::ExternCall>(&what);
    // A product of float32 operands gives float32.
    if (call && extern_kernels::is_product(call->problem) &&
        program_.at(call->inputs[0].buffer).dtype == stored &&
        (program_.target.cuda || !is_slow_as(program_, *call, stored)))
      written.insert(written.end(), call->outputs.begin(), call->outputs.end());
    if (call && std::holds_alternative<extern_kernels::AttentionProblem>(call->problem)) // stores any float
      written.insert(written.end(), call->outputs.begin(), call->outputs.end());
  }
  std::erase_if(written, [&](ir::BufferId part) { return !belongs(part); });
  if (written.empty() || program_.at(id).overwrites >= 0 || program_.at(id).slice_of >= 0) return;
  for (ir::BufferId part : written) program_.at(part).dtype = stored;
  program_.at(id).dtype = stored;
}

void Lowerer::apply_policy(ValueId id, const Values& inputs, const ir::TensorBox& box, int users) {
  // A view passes its input's elements on: it is no user of them itself.
  for (const LoweredValue& v : inputs)
    if (v.tensor.defined() && v.tensor.storage() == box.storage()) {
      --box.storage()->users;
      realize_if_in_parts(program_, box);
      break;
    }
  const bool is_output = depth_ == 1 && is_output_.contains(id);
  if (is_output && users > 1 && box.is_identity_view())
    box.storage()->realize(program_, "graph output with other users");
  realize_if_shared(program_, box, users);
}

void Lowerer::realize_residuals(const Node& node, const Values& env, const std::vector<int>& users) {
  if (!node.domain.empty() || node.op_type != "Add" || node.inputs.size() != 2) return;
  for (int side : {0, 1}) {
    const ValueId x = node.inputs[side], product = node.inputs[1 - side];
    if (env[x].tensor.defined() && env[product].tensor.defined())
      realize_residual(program_, env[x].tensor, env[product].tensor, users[x]);
  }
}

LoweredValue Lowerer::make_input(const Graph& g, ValueId id) {
  const Value& value = g.at(id);
  if (value.type.kind != ValueType::tensor || value.type.dtype == DType::string)
    ask_for_run(fmt::format("input '{}' is not a numeric tensor", value.name));
  if (!value.type.shape)
    ask_for_run(fmt::format("input '{}' has no known rank", value.name), "give its shape when importing");
  ir::SymInts sizes = *value.type.shape;
  const bool complex = is_complex(value.type.dtype);
  if (complex) sizes.emplace_back(2); // real and imaginary part
  ir::BufferId buffer =
      program_.new_buffer(value.name, complex ? part_type(value.type.dtype) : value.type.dtype, sizes);
  program_.at(buffer).kind = ir::BufferKind::input;
  program_.inputs.push_back({value.name, buffer});
  auto known = options_.known_inputs.find(value.name);
  if (known != options_.known_inputs.end())
    return complex ? complex_constant(*known->second) : LoweredValue(known->second);
  auto few = options_.element_inputs.find(value.name);
  if (few != options_.element_inputs.end()) {
    KnownTensor k{value.type.dtype, {}, {}, 1};
    for (ir::SymInt d : *value.type.shape) k.dims.push_back(d.constant());
    for (size_t i = 0; i < few->second.size(); ++i)
      k.values.push_back(few->second[i]
                             ? ir::SymInt(*few->second[i])
                             : program_.context->symbol(element_symbol(value.name, i), kMinElement));
    return LoweredValue(std::move(k));
  }
  ir::TensorBox box = ir::make_buffer_box(program_, buffer);
  return complex ? from_pairs(program_, box) : LoweredValue(box);
}

/// The buffer in whose memory the scatters that end in `id` stored, which holds the value of `id` at the end.
/// `stored_in` counts the buffers that overwrite each.
ir::BufferId Lowerer::memory_of_last(ir::BufferId id, const std::vector<int>& stored_in) const {
  for (ir::BufferId under = program_.at(id).overwrites; under >= 0; under = program_.at(id).overwrites) {
    if (stored_in[under] != 1) break;
    id = under;
  }
  return id;
}

void Lowerer::make_output(const Graph& g, ValueId id, const LoweredValue& value,
                          const std::vector<int>& stored_in, std::set<ir::BufferId>& taken) {
  const std::string& name = g.at(id).name;
  if (!value.is_tensor()) ask_for_run(fmt::format("output '{}' is not a tensor", name));
  if (value.parts && !is_complex(g.at(id).type.dtype))
    ask_for_run(fmt::format("output '{}' is complex, which its type does not say", name));
  if (!value.parts && is_complex(g.at(id).type.dtype)) {
    Error e(ErrorKind::model, fmt::format("output '{}' is declared as {}, but it is {}", name,
                                          name_of(g.at(id).type.dtype), name_of(value.dtype())));
    if (g.at(id).producer >= 0) e.set_where(describe(g, g.nodes[g.at(id).producer]));
    throw e;
  }
  const ir::TensorBox box = value.parts              ? to_pairs(program_, pool_, value)
                            : value.tensor.defined() ? value.tensor
                                                     : pool_.box(program_, value);
  ir::BufferId buffer = ir::realize_whole(program_, ir::wide_in_memory(program_, box), "graph output");
  auto can_be_output = [&](ir::BufferId id) {
    const ir::Buffer& b = program_.at(id);
    return b.kind == ir::BufferKind::computed && b.slice_of < 0 && b.overwrites < 0 && !taken.count(id);
  };
  if (ir::BufferId memory = memory_of_last(buffer, stored_in); can_be_output(memory)) {
    buffer = memory;
  } else {
    ir::TensorBox whole = ir::make_buffer_box(program_, buffer);
    ir::SymInts at;
    for (int k = 0; k < whole.rank(); ++k) at.push_back(program_.context->var(k));
    ir::TensorBox copy = ir::make_pointwise(program_, whole.dtype(), whole.sizes(), whole.load(program_, at));
    buffer = copy.storage()->realize(program_, "copy for a graph output");
  }
  taken.insert(buffer);
  program_.at(buffer).name = name;
  program_.outputs.push_back({name, buffer});
}

ir::Program Lowerer::run(const Graph& graph) {
  is_output_.insert(graph.outputs.begin(), graph.outputs.end());
  Values inputs;
  for (ValueId v : graph.inputs) inputs.push_back(make_input(graph, v));
  Values outputs = lower_graph(graph, std::move(inputs), nullptr);
  std::set<ir::BufferId> taken;
  std::vector<int> stored_in(program_.buffers.size(), 0);
  for (const ir::Buffer& b : program_.buffers)
    if (b.overwrites >= 0) ++stored_in[b.overwrites];
  for (size_t i = 0; i < outputs.size(); ++i)
    make_output(graph, graph.outputs[i], outputs[i], stored_in, taken);
  ir::check_bounds(program_);
  ir::verify(program_);
  return std::move(program_);
}

/// The sizes of inputs from which these are computed; none where something else has a part in them.
std::vector<SizeOfInput> sizes_of_inputs(const Graph& graph, const ir::SymInts& asked) {
  std::vector<SizeOfInput> sizes;
  std::set<const ir::SymNode*> symbols, found;
  for (ir::SymInt s : asked)
    ir::visit(s, [&](const ir::SymNode& n) {
      if (n.kind == ir::SymKind::symbol) symbols.insert(&n);
    });
  for (ValueId v : graph.inputs) {
    const Value& input = graph.at(v);
    const int rank = input.type.shape ? static_cast<int>(input.type.shape->size()) : 0;
    for (int a = 0; a < rank; ++a) {
      const ir::SymInt size = input.type.shape->at(a);
      if (size.is_constant() || !symbols.contains(size.node())) continue;
      found.insert(size.node());
      sizes.push_back({input.name, a});
    }
  }
  if (found != symbols) sizes.clear();
  return sizes;
}

} // namespace

Lowered lower(const Graph& graph, const LowerOptions& options) {
  Lowerer lowerer(graph, options);
  const bool assumes = options.assume_broadcast || options.assume_exact_floats;
  try {
    return lowerer.run(graph);
  } catch (const Asked& asked) {
    Demand demand = lowerer.begun().demand(asked);
    if (demand.kind == Demand::Kind::shapes) demand.sizes = sizes_of_inputs(graph, asked.sizes);
    return demand;
  } catch (const ir::TypeError& e) {
    const Error refused = lowerer.begun().refusal_of(e);
    if (refused.kind() != ErrorKind::model || !assumes) throw Error(refused);
    return Demand{Demand::Kind::assumptions, refused, -1, {}, {}, {}};
  } catch (Error& e) {
    if (e.kind() == ErrorKind::unsupported && lowerer.begun().is_refused_for_sizes()) {
      Asked asked = asked_for_sizes(e.message());
      asked.reason.set_where(e.where());
      return lowerer.begun().demand(asked);
    }
    lowerer.begun().say_where(e);
    if (e.kind() != ErrorKind::model || !assumes) throw;
    return Demand{Demand::Kind::assumptions, e, -1, {}, {}, {}};
  }
}

ir::Program lower_or_throw(const Graph& graph, const LowerOptions& options) {
  Lowered lowered = lower(graph, options);
  if (const auto* demand = std::get_if<Demand>(&lowered)) throw Error(demand->reason);
  return std::move(std::get<ir::Program>(lowered));
}

} // namespace tbx::lowering
