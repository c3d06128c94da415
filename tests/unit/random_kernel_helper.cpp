#include "random_kernel_helper.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace tbx::test {

using namespace ir;

namespace {

const DType kMemory[] = {DType::f32,  DType::f32, DType::f32, DType::f64,     DType::f16,
                         DType::bf16, DType::i8,  DType::u8,  DType::i16,     DType::u16,
                         DType::i32,  DType::u32, DType::i64, DType::boolean, DType::u64};

class RandomKernel {
public:
  explicit RandomKernel(uint32_t seed)
      : rng_(seed), k_(std::make_shared<KernelCase>(fmt::format("random {}", seed))), c_(k_->c()) {}

  std::shared_ptr<KernelCase> make() {
    auto rank = 1 + pick(3);
    for (size_t d = 0; d < rank; ++d) add_dimension(k_->kernel.outer, pick(3) == 0, "n");
    size_t shape = pick(4);
    if (shape == 0) {
      pointwise();
    } else {
      auto inner_rank = 1 + pick(2);
      for (size_t d = 0; d < inner_rank; ++d) add_dimension(inner_, pick(2) == 0, "k");
      if (shape == 3)
        chain();
      else
        reduction();
    }
    k_->fill = [k = k_.get()](int b, int64_t i) -> double {
      DType t = k->kernel.buffers[b].dtype;
      auto h = static_cast<uint32_t>(i * 2654435761u + static_cast<uint32_t>(b) * 40503u) >> 8;
      if (t == DType::boolean) return h % 2;
      if (is_float(t)) return (static_cast<int>(h % 97) - 48) / 8.0;
      return is_signed(t) ? static_cast<double>(h % 23) - 11 : h % 23;
    };
    return k_;
  }

private:
  size_t pick(size_t n) { return rng_() % n; }

  void add_dimension(SymInts& extents, bool symbolic, const char* name) {
    const int64_t sizes[] = {1, 2, 3, 5, 8, 13, 16, 17, 33, 0};
    int64_t n = sizes[pick(pick(8) == 0 ? 10 : 9)];
    extents.push_back(symbolic ? k_->symbol(fmt::format("{}{}", name, extents.size()), n) : SymInt(n));
  }

  /// All loop variables with their extents.
  std::vector<std::pair<SymInt, SymInt>> variables(bool inside) {
    std::vector<std::pair<SymInt, SymInt>> v;
    for (size_t d = 0; d < k_->kernel.outer.size(); ++d)
      v.emplace_back(c_.var(static_cast<int>(d)), k_->kernel.outer[d]);
    if (inside)
      for (size_t d = 0; d < inner_.size(); ++d) v.emplace_back(c_.rvar(static_cast<int>(d)), inner_[d]);
    return v;
  }

  /// A dense layout of some of the loops in some order, each element once per point of these loops.
  std::pair<SymInt, SymInt> layout(std::vector<std::pair<SymInt, SymInt>> loops, bool all) {
    if (pick(3) == 0) std::shuffle(loops.begin(), loops.end(), rng_);
    SymInt address = 0, numel = 1;
    for (size_t d = loops.size(); d-- > 0;) {
      if (!all && pick(4) == 0) continue;
      address += loops[d].first * numel;
      numel *= loops[d].second;
    }
    return {address, numel};
  }

  Expr load(bool inside) {
    auto [address, numel] = layout(variables(inside), false);
    DType t = kMemory[pick(std::size(kMemory))];
    SymInt scale = pick(6) == 0 ? 2 : 1, offset = pick(6) == 0 ? 3 : 0;
    Expr mask = pick(5) == 0 ? condition(inside) : nullptr;
    if (pick(6) == 0) { // backwards
      address = numel - SymInt(1) - address;
    }
    int b = k_->buffer(t, numel * scale + offset, Access::read);
    if (pick(8) == 0) { // through a table
      int table = k_->buffer(pick(2) ? DType::i64 : DType::u8, numel * scale + offset, Access::read);
      int rows = k_->buffer(t, 23 * 2, Access::read);
      Expr index = c_.cast(k_->load(table, address * scale + offset), DType::i64);
      index = where(binary(Op::less, index, c_.constant_int(DType::i64, 0)), c_.constant_int(DType::i64, 5),
                    index);
      return k_->load(rows, c_.indirect(index, 23) * 2 + 1, mask);
    }
    return k_->load(b, address * scale + offset, mask);
  }

  Expr condition(bool inside) {
    auto v = variables(inside);
    auto [i, n] = v[pick(v.size())];
    Expr a = c_.index(pick(2) ? i : i * 3 - 4),
         b = c_.constant_int(DType::i64, static_cast<int64_t>(pick(12)));
    const Op ops[] = {Op::less, Op::greater_equal, Op::equal, Op::not_equal};
    return binary(ops[pick(4)], a, b);
  }

  Expr leaf(bool inside) {
    switch (pick(8)) {
    case 0: {
      auto v = variables(inside);
      return c_.index(v[pick(v.size())].first * static_cast<int64_t>(1 + pick(3)));
    }
    case 1: return c_.constant(DType::f32, static_cast<double>(pick(64)) / 8 - 4);
    default: return load(inside);
    }
  }

