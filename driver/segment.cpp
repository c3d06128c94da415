#include "driver/segment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "driver/limits.h"
#include "lowering/lower.h"
#include "runtime/session.h"

namespace tbx::driver {

using runtime::RunTensor;

namespace {

constexpr size_t kMaxVariants = 32;
constexpr int64_t kFewElements = 64;

/// Few integers: a run's can be symbols.
bool has_few_integers(const RunTensor& t) {
  return (t.dtype == DType::i64 || t.dtype == DType::i32) && t.dims.size() <= 1 &&
         (t.dims.empty() || t.dims[0] <= kFewElements);
}

int64_t element_of(const RunTensor& t, size_t i) {
  return t.dtype == DType::i64 ? static_cast<const int64_t*>(t.data)[i]
                               : static_cast<const int32_t*>(t.data)[i];
}

using runtime::is_size;
static_assert(runtime::kLeastSizeElement == lowering::kMinElement &&
              runtime::kGreatestSizeElement == ir::kMaxSize);

void append(std::string& key, const void* from, size_t n) {
  if (n > 0) key.append(static_cast<const char*>(from), n);
}
void append(std::string& key, int64_t number) { append(key, &number, sizeof number); }

/// Equal for what is compiled alike.
std::string key_of(const std::vector<InputKind>& kinds, const Specialisation& made_for) {
  std::string key;
  append(key, static_cast<int64_t>(made_for.assume));
  for (const InputKind& kind : kinds) {
    append(key, static_cast<int64_t>(kind.dtype));
    append(key, static_cast<int64_t>(kind.dims->size()));
    append(key, kind.dims->data(), kind.dims->size() * sizeof(int64_t));
  }
  for (const auto& [name, tensor] : made_for.known) { // their shapes are those of their kinds
    key += name + '\0';
    append(key, tensor->data, static_cast<size_t>(tensor->bytes()));
  }
  for (const auto& [name, elements] : made_for.elements) {
    key += name + '\0';
    for (const std::optional<int64_t>& v : elements) {
      append(key, static_cast<int64_t>(v.has_value()));
      append(key, v.value_or(0));
    }
  }
  return key;
}

} // namespace

/// A plan and what the inputs must be for it.
struct Segment::Variant {
  runtime::MadeFor made_for;
  Specialisation specialisation;
  bool trust_shapes = false;
  std::shared_ptr<const Compiled> compiled;
  std::unique_ptr<runtime::Session> session;
};

namespace {

runtime::MadeFor conditions(const Graph& graph, std::vector<InputKind> kinds, const Specialisation& of) {
  runtime::MadeFor made_for;
  made_for.kinds = std::move(kinds);
  made_for.assume = of.assume;
  for (ValueId id : graph.inputs) {
    const std::string& name = graph.at(id).name;
    auto known = of.known.find(name);
    auto elements = of.elements.find(name);
    made_for.values.push_back(known == of.known.end() ? nullptr : known->second);
    made_for.elements.push_back(elements == of.elements.end() ? std::vector<std::optional<int64_t>>()
                                                              : elements->second);
  }
  return made_for;
}

} // namespace

Segment::Segment(Graph graph, std::shared_ptr<const CompileOptions> options)
    : graph_(std::move(graph)), options_(std::move(options)), variants_(kMaxVariants) {}

Segment::~Segment() = default;

std::shared_ptr<Segment::Variant> Segment::compile(std::vector<InputKind> kinds, bool trust_shapes,
                                                   Specialisation made_for) const {
  auto v = std::make_shared<Variant>();
  v->compiled = std::make_shared<const Compiled>(
      compile_graph(copy_with(graph_, kinds, trust_shapes), *options_, made_for));
  v->made_for = conditions(graph_, std::move(kinds), made_for);
  v->specialisation = std::move(made_for);
  v->trust_shapes = trust_shapes;
  v->session = std::make_unique<runtime::Session>(
      v->compiled->bound, runtime::SessionOptions{.threads = options_->threads,
                                                  .private_arena = options_->private_threads,
                                                  .max_memory = options_->max_memory});
  return v;
}

bool Segment::learn(Needs& needs, const lowering::UnknownValueError& e) const {
  bool news = false;
  for (size_t i = 0; i < graph_.inputs.size(); ++i)
    if (std::find(e.inputs.begin(), e.inputs.end(), graph_.at(graph_.inputs[i]).name) != e.inputs.end() &&
        std::find(needs.value_inputs.begin(), needs.value_inputs.end(), i) == needs.value_inputs.end()) {
      needs.value_inputs.push_back(i);
      news = true;
    }
  if (news) return true;
  // What is still unknown are sizes, of inputs or given by their elements.
  if (!needs.value_inputs.empty() && !needs.exact_values) return needs.exact_values = true;
  const bool sizes = e.of_shapes || !e.inputs.empty();
  news = sizes && !needs.by_shapes;
  needs.by_shapes |= sizes;
  return news;
}

bool Segment::prepare() {
  std::vector<InputKind> kinds;
  if (!declared_kinds(graph_, kinds)) return false;
  try {
    variants_.add(compile(std::move(kinds), true, {}));
    return true;
  } catch (const lowering::UnknownValueError& e) {
    bool inside =
        std::any_of(e.needed.begin(), e.needed.end(), [&](ValueId v) { return graph_.at(v).producer >= 0; });
    if (!variants_.learn([&](Needs& needs) { return learn(needs, e); }) ||
        (inside && !is_configuration(graph_, e.inputs)))
      throw;
    return false;
  }
}

bool Segment::is_configuration(const Graph& graph, const std::vector<std::string>& inputs) {
  return std::all_of(graph.inputs.begin(), graph.inputs.end(), [&](ValueId v) {
    if (v < 0 || std::find(inputs.begin(), inputs.end(), graph.at(v).name) == inputs.end()) return true;
    const ValueType& type = graph.at(v).type;
    if (!is_integer(type.dtype) && type.dtype != DType::boolean) return false;
    if (!type.shape || type.shape->size() > 1) return false;
    return type.shape->empty() ||
           type.shape->front().as_constant().value_or(kFewElements + 1) <= kFewElements;
  });
}

std::shared_ptr<const Segment::Variant> Segment::variant_for(std::span<const RunTensor> inputs,
                                                             Assume assume) const {
  auto request = [&](const Needs& needs) -> decltype(variants_)::Request {
    std::vector<InputKind> kinds;
    int64_t unknown = 0;
    for (const RunTensor& t : inputs) {
      kinds.push_back({t.dtype, t.dims});
      if (!needs.by_shapes)
        for (int64_t& d : *kinds.back().dims) d = -1 - unknown++;
    }
    Specialisation made_for;
    made_for.assume = assume;
    for (size_t i : needs.value_inputs) {
      const std::string& name = graph_.at(graph_.inputs[i]).name;
      kinds[i].dims = inputs[i].dims;
      if (!needs.exact_values && has_few_integers(inputs[i])) {
        auto& elements = made_for.elements[name];
        for (int64_t k = 0, n = checked_numel(inputs[i].dims); k < n; ++k) {
          int64_t v = element_of(inputs[i], static_cast<size_t>(k));
          elements.push_back(is_size(v) ? std::nullopt : std::optional<int64_t>(v));
        }
        continue;
      }
      Tensor copy = Tensor::make(inputs[i].dtype, inputs[i].dims);
      if (copy.bytes() > 0)
        std::memcpy(copy.mutable_data(), inputs[i].data, static_cast<size_t>(copy.bytes()));
      made_for.known[name] = std::make_shared<const Tensor>(std::move(copy));
    }
    std::string key = key_of(kinds, made_for);
    return {std::move(key), [this, kinds = std::move(kinds), made_for = std::move(made_for)] {
              const Loading loading(*options_);
              return compile(kinds, false, made_for);
            }};
  };
  return variants_.get(
      [&](const Needs&, const Variant& v) { return v.made_for.assume <= assume && v.made_for.fits(inputs); },
      request, [&](Needs& needs, const lowering::UnknownValueError& e) { return learn(needs, e); });
}

void Segment::run(std::span<const RunTensor> inputs, std::span<RunTensor> outputs,
                  const runtime::RunOptions& options) const {
  for (Assume assume = Assume::broadcast_too;;) {
    auto variant = variant_for(inputs, assume);
    try {
      return variant->session->run(inputs, outputs, options);
    } catch (const runtime::AssumptionError&) {
      // Legal inputs, but not what was assumed of them: from now on the more general form is taken first.
      if (variant->made_for.assume == Assume::nothing) throw;
      assume = less_than(variant->made_for.assume);
    }
  }
}

std::vector<Segment::Kind> Segment::kinds() const {
  std::vector<Kind> all;
  for (const auto& v : variants_.variants())
    all.push_back({v->made_for.kinds, v->trust_shapes, v->specialisation, v->made_for});
  return all;
}

std::vector<std::string> Segment::needs() const {
  std::vector<std::string> names;
  const Needs needs = variants_.knowledge();
  for (size_t i = 0; i < graph_.inputs.size(); ++i)
    if (needs.by_shapes || std::count(needs.value_inputs.begin(), needs.value_inputs.end(), i) > 0)
      names.push_back(graph_.at(graph_.inputs[i]).name);
  return names;
}

std::vector<std::shared_ptr<const Compiled>> Segment::compiled() const {
  std::vector<std::shared_ptr<const Compiled>> all;
  for (const auto& v : variants_.variants()) all.push_back(v->compiled);
  return all;
}

} // namespace tbx::driver
