// The fields of an executable, for archives (base/archive.h). A change of them is another version of files.
#pragma once

#include "base/archive.h"
#include "runtime/executable.h"

namespace tbx::archive {

template <> struct Last<runtime::SizeExpr::Code> {
  static constexpr auto value = runtime::SizeExpr::Code::max;
};
template <> struct Last<runtime::StorageKind> {
  static constexpr auto value = runtime::StorageKind::dynamic;
};
template <> struct Last<runtime::SymbolBinding::Of> {
  static constexpr auto value = runtime::SymbolBinding::Of::room;
};
template <> struct Last<runtime::DeviceKind> { static constexpr auto value = runtime::DeviceKind::cuda; };
template <> struct Last<extern_kernels::Precision> {
  static constexpr auto value = extern_kernels::Precision::any;
};
template <> struct Last<extern_kernels::PostOp::Kind> {
  static constexpr auto value = extern_kernels::PostOp::sum;
};
template <> struct Last<extern_kernels::GateActivation::Kind> {
  static constexpr auto value = extern_kernels::GateActivation::softplus;
};
template <> struct Last<extern_kernels::RecurrentProblem::Cell> {
  static constexpr auto value = extern_kernels::RecurrentProblem::rnn;
};
template <> struct Last<extern_kernels::RecurrentProblem::Direction> {
  static constexpr auto value = extern_kernels::RecurrentProblem::bidirectional;
};

template <> struct Last<extern_kernels::RowWork::Norm> {
  static constexpr auto value = extern_kernels::RowWork::layer;
};
template <> struct Last<extern_kernels::RowWork::Activation> {
  static constexpr auto value = extern_kernels::RowWork::silu;
};
template <> struct Last<extern_kernels::RowWork::Gate> {
  static constexpr auto value = extern_kernels::RowWork::second;
};

template <class A> void fields(A& a, runtime::SizeExpr::Item& v) {
  a.template all<runtime::SizeExpr::Item>(v.code, v.value);
}
template <class A> void fields(A& a, runtime::SizeExpr& v) { a.template all<runtime::SizeExpr>(v.items); }
template <class A> void fields(A& a, runtime::BufferPlan& v) {
  a.template all<runtime::BufferPlan>(v.name, v.dtype, v.sizes, v.strides, v.device, v.storage, v.index,
                                      v.first_step, v.last_step);
}
template <class A> void fields(A& a, runtime::KernelLaunch& v) {
  a.template all<runtime::KernelLaunch>(v.blocks, v.threads, v.shared_bytes, v.teams, v.overlaps);
}
template <class A> void fields(A& a, runtime::KernelStep& v) {
  a.template all<runtime::KernelStep>(v.name, v.buffers, v.writes, v.offset_bytes, v.size_args, v.tasks,
                                      v.scratch_bytes, v.state_bytes, v.check_origins, v.cost_per_task,
                                      v.sequential, v.launch);
}
template <class A> void fields(A& a, runtime::OperandView& v) {
  a.template all<runtime::OperandView>(v.buffer, v.sizes, v.strides, v.offset);
}
template <class A> void fields(A& a, extern_kernels::PostOp& v) {
  a.template all<extern_kernels::PostOp>(v.kind, v.alpha, v.beta, v.operand);
}
template <class A> void fields(A& a, extern_kernels::ConvProblem& v) {
  a.template all<extern_kernels::ConvProblem>(v.spatial_rank, v.transposed, v.has_bias, v.precision, v.x_zero,
                                              v.group, v.strides, v.dilations, v.pads_begin, v.pads_end,
                                              v.post_ops);
}
template <class A> void fields(A& a, extern_kernels::MatMulProblem& v) {
  a.template all<extern_kernels::MatMulProblem>(v.has_bias, v.a_zero, v.b_zero, v.alpha, v.precision,
                                                v.post_ops);
}
template <class A> void fields(A& a, extern_kernels::HeadRotation& v) {
  a.template all<extern_kernels::HeadRotation>(v.width, v.interleaved, v.rounded, v.queries, v.keys);
}
template <class A> void fields(A& a, extern_kernels::AttentionProblem& v) {
  a.template all<extern_kernels::AttentionProblem>(
      v.scale, v.causal, v.from_end, v.has_mask, v.has_starts, v.has_sinks, v.tokens_first,
      v.zero_undefined_rows, v.zero_hidden_rows, v.window, v.softcap, v.carries, v.appends, v.rotation);
}
template <class A> void fields(A& a, extern_kernels::GateActivation& v) {
  a.template all<extern_kernels::GateActivation>(v.kind, v.alpha, v.beta);
}
template <class A> void fields(A& a, extern_kernels::RecurrentProblem& v) {
  a.template all<extern_kernels::RecurrentProblem>(v.cell, v.direction, v.batch_first, v.input_forget,
                                                   v.gives_y, v.gives_h, v.gives_c, v.clip, v.activations);
}
template <class A> void fields(A& a, extern_kernels::RowWork& v) {
  a.template all<extern_kernels::RowWork>(v.norm, v.activation, v.gate, v.epsilon, v.rounded);
}
template <class A> void fields(A& a, extern_kernels::PackedMatMulProblem& v) {
  a.template all<extern_kernels::PackedMatMulProblem>(v.k, v.n, v.block, v.bits, v.rounds, v.work);
}
template <class A> void fields(A& a, extern_kernels::RowProductProblem& v) {
  a.template all<extern_kernels::RowProductProblem>(v.work);
}
template <class A> void fields(A& a, extern_kernels::ExpertsProblem& v) {
  a.template all<extern_kernels::ExpertsProblem>(v.bits, v.block, v.rounds);
}
template <class A> void fields(A& a, extern_kernels::HostProblem& v) {
  static_assert(kArity<extern_kernels::HostProblem> == 6, "a member is not saved");
  if (v.custom)
    throw Error(ErrorKind::unsupported,
                "operator " + v.op + " comes from a library of the user's and cannot be saved in a package",
                "run the ONNX model with the library, or leave the operator to its caller");
  a(v.domain, v.op, v.opset, v.attributes, v.output_types);
}
template <class A> void fields(A& a, runtime::ExternStep& v) {
  a.template all<runtime::ExternStep>(v.problem, v.inputs, v.outputs, v.dynamic_outputs, v.bound_symbols,
                                      v.dynamic_dims);
}
template <class A> void fields(A& a, runtime::CopyStep& v) {
  a.template all<runtime::CopyStep>(v.from, v.to);
}
template <class A> void fields(A& a, runtime::Step& v) {
  a.template all<runtime::Step>(v.what, v.origins, v.device);
}
template <class A> void fields(A& a, runtime::SignatureEntry& v) {
  a.template all<runtime::SignatureEntry>(v.name, v.dtype, v.dims, v.sizes, v.buffer, v.ranked, v.state_axis,
                                          v.state_after, v.state_room, v.state_limit);
}
template <class A> void fields(A& a, runtime::SymbolBinding& v) {
  a.template all<runtime::SymbolBinding>(v.symbol, v.input, v.dim, v.of);
}
template <class A> void fields(A& a, runtime::PlanCheck& v) {
  a.template all<runtime::PlanCheck>(v.value, v.equal, v.message, v.assumption, v.where);
}
template <class A> void fields(A& a, runtime::Executable& v) {
  a.template all<runtime::Executable>(v.symbol_names, v.bindings, v.checks, v.inputs, v.outputs, v.buffers,
                                      v.constants, v.steps, v.origin_names);
}

} // namespace tbx::archive