  /// Floats stay multiples of 1/8 of moderate size, integers may wrap.
  Expr tree(bool inside, int depth) {
    if (depth == 0) return leaf(inside);
    Expr a = tree(inside, depth - 1);
    if (pick(4) == 0) {
      const DType to[] = {DType::f32, DType::f64, DType::i32,    DType::i64,
                          DType::i16, DType::u8,  DType::boolean};
      return c_.cast(a, to[pick(std::size(to))]);
    }
    bool floating = is_float(a->dtype), boolean = a->dtype == DType::boolean;
    if (pick(4) == 0) {
      const Op for_floats[] = {Op::neg, Op::abs, Op::floor, Op::ceil, Op::round_even, Op::trunc, Op::sign};
      const Op for_integers[] = {Op::neg, Op::abs, Op::sign, Op::bitwise_not, Op::popcount};
      if (boolean) return unary(Op::logical_not, a);
      return unary(floating ? for_floats[pick(7)] : for_integers[pick(5)], a);
    }
    Expr b = tree(inside, depth - 1);
    if (b->dtype != a->dtype) b = c_.cast(b, a->dtype);
    if (pick(4) == 0) return where(condition(inside), a, b);
    if (pick(4) == 0) {
      const Op compare[] = {Op::equal,      Op::not_equal, Op::less,
                            Op::less_equal, Op::greater,   Op::greater_equal};
      return binary(compare[pick(6)], a, b);
    }
    const Op for_floats[] = {Op::add, Op::sub, Op::min, Op::max};
    const Op for_integers[] = {
        Op::add, Op::sub,         Op::mul,        Op::div,         Op::floor_mod,  Op::fmod,       Op::min,
        Op::max, Op::bitwise_and, Op::bitwise_or, Op::bitwise_xor, Op::shift_left, Op::shift_right};
    const Op for_booleans[] = {Op::logical_and, Op::logical_or, Op::logical_xor};
    return binary(boolean    ? for_booleans[pick(3)]
                  : floating ? for_floats[pick(4)]
                             : for_integers[pick(13)],
                  a, b);
  }

  void store(Expr value, bool inside) {
    DType t = value->dtype;
    if (t == DType::f32 && pick(4) == 0) t = pick(2) ? DType::f16 : DType::bf16;
    auto [address, numel] = layout(variables(inside), true);
    int b = k_->buffer(t, numel, Access::write);
    k_->store(b, address, value, pick(5) == 0 ? condition(inside) : nullptr);
  }

  void pointwise() {
    k_->phase();
    for (size_t n = 1 + pick(2); n > 0; --n) store(tree(false, static_cast<int>(1 + pick(3))), false);
  }

  Expr reduce(Expr v) {
    const ReduceOp any[] = {ReduceOp::max,         ReduceOp::min,         ReduceOp::argmax, ReduceOp::argmin,
                            ReduceOp::argmax_last, ReduceOp::argmin_last, ReduceOp::sum};
    if (v->dtype == DType::boolean) return k_->reduce(pick(2) ? ReduceOp::any : ReduceOp::all, v);
    // Sums of floats are exact for memory's values only.
    return k_->reduce(any[pick(is_float(v->dtype) && v->op != Op::load ? 6 : 7)], v);
  }

  void reduction() {
    k_->phase(inner_);
    std::vector<Expr> results;
    for (size_t n = 1 + pick(3); n > 0; --n) results.push_back(reduce(tree(true, static_cast<int>(pick(3)))));
    if (pick(4) == 0) store(tree(true, 1), true);
    k_->phase();
    for (Expr e : results) {
      Expr more = tree(false, 1);
      store(binary(Op::max, e, c_.cast(more, e->dtype)), false);
    }
  }

  /// Row-local values between several phases.
  void chain() {
    SymInt numel = 1, address = 0;
    for (size_t d = inner_.size(); d-- > 0;) {
      address += c_.rvar(static_cast<int>(d)) * numel;
      numel *= inner_[d];
    }
    k_->phase(inner_);
    Expr v = tree(true, 2);
    int row = k_->buffer(v->dtype, numel, Access::row_local);
    k_->store(row, address, v);
    Expr first = reduce(v);
    k_->phase();
    Expr local = k_->let(c_.cast(first, v->dtype));
    k_->phase(inner_);
    Expr again = k_->load(row, numel - SymInt(1) - address);
    Expr both =
        v->dtype == DType::boolean ? binary(Op::logical_xor, again, local) : binary(Op::max, again, local);
    Expr inside = k_->let(both);
    store(inside, true);
    Expr second = reduce(inside);
    k_->phase();
    store(second, false);
  }

  std::mt19937 rng_;
  std::shared_ptr<KernelCase> k_;
  Context& c_;
  SymInts inner_;
};

} // namespace

std::shared_ptr<KernelCase> random_kernel(uint32_t seed) { return RandomKernel(seed).make(); }

} // namespace tbx::test
