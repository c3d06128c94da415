#include "driver/specialiser.h"

#include <algorithm>
#include <cstring>

#include "base/budget.h"
#include "base/error.h"
#include "driver/kept_plan.h"
#include "driver/limits.h"
#include "lowering/lower.h"

namespace tbx::driver {

using runtime::RunTensor;

namespace {

constexpr size_t kMaxVariants = 32;

/// Few integers: a run's can be symbols.
bool has_few_integers(const RunTensor& t) {
  return (t.dtype == DType::i64 || t.dtype == DType::i32) && t.dims.size() <= 1 &&
         (t.dims.empty() || t.dims[0] <= Specialiser::kFewElements);
}

int64_t element_of(const RunTensor& t, size_t i) {
  const void* elements = runtime::host_elements(t);
  return t.dtype == DType::i64 ? static_cast<const int64_t*>(elements)[i]
                               : static_cast<const int32_t*>(elements)[i];
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
    append(key, static_cast<int64_t>(kind.several.size()));
    append(key, kind.several.data(), kind.several.size() * sizeof(int64_t));
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

runtime::MadeFor conditions(const std::vector<std::string>& inputs, std::vector<InputKind> kinds,
                            const Specialisation& of) {
  runtime::MadeFor made_for;
  made_for.assume = of.assume;
  if (kinds.empty()) return made_for; // any inputs
  made_for.kinds = std::move(kinds);
  for (const std::string& name : inputs) {
    auto known = of.known.find(name);
    auto elements = of.elements.find(name);
    made_for.values.push_back(known == of.known.end() ? nullptr : known->second);
    made_for.elements.push_back(elements == of.elements.end() ? std::vector<std::optional<int64_t>>()
                                                              : elements->second);
  }
  return made_for;
}

} // namespace

Specialiser::Specialiser(std::vector<std::string> inputs, GraphFor graph_for,
                         std::shared_ptr<const CompileOptions> options)
    : inputs_(std::move(inputs)), graph_for_(std::move(graph_for)), options_(std::move(options)),
      variants_(kMaxVariants) {}

std::unique_ptr<Specialiser> Specialiser::another() const {
  auto made = std::make_unique<Specialiser>(inputs_, graph_for_, options_);
  made->variants_.learn([&](Needs& needs) {
    needs = variants_.knowledge();
    return true;
  });
  return made;
}

std::optional<lowering::Demand> Specialiser::lower_declared(const Graph& graph, std::vector<InputKind> kinds,
                                                            CompileStats stats) {
  auto lowered = lower_graph(graph, *options_, {}, std::move(stats));
  if (auto* demand = std::get_if<lowering::Demand>(&lowered)) return std::move(*demand);
  lowered_ = std::move(std::get<LoweredGraph>(lowered));
  declared_kinds_ = std::move(kinds);
  return std::nullopt;
}

Specialiser::VariantPtr Specialiser::build_declared(const Graph& graph, PlanRecorder* recorder) {
  TBX_INTERNAL(lowered_);
  VariantPtr made = build(std::move(*lowered_), graph, std::move(declared_kinds_), true, recorder, &kept_);
  lowered_.reset();
  variants_.add(made);
  return made;
}

Specialiser::VariantPtr Specialiser::adopt(const runtime::MadeFor& made_for, Compiled compiled) {
  auto v = std::make_shared<Variant>();
  v->made_for = made_for;
  v->specialisation.assume = made_for.assume;
  v->declared = true;
  finish(*v, std::move(compiled));
  variants_.add(v);
  return v;
}

bool Specialiser::note(const lowering::Demand& demand) {
  return variants_.learn([&](Needs& needs) { return learn(needs, demand); });
}

bool Specialiser::learn(Needs& needs, const lowering::Demand& demand) const {
  using Kind = lowering::Demand::Kind;
  if (demand.kind != Kind::shapes && demand.kind != Kind::elements) return false;
  bool news = false;
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (std::find(demand.inputs.begin(), demand.inputs.end(), inputs_[i]) != demand.inputs.end() &&
        std::find(needs.value_inputs.begin(), needs.value_inputs.end(), i) == needs.value_inputs.end()) {
      needs.value_inputs.push_back(i);
      news = true;
    }
  if (news || learn_sizes(needs, demand)) return true;
  // What is still unknown are sizes, of inputs or given by their elements.
  if (!needs.value_inputs.empty() && !needs.exact_values) return needs.exact_values = true;
  const bool sizes = demand.kind == Kind::shapes || !demand.inputs.empty();
  news = sizes && !needs.by_shapes;
  needs.by_shapes |= sizes;
  return news;
}

/// First whether a size is one of many, then which it is.
bool Specialiser::learn_sizes(Needs& needs, const lowering::Demand& demand) const {
  bool news = false;
  for (const lowering::SizeOfInput& size : demand.sizes) {
    const auto at = std::find(inputs_.begin(), inputs_.end(), size.input);
    if (at == inputs_.end()) continue;
    const auto input = static_cast<size_t>(at - inputs_.begin());
    const auto known = std::find_if(needs.sizes.begin(), needs.sizes.end(), [&](const Needs::Size& s) {
      return s.input == input && s.axis == size.axis;
    });
    if (known == needs.sizes.end()) {
      needs.sizes.push_back({input, size.axis, false});
    } else if (!known->exact) {
      known->exact = true;
    } else {
      continue;
    }
    news = true;
  }
  return news;
}

Specialiser::Cache::Request Specialiser::request(const Needs& needs, std::span<const RunTensor> inputs,
                                                 Assume assume) const {
  std::vector<InputKind> kinds;
  int64_t unknown = 0;
  for (const RunTensor& t : inputs) {
    kinds.push_back({t.dtype, t.dims, {}});
    if (!needs.by_shapes)
      for (int64_t& d : *kinds.back().dims) d = -1 - unknown++;
  }
  for (const Needs::Size& s : needs.sizes) {
    const auto axis = static_cast<size_t>(s.axis);
    if (needs.by_shapes || axis >= inputs[s.input].dims.size()) continue;
    const int64_t size = inputs[s.input].dims[axis];
    if (s.exact || size < runtime::kLeastSize)
      (*kinds[s.input].dims)[axis] = size;
    else
      kinds[s.input].several.push_back(s.axis);
  }
  Specialisation made_for;
  made_for.assume = assume;
  for (size_t i : needs.value_inputs) {
    kinds[i].dims = inputs[i].dims;
    kinds[i].several.clear();
    if (!needs.exact_values && has_few_integers(inputs[i])) {
      auto& elements = made_for.elements[inputs_[i]];
      for (int64_t k = 0, n = checked_numel(inputs[i].dims); k < n; ++k) {
        int64_t v = element_of(inputs[i], static_cast<size_t>(k));
        elements.push_back(is_size(v) ? std::nullopt : std::optional<int64_t>(v));
      }
      continue;
    }
    Tensor copy = Tensor::make(inputs[i].dtype, inputs[i].dims);
    if (copy.bytes() > 0)
      std::memcpy(copy.mutable_data(), runtime::host_elements(inputs[i]), static_cast<size_t>(copy.bytes()));
    made_for.known[inputs_[i]] = std::make_shared<const Tensor>(std::move(copy));
  }
  std::string key = key_of(kinds, made_for);
  return {std::move(key),
          [this, kinds = std::move(kinds), made_for = std::move(made_for)]() -> Cache::Compiled {
            const Loading loading(*options_);
            CompileStats stats;
            Graph graph = graph_for_(kinds, false, stats, {});
            auto lowered = lower_graph(graph, *options_, made_for, std::move(stats));
            if (auto* demand = std::get_if<lowering::Demand>(&lowered)) return std::move(*demand);
            keep_signature(graph); // the program has the constants that it needs, and gives them up
            return build(std::move(std::get<LoweredGraph>(lowered)), graph, kinds, false, nullptr, nullptr);
          }};
}

Specialiser::VariantPtr Specialiser::build(LoweredGraph lowered, const Graph& graph,
                                           std::vector<InputKind> kinds, bool declared,
                                           PlanRecorder* recorder, std::shared_ptr<KeptProgram>* kept) const {
  auto v = std::make_shared<Variant>();
  v->specialisation = lowered.made_for;
  v->made_for = conditions(inputs_, std::move(kinds), lowered.made_for);
  v->declared = declared;
  Compiled compiled =
      compile_program(std::move(lowered), graph, *options_, PackedConstants::given_up, recorder);
  if (recorder && compiled.kept) {
    compiled.kept->made_for = v->made_for;
    *kept = std::move(compiled.kept);
  }
  if (const Compiled::Later later = std::move(compiled.later)) {
    v->next = NextTier::start(later);
    if (!v->next) {
      const OutsideOfLoad waiting; // as it is without the option
      auto stopped = [&] { return options_->interrupted && options_->interrupted(); };
      compiled = later(
          stopped, options_->log ? options_->log : [](const std::string&) {});
    }
  }
  finish(*v, std::move(compiled));
  return v;
}

void Specialiser::finish(Variant& v, Compiled compiled) const {
  v.bound = std::move(compiled.bound);
  v.steps = std::move(compiled.steps);
  v.stats = std::move(compiled.stats);
  v.session = std::make_unique<runtime::Session>(
      v.bound, runtime::SessionOptions{.threads = options_->threads,
                                       .private_arena = options_->private_threads,
                                       .max_memory = options_->max_memory,
                                       .log = options_->log});
}

Specialiser::VariantPtr Specialiser::variant_for(std::span<const RunTensor> inputs, Assume assume) {
  const VariantPtr v = variants_.get(
      [&](const Needs&, const Variant& v) { return v.made_for.assume <= assume && v.made_for.fits(inputs); },
      [&](const Needs& needs) { return request(needs, inputs, assume); },
      [this](Needs& needs, const lowering::Demand& demand) {
        if (learn(needs, demand)) return true;
        // A loop whose length the model says is one of unknown length where no size is known.
        if (demand.kind != lowering::Demand::Kind::split || needs.by_shapes) return false;
        return needs.by_shapes = true;
      });
  return v->next ? next_of(v) : v;
}

/// What takes the place of one that is evaluated until its kernels are compiled; itself as long as they are
/// not.
Specialiser::VariantPtr Specialiser::next_of(const VariantPtr& v) {
  std::unique_ptr<NextTier::Outcome> outcome = v->next->take();
  if (!outcome) return v;
  auto next = std::make_shared<Variant>();
  next->made_for = v->made_for;
  next->specialisation = v->specialisation;
  next->declared = v->declared;
  if (!outcome->compiled) {
    outcome->notes.push_back("kernels stay in the evaluator, they could not be compiled: " +
                             outcome->failure);
    outcome->compiled = Compiled{v->bound, v->steps, v->stats, {}};
    for (runtime::StepInfo& step : outcome->compiled->steps)
      std::replace(step.decisions.begin(), step.decisions.end(), std::string(kTierNote),
                   "evaluated: " + outcome->failure);
  }
  finish(*next, std::move(*outcome->compiled));
  variants_.replace(v, next);
  for (const std::string& note : outcome->notes)
    if (options_->log) options_->log(note);
  return next;
}

Graph Specialiser::graph_of(const Variant& v, std::optional<Isa> isa) const {
  CompileStats unused;
  return graph_for_(v.made_for.kinds, v.declared, unused, isa);
}

std::vector<std::string> Specialiser::needs(bool or_shapes) const {
  std::vector<std::string> names;
  const Needs needs = variants_.knowledge();
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (std::count(needs.value_inputs.begin(), needs.value_inputs.end(), i) ||
        (or_shapes &&
         (needs.by_shapes || std::any_of(needs.sizes.begin(), needs.sizes.end(),
                                         [&](const Needs::Size& size) { return size.input == i; }))))
      names.push_back(inputs_[i]);
  return names;
}

} // namespace tbx::driver
