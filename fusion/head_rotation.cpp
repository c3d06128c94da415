#include "fusion/head_rotation.h"

#include <algorithm>
#include <array>

namespace tbx::fusion {

using namespace ir;

namespace {

constexpr int64_t kWidest = 1024; ///< elements of a head, each of which is looked at

/// A load, or what is 0 less it.
struct Factor {
  Expr load = nullptr;
  bool negative = false;
};

/// A product of two loads, or what is 0 less it.
struct Term {
  std::array<Factor, 2> factors;
  bool negative = false;
  DType rounded = DType::undefined;
};

/// Element of a row: a load, or a sum of two products.
struct Element {
  Expr load = nullptr;
  std::array<Term, 2> terms;
  DType result = DType::undefined;
};

/// The elements that a load of `base` reads further on: `step` in dimension `along` for each.
struct Line {
  Expr base = nullptr;
  size_t along = 0;
  int64_t step = 0;

  bool reads(Expr load, int64_t place) const {
    if (load->op != Op::load || load->buffer != base->buffer || load->mask()) return false;
    for (size_t k = 0; k < load->indices.size(); ++k)
      if (!provably_equal(load->indices[k], base->indices[k] + SymInt(k == along ? place * step : 0)))
        return false;
    return true;
  }
};

/// The line through `base` that has `load` at `place`.
std::optional<Line> line_through(Expr base, Expr load, int64_t place) {
  if (load->buffer != base->buffer) return std::nullopt;
  for (size_t k = 0; k < load->indices.size(); ++k) {
    const SymInt step = load->indices[k] - base->indices[k];
    if (step.is(0)) continue;
    if (!step.is_constant() || step.constant() % place != 0) return std::nullopt;
    const Line line{base, k, step.constant() / place};
    return line.reads(load, place) ? std::optional(line) : std::nullopt;
  }
  return std::nullopt;
}

/// Elements of rows as expressions of what is in memory before them.
class Rows {
public:
  /// `joined`: loads of concatenations become what was put there.
  Rows(const Program& program, const Dependencies& deps, const ExternOperand& operand, bool joined)
      : program_(program), deps_(deps), operand_(operand), joined_(joined),
        c_(*program.context), extents_{operand.sizes, {}} {}

  /// nullptr: it is not known.
  Expr element(int64_t d) {
    SymInts at(operand_.start);
    for (size_t k = 0; k < at.size(); ++k)
      for (size_t v = 0; v < operand_.sizes.size(); ++v)
        at[k] += operand_.coefficients[v * at.size() + k] * index(v, d);
    carry(program_.at(operand_.buffer), at);
    return value(operand_.buffer, at, 0);
  }

  const std::vector<int>& operations() const { return operations_; }

private:
  /// A view of several dimensions as one counts on in the last of them.
  void carry(const Buffer& b, SymInts& at) const {
    for (size_t k = at.size() - 1; k > 0; --k) {
      if (!b.sizes[k].is_constant() || b.sizes[k].constant() < 1) continue;
      const SymInt size = b.sizes[k];
      if (!b.strides.empty() && !provably_equal(b.strides[k - 1], b.strides[k] * size)) continue;
      SymInt rest = at[k], whole = 0;
      for (const int v : {0, 1}) {
        const auto affine = affine_in(rest, c_.var(v).node());
        if (!affine || !affine->coefficient.is_constant()) continue;
        const int64_t each = affine->coefficient.constant();
        if (each % size.constant() != 0) continue;
        whole += c_.var(v) * SymInt(each / size.constant());
        rest = affine->rest;
      }
      if (rest.is_constant()) {
        whole += SymInt(rest.constant() / size.constant());
        rest = rest.constant() % size.constant();
      }
      at[k] = rest;
      at[k - 1] += whole;
    }
  }

  SymInt index(size_t v, int64_t d) const {
    if (v == 3) return d;
    return operand_.sizes[v].is(1) ? SymInt(0) : c_.var(static_cast<int>(v));
  }

