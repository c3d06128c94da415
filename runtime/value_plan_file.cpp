#include "runtime/value_plan_file.h"

#include "runtime/executable_fields.h"

namespace tbx::archive {

template <> struct Last<RuntimeValue::Kind> { static constexpr auto value = RuntimeValue::Kind::map; };
template <> struct Last<ErrorKind> { static constexpr auto value = ErrorKind::internal; };
template <> struct Last<runtime::Search> { static constexpr auto value = runtime::Search::beams; };
template <> struct Last<runtime::Family> { static constexpr auto value = runtime::Family::whisper; };

namespace {

/// What a value is made of. Tensor: itself; map: keys and values.
struct ValueParts {
  RuntimeValue::Kind kind{};
  std::vector<Tensor> tensors;
  std::vector<RuntimeValue> elements;
};
template <class A> void fields(A& a, ValueParts& v) {
  a.template all<ValueParts>(v.kind, v.tensors, v.elements);
}

ValueParts parts_of(const RuntimeValue& v) {
  ValueParts parts{v.kind, {}, {}};
  if (v.is_tensor()) parts.tensors = {v.tensor};
  if (v.is_map()) parts.tensors = {v.map->keys, v.map->values};
  if (v.is_sequence()) parts.elements = *v.elements;
  return parts;
}

RuntimeValue value_of(ValueParts parts) {
  using Kind = RuntimeValue::Kind;
  if (parts.tensors.size() != (parts.kind == Kind::tensor ? 1u : parts.kind == Kind::map ? 2u : 0u))
    damaged("a value has too few tensors, or too many");
  switch (parts.kind) {
  case Kind::tensor: return RuntimeValue(std::move(parts.tensors[0]));
  case Kind::map: return RuntimeValue::of_map(std::move(parts.tensors[0]), std::move(parts.tensors[1]));
  case Kind::sequence: return RuntimeValue::sequence(std::move(parts.elements));
  case Kind::none: break;
  }
  return {};
}

} // namespace

void fields(Writer& a, RuntimeValue& v) {
  ValueParts parts = parts_of(v);
  a(parts);
}
void fields(Reader& a, RuntimeValue& v) {
  ValueParts parts;
  a(parts);
  v = value_of(std::move(parts));
}

template <class A> void fields(A& a, runtime::ValueNode& v) {
  a.template all<runtime::ValueNode>(v.domain, v.op, v.opset, v.attributes, v.wanted, v.output_types);
}
template <class A> void fields(A& a, runtime::ElementType& v) {
  a.template all<runtime::ElementType>(v.dtype, v.dims, v.same);
}
template <class A> void fields(A& a, runtime::ValueEntry& v) {
  a.template all<runtime::ValueEntry>(v.name, v.type, v.dtype, v.dims, v.ranked, v.slot, v.may_be_none,
                                      v.kind, v.element, v.only_here);
}
template <class A> void fields(A& a, runtime::Failure& v) {
  a.template all<runtime::Failure>(v.kind, v.message, v.hint, v.where);
}
template <class A> void fields(A& a, runtime::BodyCall& v) {
  a.template all<runtime::BodyCall>(v.plan, v.captures, v.failure);
}
template <class A> void fields(A& a, runtime::StageStep& v) { a.template all<runtime::StageStep>(v.stage); }
template <class A> void fields(A& a, runtime::OpStep& v) { a.template all<runtime::OpStep>(v.node); }
template <class A> void fields(A& a, runtime::IfStep& v) {
  a.template all<runtime::IfStep>(v.then_branch, v.else_branch);
}
template <class A> void fields(A& a, runtime::LoopStep& v) {
  a.template all<runtime::LoopStep>(v.body, v.carried, v.iteration_dims, v.condition_dims);
}
template <class A> void fields(A& a, runtime::ScanStep& v) {
  a.template all<runtime::ScanStep>(v.body, v.states, v.input_axes, v.output_axes, v.input_backwards,
                                    v.output_backwards, v.batched);
}
template <class A> void fields(A& a, runtime::SequenceMapStep& v) {
  a.template all<runtime::SequenceMapStep>(v.body);
}
template <class A> void fields(A& a, runtime::Generation& v) {
  a.template all<runtime::Generation>(v.search, v.family, v.end, v.pad, v.start, v.vocabulary, v.ngram,
                                      v.early_stopping, v.temperature, v.presence_penalty, v.top_p,
                                      v.filtered, v.least_kept, v.from_the_top, v.no_speech, v.translate,
                                      v.transcribe, v.language_model, v.no_timestamps, v.first_timestamp);
}
template <class A> void fields(A& a, runtime::GenerationStep& v) {
  a.template all<runtime::GenerationStep>(v.what, v.decoder, v.first);
}
template <class A> void fields(A& a, runtime::ValueStep& v) {
  a.template all<runtime::ValueStep>(v.what, v.inputs, v.outputs, v.last_use, v.release, v.where);
}
template <class A> void fields(A& a, runtime::ValuePlan& v) {
  a.template all<runtime::ValuePlan>(v.num_slots, v.inputs, v.outputs, v.constants, v.steps);
}

} // namespace tbx::archive

namespace tbx::runtime {

std::string to_bytes(const ValuePlan& plan, TensorPool& tensors) { return archive::write(plan, tensors); }

ValuePlan value_plan_from_bytes(std::span<const std::byte> bytes, TensorMemory tensors) {
  return archive::read<ValuePlan>(bytes, std::move(tensors));
}

} // namespace tbx::runtime
