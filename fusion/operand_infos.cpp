#include "fusion/operand_infos.h"

namespace tbx::fusion {

using namespace ir;

namespace {

extern_kernels::OperandInfo info_of(const Program& program, BufferId id, const SymInts& sizes) {
  extern_kernels::OperandInfo info;
  if (id < 0) return info;
  info.dtype = program.at(id).dtype;
  for (SymInt s : sizes) info.sizes.push_back(s.as_constant().value_or(-1));
  return info;
}

/// The strides of an operand that shows its buffer, which is a constant and lies as it is.
void add_constant(const Program& program, extern_kernels::OperandInfo& info, const ExternOperand& in) {
  if (in.buffer < 0 || program.at(in.buffer).kind != BufferKind::constant) return;
  const Buffer& b = program.at(in.buffer);
  const size_t rank = b.sizes.size();
  const SymInts steps = contiguous_strides(b.sizes);
  for (SymInt s : in.start)
    if (!s.is(0)) return;
  for (size_t d = 0; d < in.sizes.size(); ++d) {
    SymInt stride = 0;
    for (size_t k = 0; k < rank; ++k) stride += in.coefficients[d * rank + k] * steps[k];
    if (!stride.is_constant()) return info.strides.clear();
    info.strides.push_back(stride.constant());
  }
  info.constant = b.constant;
}

} // namespace

OperandInfos operand_infos(const Program& program, const ExternCall& call, const SymInts& result) {
  OperandInfos infos;
  infos.outputs = {info_of(program, call.outputs[0], result)};
  for (const ExternOperand& in : call.inputs) {
    infos.inputs.push_back(info_of(program, in.buffer, in.sizes));
    add_constant(program, infos.inputs.back(), in);
  }
  return infos;
}

} // namespace tbx::fusion
