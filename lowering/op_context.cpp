// What one operator's lowering sees of its node: inputs as boxes, constants or known integers, and typed
// attributes.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "graph/node_attributes.h"
#include "lowering/op_registry.h"

namespace tbx::lowering {
namespace {

constexpr int64_t kMaxKnown = 4096; ///< elements of a tensor that are followed symbolically

bool has_known_values(DType t) { return is_integer(t) || t == DType::boolean; }

std::vector<int64_t> fixed_sizes(const ir::SymInts& sizes) {
  std::vector<int64_t> out;
  for (ir::SymInt s : sizes) {
    if (!s.is_constant()) return {};
    out.push_back(s.constant());
  }
  return out;
}

/// A float as a rational with a small power of two below, where it is one.
bool as_dyadic(double x, int64_t denominator, int64_t& numerator) {
  double scaled = x * static_cast<double>(denominator);
  if (!(std::abs(scaled) < 1e15) || (x == 0 && std::signbit(x)) ||
      scaled != static_cast<double>(static_cast<int64_t>(scaled)))
    return false;
  numerator = static_cast<int64_t>(scaled);
  return true;
}

std::shared_ptr<const KnownTensor> known_of_constant(const Tensor& t) {
  if (t.strings || t.numel() > kMaxKnown || is_complex(t.dtype) || t.dtype == DType::string) return nullptr;
  KnownTensor k{t.dtype, t.dims, {}, 1};
  int64_t n = t.numel();
  if (has_known_values(t.dtype)) {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t v = element_as_int(t, i);
      if (t.dtype == DType::u64 && v < 0) return nullptr; // above what a size may be
      k.values.push_back(v);
    }
    return std::make_shared<const KnownTensor>(std::move(k));
  }
  for (int64_t denominator = 1; denominator <= 1024; denominator *= 2) {
    k.values.clear();
    k.denominator = denominator;
    for (int64_t i = 0; i < n; ++i) {
      int64_t numerator = 0;
      if (!as_dyadic(element_as_double(t, i), denominator, numerator)) break;
      k.values.push_back(numerator);
    }
    if (static_cast<int64_t>(k.values.size()) == n) return std::make_shared<const KnownTensor>(std::move(k));
  }
  return nullptr;
}

int64_t the_one(const std::vector<int64_t>& values, int i, std::string_view what) {
  TBX_MODEL(values.size() == 1, "{} (input {}) has {} elements, expected one", what, i, values.size());
  return values[0];
}

} // namespace

DType LoweredValue::dtype() const {
  if (parts) return parts->front().dtype() == DType::f64 ? DType::c128 : DType::c64;
  return tensor.defined() ? tensor.dtype()
         : constant       ? constant->dtype
         : known          ? known->dtype
                          : DType::undefined;
}

ir::SymInts LoweredValue::sizes() const {
  if (parts) return parts->front().sizes();
  if (tensor.defined()) return tensor.sizes();
  TBX_MODEL(constant || known, "{} where a tensor is needed", sequence ? "a sequence" : "nothing");
  const std::vector<int64_t>& dims = constant ? constant->dims : known->dims;
  return {dims.begin(), dims.end()};
}

/// The same hint for all that a caller of the compiler can say.
static Error must_be_known(std::string message) {
  return {ErrorKind::unsupported, std::move(message),
          "make it an initializer, or fix the graph inputs it is computed from while compiling"};
}

void ask_for_elements(std::string message, const std::vector<ValueId>& values) {
  Asked asked{Demand::Kind::elements, must_be_known(std::move(message)), values};
  std::erase_if(asked.values, [](ValueId v) { return v < 0; });
  throw Asked(std::move(asked));
}

Asked asked_for_sizes(std::string message) {
  return {Demand::Kind::shapes, must_be_known(std::move(message)), {}};
}

void ask_for_sizes(std::string message) { throw asked_for_sizes(std::move(message)); }

void ask_for_size(ir::SymInt size, std::string message) {
  Asked asked = asked_for_sizes(std::move(message));
  asked.sizes.push_back(size);
  throw Asked(std::move(asked));
}

