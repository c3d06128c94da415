#include "driver/call_work.h"

namespace tbx::driver {

using namespace ir;
using namespace extern_kernels;

namespace {

using Operands = std::vector<ExternOperand>;

std::vector<CallWork> work(const MatMulProblem&, const Operands& in, SymInts result) {
  result.push_back(in[0].sizes.back());
  return {{2, result}};
}

std::vector<CallWork> work(const ConvProblem& p, const Operands& in, const SymInts& result) {
  SymInts sizes = p.transposed ? in[0].sizes : result;
  const SymInts& w = in[1].sizes;
  sizes.insert(sizes.end(), w.begin() + 1, w.end());
  return {{2, sizes}};
}

/// The products with keys and with values. Of masks only the diagonal of equal lengths is known here, which
/// leaves one half, and a window.
std::vector<CallWork> work(const AttentionProblem& p, const Operands& in, const SymInts&) {
  const SymInts &q = in[0].sizes, &v = in[2].sizes;
  SymInt keys = in[1].sizes[2];
  const bool half = p.causal && !p.has_starts && p.window == 0 && q[2] == keys;
  if (p.causal && p.window > 0) keys = min(keys, p.window);
  std::vector<CallWork> found;
  for (SymInt terms : {q[3], v[3]}) found.push_back({half ? 1.0 : 2.0, {q[0], q[1], q[2], keys, terms}});
  return found;
}

/// The products with the input are calls of their own.
std::vector<CallWork> work(const RecurrentProblem&, const Operands& in, const SymInts&) {
  const SymInts &x = in[0].sizes, &r = in[1].sizes;
  return {{2, {x[0], x[1], r[0], r[1], r[2]}}};
}

std::vector<CallWork> work(const PackedMatMulProblem& p, const Operands& in, const SymInts&) {
  const SymInts& a = in[0].sizes;
  return {{2, {a[0], a[1], p.n}}};
}

std::vector<CallWork> work(const RowProductProblem&, const Operands& in, const SymInts&) {
  return {{2, in[1].sizes}};
}

std::vector<CallWork> work(const ExpertsProblem&, const Operands& in, const SymInts&) {
  const SymInts& choices = in[1].sizes;
  return {{2, {choices[0], choices[1], in[2].sizes[1], in[0].sizes[1]}}};
}

std::vector<CallWork> work(const HostProblem&, const Operands&, const SymInts&) { return {}; }

} // namespace

std::vector<CallWork> work_of(const Program& program, const ExternCall& call) {
  if (call.outputs.empty() || call.outputs[0] < 0) return {};
  const SymInts& result = program.at(call.outputs[0]).sizes;
  return std::visit([&](const auto& p) { return work(p, call.inputs, result); }, call.problem);
}

} // namespace tbx::driver
