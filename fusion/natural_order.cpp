#include "fusion/natural_order.h"

#include <algorithm>
#include <optional>

#include "fusion/dependencies.h"

namespace tbx::fusion {

using namespace ir;

namespace {

/// Per dimension of a buffer the loop variables that its index counts, outermost first, and where it begins.
struct Digits {
  std::vector<std::vector<int>> variables;
  SymInts start, extent;
};

SymInt row_major(const std::vector<int>& variables, const SymInts& ranges, Context& c) {
  SymInt index = 0;
  for (int v : variables) index = index * ranges[v] + c.var(v);
  return index;
}

/// The variables of `index` in the order that makes it their row-major number; nullopt when it is none.
std::optional<std::vector<int>> digits_of(SymInt index, const SymInts& ranges, Context& c) {
  constexpr size_t kMost = 4; // orders are tried one after the other
  std::vector<int> variables;
  for (size_t v = 0; v < ranges.size(); ++v)
    if (depends_on(index, c.var(static_cast<int>(v)).node())) variables.push_back(static_cast<int>(v));
  if (variables.size() > kMost) return std::nullopt;
  do {
    if (provably_equal(index, row_major(variables, ranges, c))) return variables;
  } while (std::next_permutation(variables.begin(), variables.end()));
  return std::nullopt;
}

/// How the points of a nest correspond to the elements of a box of the buffer that `load` reads; nullopt
/// unless it is one to one.
std::optional<Digits> match(const Program& program, Expr load, const SymInts& ranges) {
  Digits digits;
  std::vector<int> uses(ranges.size(), 0);
  const Substitution origin{SymInts(ranges.size(), SymInt(0)), {}};
  for (SymInt index : load->indices) {
    SymInt start = substitute(index, origin);
    auto found = digits_of(index - start, ranges, *program.context);
    if (!found) return std::nullopt;
    SymInt extent = 1;
    for (int v : *found) {
      extent = extent * ranges[v];
      ++uses[v];
    }
    digits.variables.push_back(std::move(*found));
    digits.start.push_back(start);
    digits.extent.push_back(extent);
  }
  for (size_t v = 0; v < ranges.size(); ++v)
    if (uses[v] != (ranges[v].is(1) ? 0 : 1)) return std::nullopt;
  return digits;
}

bool is_in_order(const Digits& digits) {
  int last = -1;
  for (const auto& variables : digits.variables)
    for (int v : variables) {
      if (v < last) return false;
      last = v;
    }
  return true;
}

class NaturalOrder {
public:
  explicit NaturalOrder(Program& program)
      : program_(program), c_(*program.context), deps_(analyse(program)) {}

  void run() {
    for (Operation& op : program_.operations) {
      auto* compute = std::get_if<Compute>(&op.what);
      if (!compute || compute->loops.kind != LoopKind::pointwise || !is_private_operand(compute->output))
        continue;
      std::vector<Expr> loads;
      visit(compute->loops.body, [&](Expr n) {
        if (n->op == Op::load) loads.push_back(n);
      });
      for (Expr load : loads)
        if (!load->mask() && program_.at(load->buffer).kind == BufferKind::computed &&
            try_order(*compute, load)) {
          op.reason += "; computed in the order of its input";
          break;
        }
    }
  }

private:
  /// Memory of its own that only matrix products read, as one of their two matrices.
  bool is_private_operand(BufferId id) const {
    const Buffer& b = program_.at(id);
    if (owner_of(program_, id) != id || deps_.is_output[id] || !b.is_flexible() ||
        deps_.readers[id].empty() || deps_.writers[id].size() != 1)
      return false;
    return std::all_of(deps_.readers[id].begin(), deps_.readers[id].end(), [&](int reader) {
      const auto* call = std::get_if<ExternCall>(&program_.operations[reader].what);
      if (!call || !std::holds_alternative<extern_kernels::MatMulProblem>(call->problem)) return false;
      for (size_t i = 2; i < call->inputs.size(); ++i)
        if (call->inputs[i].buffer == id) return false;
      return true;
    });
  }

  bool try_order(Compute& compute, Expr load) {
    const SymInts ranges = compute.loops.ranges;
    auto digits = match(program_, load, ranges);
    if (!digits || is_in_order(*digits)) return false;
    const SymInts& sizes = digits->extent;
    for (int reader : deps_.readers[compute.output])
      for (const ExternOperand& in : std::get<ExternCall>(program_.operations[reader].what).inputs)
        if (in.buffer == compute.output && !stays_a_matrix(in, *digits, ranges, sizes)) return false;

    Substitution s;
    s.vars.assign(ranges.size(), SymInt(0));
    for (size_t k = 0; k < sizes.size(); ++k) {
      SymInt rest = c_.var(static_cast<int>(k));
      for (size_t q = digits->variables[k].size(); q-- > 0;) {
        int v = digits->variables[k][q];
        s.vars[v] = q == 0 ? rest : mod(rest, ranges[v]);
        rest = floordiv(rest, ranges[v]);
      }
    }
    compute.loops.body = substitute(compute.loops.body, s);
    compute.loops.ranges = sizes;
    for (int reader : deps_.readers[compute.output])
      for (ExternOperand& in : std::get<ExternCall>(program_.operations[reader].what).inputs)
        if (in.buffer == compute.output) in = seen_through(in, *digits, ranges);
    program_.at(compute.output).sizes = sizes;
    return true;
  }

  /// The same view of the elements, of a buffer with the dimensions that `digits` make up.
  static ExternOperand seen_through(const ExternOperand& in, const Digits& digits, const SymInts& ranges) {
    size_t old_rank = ranges.size(), rank = digits.extent.size();
    ExternOperand out{in.buffer, in.sizes, SymInts(in.sizes.size() * rank, SymInt(0)),
                      SymInts(rank, SymInt(0))};
    for (size_t k = 0; k < rank; ++k) {
      SymInt weight = 1;
      for (size_t q = digits.variables[k].size(); q-- > 0;) {
        int v = digits.variables[k][q];
        out.start[k] += weight * in.start[v];
        for (size_t d = 0; d < in.sizes.size(); ++d)
          out.coefficients[d * rank + k] += weight * in.coefficients[d * old_rank + v];
        weight *= ranges[v];
      }
    }
    return out;
  }

  /// In the new order one of the two matrix dimensions is still contiguous and the other one steps over it.
  bool stays_a_matrix(const ExternOperand& in, const Digits& digits, const SymInts& ranges,
                      const SymInts& sizes) const {
    size_t n = in.sizes.size(), rank = sizes.size();
    if (n < 2) return false;
    ExternOperand seen = seen_through(in, digits, ranges);
    SymInts step(rank, SymInt(1));
    for (size_t k = rank - 1; k-- > 0;) step[k] = step[k + 1] * sizes[k + 1];
    auto stride = [&](size_t d) {
      SymInt s = 0;
      for (size_t k = 0; k < rank; ++k) s += seen.coefficients[d * rank + k] * step[k];
      return s;
    };
    auto fits = [&](size_t fast, size_t slow) {
      return stride(fast).is(1) && provably_nonnegative(stride(slow) - in.sizes[fast]);
    };
    return fits(n - 1, n - 2) || fits(n - 2, n - 1);
  }

  Program& program_;
  Context& c_;
  Dependencies deps_;
};

} // namespace

void keep_natural_order(Program& program) { NaturalOrder(program).run(); }

} // namespace tbx::fusion