  /// What is at `at` of a buffer that pointwise nests write, each its part.
  Expr value(BufferId id, const SymInts& at, int depth) {
    constexpr int kDeepest = 4;
    if (depth > kDeepest || owner_of(program_, id) != id) return nullptr;
    for (int op : deps_.writers[id]) {
      const auto* compute = std::get_if<Compute>(&program_.operations[op].what);
      if (!compute || compute->loops.kind != LoopKind::pointwise) return nullptr;
      SymInts local = at;
      const std::optional<bool> writes = locate(compute->output, id, local);
      if (!writes) return nullptr;
      if (!*writes) continue;
      if (depth == 0 && std::count(operations_.begin(), operations_.end(), op) == 0)
        operations_.push_back(op);
      const Expr body = simplify(substitute(compute->loops.body, {local, {}}), extents_);
      // What is in memory only until it is rotated is as it is within a kernel.
      const Expr e = depth == 0 ? stored(body, program_.at(id).dtype) : body;
      return joined_ ? expanded(e, depth) : e;
    }
    return nullptr;
  }

  /// As it is in memory of this type.
  Expr stored(Expr e, DType type) const {
    return is_half(type) && e->dtype == DType::f32 ? c_.round_to(e, type) : e;
  }

  /// Whether `part` of the buffer has the element `at`, which becomes its place there.
  std::optional<bool> locate(BufferId part, BufferId whole, SymInts& at) const {
    const Buffer& b = program_.at(part);
    if (part == whole) return true;
    if (b.slice_of < 0) return std::nullopt;
    if (b.slice_of != whole) {
      const std::optional<bool> outer = locate(b.slice_of, whole, at);
      if (!outer || !*outer) return outer;
    }
    for (size_t k = 0; k < at.size(); ++k) {
      at[k] = at[k] - b.slice_start[k];
      const auto [low, high] = bounds_of(at[k], extents_);
      if (low >= 0 && provably_less(at[k], b.sizes[k], extents_)) continue;
      if (high < 0 || (b.sizes[k].is_constant() && low >= b.sizes[k].constant())) return false;
      return std::nullopt;
    }
    return true;
  }

  Expr expanded(Expr e, int depth) {
    bool known = true;
    const Expr made = rewrite(e, [&](Expr n) {
      if (n->op != Op::load || n->mask() || deps_.writers[owner_of(program_, n->buffer)].size() < 2) return n;
      const Expr inner = value(n->buffer, n->indices, depth + 1);
      known = known && inner && inner->dtype == n->dtype;
      return known ? inner : n;
    });
    return known ? made : nullptr;
  }

  const Program& program_;
  const Dependencies& deps_;
  const ExternOperand& operand_;
  const bool joined_;
  Context& c_;
  const Extents extents_;
  std::vector<int> operations_;
};

class Finder {
public:
  Finder(const Program& program, const Dependencies& deps, const ExternOperand& operand, bool joined)
      : program_(program), deps_(deps), operand_(operand), rows_(program, deps, operand, joined) {}

  std::optional<RotatedHeads> run() {
    if (!read_elements()) return std::nullopt;
    for (const bool interleaved : {false, true})
      for (const int own : {0, 1})
        for (const int side : {0, 1})
          for (const int other_side : {0, 1})
            if (fits(interleaved, own, side, other_side)) return std::move(found_);
    return std::nullopt;
  }

private:
  bool read_elements() {
    const SymInts& sizes = operand_.sizes;
    if (operand_.buffer < 0 || sizes.size() != 4 || !sizes[2].is(1) || !sizes[3].is_constant() ||
        sizes[3].constant() < 2 || sizes[3].constant() > kWidest)
      return false;
    for (int64_t d = 0; d < sizes[3].constant(); ++d) {
      const Expr e = rows_.element(d);
      std::optional<Element> element = e ? element_of(e) : std::nullopt;
      if (!element) return false;
      if (!element->load && width_++ < d) return false; // what is turned comes first
      elements_.push_back(*element);
      if (!has_same_result(elements_.back())) return false;
    }
    return width_ > 0 && width_ % 2 == 0;
  }

