// The fields of a kept plan, for archives (base/archive.h).
#pragma once

#include "driver/kept_plan.h"
#include "package/package_fields.h"
#include "runtime/executable_fields.h"

namespace tbx::archive {

template <class A> void fields(A& a, importer::TensorPlace& v) {
  a.template all<importer::TensorPlace>(v.file, v.at, v.bytes, v.encoded);
}
template <class A> void fields(A& a, codegen::KernelUnit& v) {
  a.template all<codegen::KernelUnit>(v.key, v.functions);
}
template <class A> void fields(A& a, runtime::NestWork& v) {
  a.template all<runtime::NestWork>(v.each, v.sizes);
}
template <class A> void fields(A& a, driver::KeptProgram& v) {
  static_assert(kArity<driver::KeptProgram> == 7, "a member is not saved");
  a(v.made_for, v.inputs, v.executable, v.evaluated, v.steps, v.native, v.device_kernels);
  for (runtime::StepInfo& step : v.steps) a(step.work); // which packages do without
}
template <class A> void fields(A& a, driver::KeptPlan& v) {
  a.template all<driver::KeptPlan>(v.metadata, v.inputs, v.outputs, v.overridable_initializers, v.defaults,
                                   v.notes, v.nodes, v.programs, v.values);
}

} // namespace tbx::archive
