// The fields of a PackageIndex, for archives (base/archive.h). A change of them is another version of files.
#pragma once

#include "base/archive.h"
#include "package/package_index.h"

namespace tbx::archive {

template <> struct Last<runtime::Assume> { static constexpr auto value = runtime::Assume::broadcast_too; };

template <class A> void fields(A& a, IntegerRange& v) {
  a.template all<IntegerRange>(v.least, v.below, v.distinct);
}
template <class A> void fields(A& a, TensorInfo& v) {
  a.template all<TensorInfo>(v.name, v.type, v.type_name, v.dims, v.node, v.range, v.any_rank, v.has_default);
}
template <class A> void fields(A& a, ModelMetadata& v) {
  a.template all<ModelMetadata>(v.producer_name, v.producer_version, v.graph_name, v.domain, v.description,
                                v.graph_description, v.version, v.custom);
}
/// Counts alone: times are no property of a model.
template <class A> void fields(A& a, CompileStats& v) { a(v.nodes, v.generated_kernels, v.extern_kernels); }
template <class A> void fields(A& a, runtime::InputKind& v) {
  a.template all<runtime::InputKind>(v.dtype, v.dims, v.several);
}
template <class A> void fields(A& a, runtime::MadeFor& v) {
  a.template all<runtime::MadeFor>(v.kinds, v.values, v.elements, v.assume);
}
/// Without the work: packages tell of operations at the sizes that were guessed.
template <class A> void fields(A& a, runtime::StepInfo& v) {
  static_assert(kArity<runtime::StepInfo> == 8, "a member is not saved");
  a(v.name, v.kind, v.origins, v.decisions, v.bytes, v.flops, v.guessed);
}
template <class A> void fields(A& a, package::PackedPlan& v) {
  a.template all<package::PackedPlan>(v.isa, v.device, v.binaries, v.source, v.plan, v.objects, v.programs,
                                      v.steps);
}
template <class A> void fields(A& a, package::PackedProgram& v) {
  a.template all<package::PackedProgram>(v.made_for, v.plans);
}
template <class A> void fields(A& a, package::PackedStage& v) {
  a.template all<package::PackedStage>(v.programs);
}
template <class A> void fields(A& a, package::PackageIndex& v) {
  a.template all<package::PackageIndex>(v.version, v.metadata, v.inputs, v.outputs,
                                        v.overridable_initializers, v.defaults, v.options, v.stats, v.stages,
                                        v.values);
}

} // namespace tbx::archive