  /// What is not turned may have the type of the result anyway.
  bool has_same_result(const Element& e) const {
    const DType result = elements_[0].result;
    return e.result == result ||
           (e.load && e.result == DType::undefined && program_.at(e.load->buffer).dtype == result);
  }

  /// Rounding to the type in which memory has it changes nothing.
  std::optional<Factor> factor_of(Expr e) const {
    Factor f;
    DType rounded = DType::undefined;
    for (;; e = e->args[0]) {
      if (e->op == Op::neg)
        f.negative = !f.negative;
      else if (e->op == Op::round_to && (rounded == DType::undefined || rounded == e->format))
        rounded = e->format;
      else
        break;
    }
    if (e->op != Op::load || e->mask() || e->dtype != DType::f32) return std::nullopt;
    if (rounded != DType::undefined && program_.at(e->buffer).dtype != rounded) return std::nullopt;
    f.load = e;
    return f;
  }

  std::optional<Term> term_of(Expr e) const {
    Term t;
    for (;; e = e->args[0]) {
      if (e->op == Op::neg)
        t.negative = !t.negative;
      else if (e->op == Op::round_to && t.rounded == DType::undefined)
        t.rounded = e->format;
      else
        break;
    }
    if (e->op != Op::mul) return std::nullopt;
    for (size_t i : {0, 1}) {
      const auto f = factor_of(e->args[i]);
      if (!f) return std::nullopt;
      t.factors[i] = *f;
      t.negative ^= f->negative;
    }
    return t;
  }

  std::optional<Element> element_of(Expr e) const {
    Element element;
    auto plain = factor_of(e);
    if (!plain && e->op == Op::round_to) {
      element.result = e->format, e = e->args[0];
      plain = factor_of(e);
    }
    if (plain) {
      element.load = plain->negative ? nullptr : plain->load;
      return element.load ? std::optional(element) : std::nullopt;
    }
    if (e->op != Op::add && e->op != Op::sub) return std::nullopt;
    for (size_t i : {0, 1}) {
      const auto t = term_of(e->args[i]);
      if (!t) return std::nullopt;
      element.terms[i] = *t;
    }
    element.terms[1].negative ^= e->op == Op::sub;
    if (element.terms[0].rounded != element.terms[1].rounded) return std::nullopt;
    return element;
  }

  int64_t other_of(int64_t d) const {
    return found_.rotation.interleaved ? d ^ 1 : d < width_ / 2 ? d + width_ / 2 : d - width_ / 2;
  }

  /// The term of element 0 that has itself is `own`, its factor `side` is x; that of the other term
  /// `other_side`.
  bool fits(bool interleaved, int own, int side, int other_side) {
    found_ = {};
    found_.rotation.interleaved = interleaved;
    const std::array<Term, 2>& first = elements_[0].terms;
    const Expr base = first[own].factors[side].load, other = first[1 - own].factors[other_side].load;
    const auto line = line_through(base, other, other_of(0));
    if (!line || line->step < 1) return false;
    std::vector<Expr> cosines, sines;
    for (int64_t d = 0; d < static_cast<int64_t>(elements_.size()); ++d) {
      const Element& e = elements_[d];
      if (e.load) {
        if (!line->reads(e.load, d)) return false;
        continue;
      }
      const bool is_first = other_of(d) > d;
      const Expr c = number_beside(e, *line, d, false), s = number_beside(e, *line, other_of(d), is_first);
      if (!c || !s || e.terms[0].rounded != first[0].rounded) return false;
      cosines.push_back(c), sines.push_back(s);
    }
    return take_numbers(cosines, sines) && take_rest(*line);
  }

