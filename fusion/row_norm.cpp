#include "fusion/row_norm.h"

#include <algorithm>

#include "extern_kernels/problem.h"

namespace tbx::fusion {

using namespace ir;
using extern_kernels::RowWork;

namespace {

/// The operand of a unary operation; nullptr where it is another one.
Expr argument(Expr e, Op op) { return e && e->op == op ? e->args[0] : nullptr; }

std::optional<double> number_of(Expr e) {
  if (e->op != Op::constant || e->dtype != DType::f32) return std::nullopt;
  return e->as_double();
}

/// Widened halves, as they lie.
Expr unwidened(Expr e) { return e->op == Op::cast && is_half(e->args[0]->dtype) ? e->args[0] : e; }

class Finder {
public:
  Finder(const Program& program, const Dependencies& deps, int op)
      : program_(program), deps_(deps), op_(op) {}

  std::optional<RowNorm> run() {
    const auto* compute = compute_at(op_);
    if (!compute || compute->loops.kind != LoopKind::pointwise) return std::nullopt;
    if (!read_along(compute->loops.ranges)) return std::nullopt;
    found_.operations = {op_};
    Expr e = compute->loops.body;
    // The store rounds.
    if (e->op == Op::round_to && is_half(compute->loops.dtype) && e->format == compute->loops.dtype)
      e = e->args[0];
    e = without_vector(e, Op::add, found_.shift);
    e = without_vector(e, Op::mul, found_.scale);
    if (e->op == Op::round_to && is_half(e->format)) {
      found_.work.rounded = e->format;
      e = e->args[0];
    }
    if (e->op != Op::mul) return std::nullopt;
    for (int side : {0, 1})
      if (is_normed(e->args[side], e->args[1 - side])) return std::move(found_);
    return std::nullopt;
  }

private:
  const Compute* compute_at(int op) const { return std::get_if<Compute>(&program_.operations[op].what); }

  /// One variable runs, along the row.
  bool read_along(const SymInts& ranges) {
    for (size_t v = 0; v < ranges.size(); ++v) {
      if (ranges[v].is(1)) continue;
      if (variable_ >= 0 || !ranges[v].is_constant()) return false;
      variable_ = static_cast<int>(v);
    }
    if (variable_ < 0) return false;
    length_ = ranges[variable_];
    return true;
  }

  std::optional<ExternOperand> row_of(Expr load, SymInt variable) const {
    return row_view(program_, load, variable, length_);
  }

  /// `e` without the constant vector that `op` joins with it, which becomes `operand`.
  Expr without_vector(Expr e, Op op, ExternOperand& operand) const {
    if (e->op != op) return e;
    for (int side : {0, 1}) {
      const Expr vector = unwidened(e->args[side]);
      if (vector->op != Op::load || program_.at(vector->buffer).kind != BufferKind::constant) continue;
      auto row = row_of(vector, program_.context->var(variable_));
      if (!row) continue;
      operand = std::move(*row);
      return e->args[1 - side];
    }
    return e;
  }

  /// The operation that gives the only element that `load` reads, for operations of the norm alone: `readers`
  /// of them.
  int only_writer(Expr load, size_t readers) {
    if (load->op != Op::load || load->mask()) return -1;
    const BufferId id = load->buffer;
    const Buffer& b = program_.at(id);
    if (!product(b.sizes).is(1) || owner_of(program_, id) != id || deps_.is_output[id] ||
        deps_.readers[id].size() != readers || deps_.writers[id].size() != 1)
      return -1;
    const int writer = deps_.writers[id][0];
    if (!compute_at(writer)) return -1;
    found_.operations.push_back(writer);
    return writer;
  }

  /// `sum` is that of a row: what is added, by the variable of its loop.
  Expr summed(Expr sum, size_t readers) {
    const int writer = only_writer(sum, readers);
    const Loops* loops = writer < 0 ? nullptr : &compute_at(writer)->loops;
    if (!loops || loops->kind != LoopKind::reduction || loops->reduce != ReduceOp::sum ||
        loops->reduction_ranges.size() != 1 || loops->reduction_ranges[0] != length_)
      return nullptr;
    return loops->body;
  }