bool is_made_of_several(ir::SymInt size) {
  bool several = true;
  ir::visit(size,
            [&](const ir::SymNode& n) { several &= n.kind != ir::SymKind::symbol || n.lo >= kMinElement; });
  return several;
}

void ask_for_run(std::string message, std::string hint) {
  throw Asked{Demand::Kind::split, Error(ErrorKind::unsupported, std::move(message), std::move(hint)), {}};
}

OpContext::OpContext(ir::Program& program, const Graph& graph, const Node& node,
                     std::vector<LoweredValue> inputs, BoxPool& pool, LowerSubgraphFn lower_subgraph)
    : program(program), c(*program.context), graph(graph), node(node),
      lower_subgraph(std::move(lower_subgraph)), pool(pool), inputs_(std::move(inputs)) {}

bool OpContext::has(int i) const {
  return i < num_inputs() && (inputs_[i].is_tensor() || inputs_[i].sequence);
}

const LoweredValue& OpContext::value(int i) const {
  TBX_MODEL(i < num_inputs(), "input {} is missing", i);
  return inputs_[i];
}

bool OpContext::wants(int i) const {
  return i < static_cast<int>(node.outputs.size()) && node.outputs[i] >= 0;
}

const LoweredValue& OpContext::tensor_value(int i) const {
  TBX_MODEL(i < num_inputs() && !inputs_[i].is_none, "input {} is missing", i);
  TBX_MODEL(inputs_[i].is_tensor(), "input {} is not a tensor", i);
  return inputs_[i];
}

const ir::TensorBox& OpContext::box(const LoweredValue& value) const {
  if (value.parts) ask_for_run("a complex tensor in an operator of real ones");
  return value.tensor.defined() ? value.tensor : pool.box(program, value);
}

const ir::TensorBox& OpContext::in(int i) const { return box(tensor_value(i)); }

DType OpContext::dtype(int i) const { return tensor_value(i).dtype(); }
ir::SymInts OpContext::sizes(int i) const { return tensor_value(i).sizes(); }

std::shared_ptr<const KnownTensor> OpContext::known_tensor(int i) const {
  if (!has(i) || !inputs_[i].is_tensor()) return nullptr;
  const LoweredValue& v = inputs_[i];
  if (v.known) return v.known;
  if (v.constant) return known_of_constant(*v.constant);
  if (v.tensor.constant) return known_of_constant(*v.tensor.constant);
  if (!v.tensor.known_values || !has_known_values(v.tensor.dtype())) return nullptr;
  std::vector<int64_t> dims = fixed_sizes(v.tensor.sizes());
  if (dims.size() != v.tensor.sizes().size()) return nullptr;
  return std::make_shared<const KnownTensor>(KnownTensor{v.tensor.dtype(), dims, *v.tensor.known_values, 1});
}

std::optional<ir::SymInts> OpContext::known(int i) const {
  auto k = known_tensor(i);
  if (!k || !has_known_values(k->dtype)) return std::nullopt;
  return k->values;
}

static std::string unknown_elements(std::string_view what, int i) {
  return fmt::format("{} (input {}) must be known while compiling", what, i);
}

ir::SymInts OpContext::known_or_throw(int i, std::string_view what) const {
  tensor_value(i);
  auto values = known(i);
  if (!values) ask_for_elements(unknown_elements(what, i), {node.input(i)});
  return *values;
}

/// Where none depends on a symbol.
static std::optional<std::vector<int64_t>> fixed_ints(const ir::SymInts& values) {
  std::vector<int64_t> out;
  for (ir::SymInt v : values) {
    if (!v.is_constant()) return std::nullopt;
    out.push_back(v.constant());
  }
  return out;
}

static std::string depends_on_sizes(std::string_view what, int i) {
  return fmt::format("{} (input {}) depends on a dynamic dimension", what, i);
}

std::vector<int64_t> OpContext::ints_or_throw(int i, std::string_view what) const {
  const auto values = fixed_ints(known_or_throw(i, what));
  if (!values) ask_for_sizes(depends_on_sizes(what, i));
  return *values;
}