  /// What the element of the line is multiplied with, in the term of this sign; nullptr: there is none.
  static Expr number_beside(const Element& e, const Line& line, int64_t place, bool negative) {
    for (const Term& t : e.terms)
      for (const int side : {0, 1})
        if (t.negative == negative && line.reads(t.factors[side].load, place))
          return t.factors[1 - side].load;
    return nullptr;
  }

  bool take_numbers(const std::vector<Expr>& cosines, const std::vector<Expr>& sines) {
    for (const bool full : {true, false}) {
      auto place = [&](int64_t d) {
        return full ? d : found_.rotation.interleaved ? d / 2 : d < width_ / 2 ? d : d - width_ / 2;
      };
      found_.count = full ? width_ : width_ / 2;
      auto lie_so = [&](const std::vector<Expr>& all, TurnNumbers& numbers) {
        std::optional<Line> line = Line{all[0], 0, 0};
        for (int64_t d = 1; d < width_ && line->step == 0; ++d)
          if (place(d) == 1) line = line_through(all[0], all[d], 1).value_or(*line);
        for (int64_t d = 0; d < width_; ++d)
          if (!line->reads(all[d], place(d))) return false;
        numbers = {line->base, line->along, line->step};
        return found_.count == 1 || line->step > 0;
      };
      if (lie_so(cosines, found_.cosines) && lie_so(sines, found_.sines)) return true;
    }
    return false;
  }

  bool take_rest(const Line& line) {
    found_.rotation.width = width_;
    found_.rotation.rounded = elements_[0].terms[0].rounded;
    found_.result = elements_[0].result;
    if (found_.rotation.rounded != DType::undefined && found_.rotation.rounded != found_.result) return false;
    found_.operations = rows_.operations();
    for (Expr numbers : {found_.cosines.first, found_.sines.first}) {
      if (!stays(numbers->buffer)) return false;
      for (SymInt index : numbers->indices)
        for (const int v : {1, 2, 3})
          if (depends_on(index, program_.context->var(v).node())) return false;
    }
    return stays(line.base->buffer) && take_operand(line);
  }

  /// Nobody writes there behind the nests that read it.
  bool stays(BufferId id) const {
    const BufferId owner = owner_of(program_, id);
    const std::vector<int>& writers = deps_.writers[owner];
    const int first = *std::min_element(found_.operations.begin(), found_.operations.end());
    return std::all_of(writers.begin(), writers.end(), [&](int w) { return w < first; }) &&
           (writers.empty() || program_.at(owner).kind == BufferKind::computed);
  }

  bool take_operand(const Line& line) {
    const BufferId id = line.base->buffer;
    const size_t rank = line.base->indices.size();
    ExternOperand x{id, operand_.sizes, SymInts(4 * rank, SymInt(0)), line.base->indices};
    for (size_t k = 0; k < rank; ++k)
      for (size_t v : {0, 1}) {
        const auto affine = affine_in(x.start[k], program_.context->var(static_cast<int>(v)).node());
        if (!affine) return false;
        x.coefficients[v * rank + k] = affine->coefficient;
        x.start[k] = affine->rest;
      }
    for (SymInt s : x.start)
      if (has_loop_variable(s) || has_indirect(s)) return false;
    x.coefficients[3 * rank + line.along] = line.step;
    found_.x = std::move(x);
    return true;
  }

  const Program& program_;
  const Dependencies& deps_;
  const ExternOperand& operand_;
  Rows rows_;
  std::vector<Element> elements_;
  int64_t width_ = 0;
  RotatedHeads found_;
};

} // namespace

std::optional<RotatedHeads> find_head_rotation(const Program& program, const Dependencies& deps,
                                               const ExternOperand& operand) {
  for (const bool joined : {false, true})
    if (auto found = Finder(program, deps, operand, joined).run()) return found;
  return std::nullopt;
}

} // namespace tbx::fusion
