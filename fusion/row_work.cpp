#include "fusion/row_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "extern_kernels/cuda/select.h"
#include "fusion/operand_infos.h"
#include "fusion/row_norm.h"
#include "ir/activations.h"

namespace tbx::fusion {

using namespace ir;
using extern_kernels::MatMulProblem;
using extern_kernels::PackedMatMulProblem;
using extern_kernels::PostOp;
using extern_kernels::Problem;
using extern_kernels::RowProductProblem;
using extern_kernels::RowWork;

namespace {

/// Results: blocks of more than a GPU has at a time would each norm the row again, one after the other.
constexpr int64_t kMostNormed = 16384;

template <class P> auto work_of(P& problem) -> decltype(&std::get_if<RowProductProblem>(&problem)->work) {
  if (auto* row = std::get_if<RowProductProblem>(&problem)) return &row->work;
  if (auto* packed = std::get_if<PackedMatMulProblem>(&problem)) return &packed->work;
  return nullptr;
}

/// Where scale, shift and what is added are among the inputs; -1: there is no such.
struct Places {
  size_t scale, shift;
  int added;
};
Places places_of(const Problem& problem) {
  return std::holds_alternative<RowProductProblem>(problem) ? Places{3, 4, -1} : Places{5, 6, 7};
}

void put(ExternCall& call, size_t place, ExternOperand operand) {
  while (call.inputs.size() <= place) call.inputs.emplace_back();
  call.inputs[place] = std::move(operand);
}

/// The last two dimensions of a view whose others have one element.
std::optional<ExternOperand> flat(const ExternOperand& in) {
  const size_t rank = in.sizes.size(), r = in.start.size();
  if (rank < 2) return std::nullopt;
  for (size_t d = 0; d + 2 < rank; ++d)
    if (!in.sizes[d].is(1)) return std::nullopt;
  ExternOperand out = in;
  out.sizes.erase(out.sizes.begin(), out.sizes.end() - 2);
  out.coefficients.erase(out.coefficients.begin(),
                         out.coefficients.begin() + static_cast<std::ptrdiff_t>((rank - 2) * r));
  return out;
}

Expr activated(RowWork::Activation activation, Expr x) {
  switch (activation) {
  case RowWork::none: return x;
  case RowWork::relu: return relu(x);
  case RowWork::gelu_tanh: return gelu_tanh(x);
  case RowWork::gelu_erf: return gelu_erf(x);
  case RowWork::silu: return silu(x);
  }
  return x;
}
constexpr std::array kActivations = {RowWork::none, RowWork::relu, RowWork::gelu_tanh, RowWork::gelu_erf,
                                     RowWork::silu};

class RowWorkPass {
public:
  RowWorkPass(Program& program)
      : program_(program), deps_(analyse(program)), gone_(program.operations.size(), 0) {}

  void run() {
    for (size_t i = 0; i < program_.operations.size(); ++i)
      if (!gone_[i]) take(static_cast<int>(i));
    std::vector<Operation> kept;
    for (size_t i = 0; i < gone_.size(); ++i)
      if (!gone_[i]) kept.push_back(std::move(program_.operations[i]));
    program_.operations = std::move(kept);
  }

private:
  void take(int at) {
    const auto* call = std::get_if<ExternCall>(&program_.operations[at].what);
    if (!call || call->outputs.size() != 1 || !call->output_symbols.empty()) return;
    std::optional<ExternCall> row = as_row(*call);
    if (!row) return;
    const int behind = end_of(at, *row);
    const auto before = norm_of(*row);
    // Each for itself where the kernel does not take both.
    for (const bool with_end : {true, false})
      for (const bool with_norm : {true, false}) {
        if ((with_end && behind < 0) || (with_norm && !before) || (!with_end && !with_norm)) continue;
        ExternCall fused = *row;
        if (with_end) add_end(fused, behind);
        if (with_norm && fused.output_sizes[1].constant() > kMostNormed) continue;
        if (with_norm) add_norm(fused, *before);
        if (accepted(fused))
          return merge(at, std::move(fused), with_end ? behind : -1, with_norm ? &*before : nullptr);
      }
  }