std::vector<int64_t> OpContext::ints_or_run(int i, std::string_view what) const {
  tensor_value(i);
  const auto values = known(i);
  if (!values) ask_for_run(unknown_elements(what, i));
  const auto ints = fixed_ints(*values);
  if (!ints) ask_for_run(depends_on_sizes(what, i));
  return *ints;
}

int64_t OpContext::int_or_throw(int i, std::string_view what) const {
  return the_one(ints_or_throw(i, what), i, what);
}

int64_t OpContext::int_or_run(int i, std::string_view what) const {
  return the_one(ints_or_run(i, what), i, what);
}

std::shared_ptr<const Tensor> OpContext::constant(int i) const {
  return has(i) ? constant_of(inputs_[i]) : nullptr;
}

std::shared_ptr<const Tensor> OpContext::constant_or_throw(int i, std::string_view what) const {
  tensor_value(i);
  auto t = constant(i);
  if (!t) ask_for_elements(fmt::format("{} (input {}) must be constant", what, i), {node.input(i)});
  return t;
}

bool OpContext::has_attr(std::string_view name) const {
  return node.attributes.count(std::string(name)) != 0;
}

template <class T> const T* OpContext::attribute(std::string_view name) const {
  return checked_attribute<T>(node, name);
}

int64_t OpContext::attr_int(std::string_view name, int64_t otherwise) const {
  const int64_t* v = attribute<int64_t>(name);
  return v ? *v : otherwise;
}

float OpContext::attr_float(std::string_view name, float otherwise) const {
  const float* v = attribute<float>(name);
  return v ? *v : otherwise;
}

std::string OpContext::attr_string(std::string_view name, std::string otherwise) const {
  const std::string* v = attribute<std::string>(name);
  if (v) return *v;
  return otherwise;
}

std::vector<int64_t> OpContext::attr_ints(std::string_view name, std::vector<int64_t> otherwise) const {
  const auto* v = attribute<std::vector<int64_t>>(name);
  if (v) return *v;
  return otherwise;
}

std::vector<float> OpContext::attr_floats(std::string_view name) const {
  const auto* v = attribute<std::vector<float>>(name);
  return v ? *v : std::vector<float>{};
}

std::vector<std::string> OpContext::attr_strings(std::string_view name) const {
  const auto* v = attribute<std::vector<std::string>>(name);
  return v ? *v : std::vector<std::string>{};
}

std::shared_ptr<const Tensor> OpContext::attr_tensor(std::string_view name) const {
  const auto* v = attribute<std::shared_ptr<const Tensor>>(name);
  return v ? *v : nullptr;
}

std::shared_ptr<Graph> OpContext::attr_graph(std::string_view name) const {
  const auto* v = attribute<std::shared_ptr<Graph>>(name);
  return v ? *v : nullptr;
}

int64_t OpContext::required_int(std::string_view name) const {
  const int64_t* v = attribute<int64_t>(name);
  TBX_MODEL(v != nullptr, "attribute '{}' is missing", name);
  return *v;
}

DType OpContext::attr_dtype(std::string_view name, DType otherwise) const {
  const int64_t* v = attribute<int64_t>(name);
  if (!v || *v == 0) return otherwise;
  auto type = dtype_from_number(*v);
  TBX_MODEL(type, "attribute '{}' is no data type: {}", name, *v);
  if (*type == DType::string || is_complex(*type))
    throw_unsupported("data type {} in attribute '{}'", name_of(*type), name);
  return *type;
}

int OpContext::axis(int64_t axis, int rank) const {
  TBX_MODEL(axis >= -rank && axis < rank, "axis {} is out of range for rank {}", axis, rank);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::vector<int> OpContext::axes(std::span<const int64_t> axes, int rank) const {
  std::vector<int> out;
  for (int64_t a : axes) out.push_back(axis(a, rank));
  std::sort(out.begin(), out.end());
  TBX_MODEL(std::adjacent_find(out.begin(), out.end()) == out.end(), "an axis is named twice");
  return out;
}

} // namespace tbx::lowering