  /// What `e` is over the length of the row: a power of two is multiplied by its reciprocal.
  Expr over_length(Expr e) const {
    if (!e || (e->op != Op::div && e->op != Op::mul)) return nullptr;
    const auto length = static_cast<double>(length_.constant());
    for (int side : {0, 1}) {
      if (e->op == Op::div && side == 1) break;
      const auto n = number_of(e->args[1 - side]);
      if (n && *n == (e->op == Op::div ? length : 1 / length)) return e->args[side];
    }
    return nullptr;
  }

  /// `centred` is x or x - mean, `factor` one over its root mean square.
  bool is_normed(Expr centred, Expr factor) {
    const size_t known = found_.operations.size();
    if (is_normed_by(centred, factor)) return true;
    found_.operations.resize(known);
    return false;
  }

  bool is_normed_by(Expr centred, Expr factor) {
    const bool with_mean = centred->op == Op::sub;
    const Expr x = unwidened(with_mean ? centred->args[0] : centred),
               mean = with_mean ? centred->args[1] : nullptr;
    auto row = row_of(x, program_.context->var(variable_));
    if (!row) return false;
    const Expr x_at = x; // as the sums see it
    const int inverse = only_writer(factor, 1);
    if (inverse < 0) return false;
    const Expr sum = argument(argument(compute_at(inverse)->loops.body, Op::reciprocal), Op::sqrt);
    if (!sum || sum->op != Op::add) return false;
    Expr squares = nullptr;
    for (int side : {0, 1}) {
      const auto epsilon = number_of(sum->args[side]);
      if (!epsilon) continue;
      squares = over_length(sum->args[1 - side]);
      found_.work.epsilon = static_cast<float>(*epsilon);
    }
    const Expr square = squares ? summed(squares, 1) : nullptr;
    if (!square || square->op != Op::mul || square->args[0] != square->args[1]) return false;
    const Expr term = square->args[0];
    if (with_mean) {
      if (term->op != Op::sub || !is_same_row(unwidened(term->args[0]), x_at) ||
          !is_element(term->args[1], mean))
        return false;
      const int division = only_writer(mean, 2);
      const Expr total = division < 0 ? nullptr : over_length(compute_at(division)->loops.body);
      const Expr terms = total ? summed(total, 1) : nullptr;
      if (!terms || !is_same_row(unwidened(terms), x_at)) return false;
    } else if (!is_same_row(unwidened(term), x_at)) {
      return false;
    }
    found_.work.norm = with_mean ? RowWork::layer : RowWork::root_mean_square;
    found_.x = std::move(*row);
    return true;
  }

  /// The load of a sum reads what `x` reads, by the variable of its loop.
  bool is_same_row(Expr load, Expr x) const {
    if (load->op != Op::load || load->mask() || load->buffer != x->buffer) return false;
    for (size_t d = 0; d < x->indices.size(); ++d) {
      const bool along = x->indices[d] == program_.context->var(variable_);
      if (load->indices[d] != (along ? program_.context->rvar(0) : x->indices[d])) return false;
    }
    return true;
  }

  /// Both read the only element of one buffer.
  static bool is_element(Expr a, Expr b) {
    return a->op == Op::load && b->op == Op::load && !a->mask() && a->buffer == b->buffer;
  }

  const Program& program_;
  const Dependencies& deps_;
  const int op_;
  int variable_ = -1;
  SymInt length_ = 0;
  RowNorm found_;
};

} // namespace

std::optional<ExternOperand> row_view(const Program& program, Expr load, SymInt variable, SymInt length) {
  if (load->op != Op::load || load->mask()) return std::nullopt;
  const Buffer& b = program.at(load->buffer);
  const size_t rank = b.sizes.size();
  ExternOperand row{load->buffer, {1, length}, SymInts(2 * rank, SymInt(0)), SymInts(rank, SymInt(0))};
  bool moves = false;
  for (size_t d = 0; d < rank; ++d) {
    if (load->indices[d] == variable) {
      if (moves || !provably_equal(b.sizes[d], length)) return std::nullopt;
      moves = true;
      row.coefficients[rank + d] = 1;
    } else {
      if (!load->indices[d].is_constant()) return std::nullopt;
      row.start[d] = load->indices[d];
    }
  }
  if (!moves || !(b.dtype == DType::f32 || is_half(b.dtype))) return std::nullopt;
  return row;
}

std::optional<RowNorm> find_row_norm(const Program& program, const Dependencies& deps, int op) {
  return Finder(program, deps, op).run();
}

} // namespace tbx::fusion