  /// The same product as a problem of one row; nullopt where it is none.
  std::optional<ExternCall> as_row(const ExternCall& call) const {
    ExternCall row = call;
    if (std::holds_alternative<PackedMatMulProblem>(call.problem)) {
      const SymInts& x = call.inputs[0].sizes;
      const auto& packed = std::get<PackedMatMulProblem>(call.problem);
      if (x.size() != 2 || !x[0].is(1) || packed.work != RowWork{} || call.inputs.size() > 5)
        return std::nullopt;
      row.output_sizes = {1, packed.n};
      return row;
    }
    const auto* product = std::get_if<MatMulProblem>(&call.problem);
    if (!product || product->alpha != 1 || product->a_zero >= 0 || product->b_zero >= 0) return std::nullopt;
    RowProductProblem problem;
    if (!product->post_ops.empty()) {
      if (product->post_ops.size() > 1) return std::nullopt;
      switch (product->post_ops[0].kind) {
      case PostOp::relu: problem.work.activation = RowWork::relu; break;
      case PostOp::gelu_tanh: problem.work.activation = RowWork::gelu_tanh; break;
      default: return std::nullopt;
      }
    }
    row.problem = problem;
    row.inputs.clear();
    for (size_t i = 0; i < (product->has_bias ? 3u : 2u); ++i) {
      auto operand = flat(call.inputs[i]);
      if (!operand) return std::nullopt;
      row.inputs.push_back(std::move(*operand));
    }
    const SymInt columns = row.inputs[1].sizes[1];
    if (!row.inputs[0].sizes[0].is(1) || !columns.is_constant() ||
        (product->has_bias && !(row.inputs[2].sizes[0].is(1) && row.inputs[2].sizes[1] == columns)))
      return std::nullopt;
    row.output_sizes = {1, columns};
    return row;
  }

  /// What follows the product and nothing else reads: an activation, a gate, a sum.
  struct End {
    RowWork::Activation activation = RowWork::none;
    RowWork::Gate gate = RowWork::no_gate;
    std::optional<ExternOperand> added{};
  };

  /// The operation behind the product at `at` that its kernel might do; -1: there is none. `end_` says what
  /// it does.
  int end_of(int at, const ExternCall& row) {
    const BufferId result = row.outputs[0];
    if (owner_of(program_, result) != result || deps_.is_output[result] || deps_.readers[result].size() != 1)
      return -1;
    const int reader = deps_.readers[result][0];
    const auto* compute = std::get_if<Compute>(&program_.operations[reader].what);
    if (reader <= at || !compute || compute->loops.kind != LoopKind::pointwise ||
        program_.at(compute->output).slice_of >= 0 || work_of(row.problem)->activation != RowWork::none)
      return -1;
    const DType type = compute->loops.dtype;
    if (type != DType::f32 && !is_half(type)) return -1;
    const SymInt results = product(compute->loops.ranges), columns = product(program_.at(result).sizes);
    if (!results.is_constant() || !columns.is_constant()) return -1;
    Expr body = compute->loops.body;
    if (body->op == Op::round_to && is_half(type) && body->format == type) body = body->args[0];
    // The elements that it reads of the result, by where they begin.
    std::vector<Expr> loads;
    visit(body, [&](Expr n) {
      if (n->op == Op::load) loads.push_back(n);
    });
    const bool gated = columns == results * 2;
    if (!gated && columns != results) return -1;
    if (!gated && loads.size() == 2 && adds(row, body, loads, compute->loops.ranges, results)) return reader;
    if (loads.size() != (gated ? 2u : 1u)) return -1;
    Expr halves[2] = {nullptr, nullptr};
    for (Expr load : loads) {
      const int half = half_of(load, result, compute->loops.ranges, results);
      if (half < 0 || half > (gated ? 1 : 0) || halves[half]) return -1;
      halves[half] = load;
    }
    for (RowWork::Activation a : kActivations) {
      if (!gated && a != RowWork::none && activated(a, halves[0]) == body) {
        end_ = {a, RowWork::no_gate};
        return reader;
      }
      for (int through : {0, 1})
        if (gated && mul(activated(a, halves[through]), halves[1 - through]) == body) {
          end_ = {a, through == 0 ? RowWork::first : RowWork::second};
          return reader;
        }
    }
    return -1;
  }

  /// The body is the product plus another row, which products of packed integers add themselves.
  bool adds(const ExternCall& row, Expr body, const std::vector<Expr>& loads, const SymInts& ranges,
            SymInt results) {
    const int place = places_of(row.problem).added;
    if (place < 0 || add(loads[0], loads[1]) != body) return false;
    for (int side : {0, 1}) {
      if (half_of(loads[side], row.outputs[0], ranges, results) != 0) continue;
      for (size_t v = 0; v < ranges.size(); ++v) {
        if (ranges[v].is(1)) continue;
        if (ranges[v] != results) return false;
        end_ = {RowWork::none, RowWork::no_gate,
                row_view(program_, loads[1 - side], program_.context->var(static_cast<int>(v)), results)};
        return end_.added.has_value();
      }
    }
    return false;
  }

  /// The load reads element i of the result in round i of the loops: 0; element i + results: 1; else -1.
  int half_of(Expr load, BufferId result, const SymInts& ranges, SymInt results) const {
    if (load->buffer != result || load->mask()) return -1;
    SymInt index = 0, point = 0;
    const SymInts& sizes = program_.at(result).sizes;
    for (size_t d = 0; d < sizes.size(); ++d) index = index * sizes[d] + load->indices[d];
    for (size_t v = 0; v < ranges.size(); ++v)
      if (!ranges[v].is(1)) point = point * ranges[v] + program_.context->var(static_cast<int>(v));
    if (provably_equal(index, point)) return 0;
    return provably_equal(index, point + results) ? 1 : -1;
  }

  /// What norms the row, where nobody else reads that.
  std::optional<RowNorm> norm_of(const ExternCall& row) const {
    const ExternOperand& x = row.inputs[0];
    const BufferId id = x.buffer;
    if (owner_of(program_, id) != id || deps_.is_output[id] || deps_.readers[id].size() != 1 ||
        deps_.writers[id].size() != 1)
      return std::nullopt;
    // All of it, in its order.
    const Buffer& b = program_.at(id);
    if (!provably_equal(product(b.sizes), x.sizes[1])) return std::nullopt;
    SymInt step = 0;
    const SymInts strides = contiguous_strides(b.sizes);
    for (size_t d = 0; d < b.sizes.size(); ++d) step += x.coefficients[b.sizes.size() + d] * strides[d];
    if (!step.is(1)) return std::nullopt;
    return find_row_norm(program_, deps_, deps_.writers[id][0]);
  }

  void add_end(ExternCall& call, int behind) const {
    const auto& compute = std::get<Compute>(program_.operations[behind].what);
    RowWork& work = *work_of(call.problem);
    work.activation = end_.activation, work.gate = end_.gate;
    if (end_.added) put(call, static_cast<size_t>(places_of(call.problem).added), *end_.added);
    call.outputs = {compute.output};
    call.output_sizes = {1, product(compute.loops.ranges)};
  }

  static void add_norm(ExternCall& call, const RowNorm& norm) {
    RowWork& work = *work_of(call.problem);
    work.norm = norm.work.norm, work.epsilon = norm.work.epsilon, work.rounded = norm.work.rounded;
    call.inputs[0] = norm.x;
    const Places places = places_of(call.problem);
    if (norm.scale.buffer >= 0) put(call, places.scale, norm.scale);
    if (norm.shift.buffer >= 0) put(call, places.shift, norm.shift);
  }

  bool accepted(const ExternCall& call) const {
    const auto [inputs, outputs] = operand_infos(program_, call, call.output_sizes);
    return extern_kernels::accepts_on_gpu(call.problem, inputs, outputs).empty();
  }

  /// `call` takes the place of all that it does: that of the last of them.
  void merge(int at, ExternCall call, int behind, const RowNorm* norm) {
    Operation& product = program_.operations[at];
    Operation merged{std::move(call), product.origins, product.reason};
    auto take_over = [&](int op) {
      const std::vector<int>& origins = program_.operations[op].origins;
      merged.origins.insert(merged.origins.end(), origins.begin(), origins.end());
      gone_[op] = 1;
    };
    gone_[at] = 1;
    if (norm) {
      merged.reason += "; each block norms the row";
      for (int op : norm->operations) take_over(op);
    }
    if (behind >= 0) {
      merged.reason += end_.added                      ? "; sum at its end"
                       : end_.gate == RowWork::no_gate ? "; activation at its end"
                                                       : "; gate at its end";
      take_over(behind);
    }
    const int place = behind >= 0 ? behind : at;
    gone_[place] = 0;
    program_.operations[place] = std::move(merged);
  }

  Program& program_;
  Dependencies deps_;
  std::vector<char> gone_; ///< by operation
  End end_{};
};

} // namespace

void fuse_row_work(Program& program, const Target& target) {
  if (target.cuda) RowWorkPass(program).run();
}

} // namespace tbx::fusion
