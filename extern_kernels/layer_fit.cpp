// What the operands of recurrent layers, of products with packed integers and of experts have to be.
#include "base/strides.h"
#include "extern_kernels/fit.h"

namespace tbx::extern_kernels {
namespace {

bool is_real(DType type) { return type == DType::f32 || type == DType::f64 || is_half(type); }
bool is_number(DType type) { return type != DType::string && !is_complex(type); }

/// As far as strides are known.
bool is_in_order(const TensorRef& t) { return t.strides.empty() || is_row_major(t.sizes, t.strides); }

/// Operand `i`, if it is there, is of a type for which `fits` holds.
template <class F> void check_type(const Fit& fit, size_t i, F fits) {
  if (!fit.has(i)) return;
  const DType type = fit.in(i).dtype;
  fit.require(fits(type), "input {} is of type {}", i, name_of(type));
}
void check_type(const Fit& fit, size_t i, DType wanted) {
  check_type(fit, i, [&](DType t) { return t == wanted; });
}

/// Results are "r".
void check_row_work(const RowWork& work, int64_t columns, const Fit& fit) {
  const int64_t results = fit.size('r');
  fit.require(same_size(columns, work.gate == RowWork::no_gate ? results : times(results, 2)),
              "{} columns for {} results", columns, results);
  fit.require(work.rounded == DType::undefined || is_half(work.rounded), "a row that is rounded to {}",
              name_of(work.rounded));
}

} // namespace

void check_layer_fit(const RecurrentProblem& p, Fit& fit) {
  const std::string_view state = p.batch_first ? "bdh" : "dbh";
  fit.input(0, p.batch_first ? "btx" : "tbx");
  fit.input(1, "dgh");
  fit.derived('d', p.directions());
  fit.derived('g', times(fit.size('h'), p.gates()));
  fit.derived('x', times(fit.size('g'), p.directions()));
  fit.optional(2, "b");
  for (size_t i : {3, 4}) fit.optional(i, state);
  fit.optional(5, "dp");
  fit.derived('p', fit.has(5) ? times(fit.size('h'), 3) : -1);
  fit.optional(6, "dh");
  for (size_t i : {0, 1, 3, 4, 5, 6}) check_type(fit, i, is_real);
  check_type(fit, 2, [](DType t) { return t == DType::i32 || t == DType::i64; });
  size_t at = 0;
  if (p.gives_y) fit.output(at++, p.batch_first ? "btdh" : "tdbh");
  for (bool given : {p.gives_h, p.gives_c})
    if (given) fit.output(at++, state);
  fit.require(fit.count_out() == at, "{} results of {}", fit.count_out(), at);
  for (size_t i = 0; i < at; ++i) fit.require(is_real(fit.out(i).dtype), "results that are no floats");
  fit.require(p.activations.size() == p.activations_of_direction() * static_cast<size_t>(p.directions()),
              "{} activations", p.activations.size());
}

void check_layer_fit(const PackedMatMulProblem& p, Fit& fit) {
  constexpr int64_t kMost = 1 << 30; // what follows overflows with none of these
  fit.require(p.k >= 0 && p.k <= kMost && p.n >= 0 && p.n <= kMost && p.block >= 8 && p.block <= kMost &&
                  (p.bits == 2 || p.bits == 4 || p.bits == 8),
              "{} x {} integers of {} bits in blocks of {}", p.n, p.k, p.bits, p.block);
  fit.input(0, "mk");
  fit.input(1, "*");
  fit.input(2, "*");
  fit.optional(3, "*");
  fit.optional(4, "n");
  fit.derived('k', p.k);
  fit.derived('n', p.n);
  for (size_t i : {5, 6}) fit.optional(i, "1k");
  if (p.work == RowWork{}) {
    fit.output(0, "mn");
  } else {
    fit.output(0, "1r");
    fit.derived('m', 1);
    check_row_work(p.work, p.n, fit);
  }
  if (fit.has(7)) {
    fit.derived('m', 1);
    fit.input(7, p.work.gate == RowWork::no_gate ? "1n" : "1r");
    check_type(fit, 7, is_real);
  }
  for (size_t i : {5, 6}) check_type(fit, i, is_real);
  check_type(fit, 0, is_real);
  check_type(fit, 1, DType::u8);
  for (size_t i : {2, 3}) check_type(fit, i, is_number);
  check_type(fit, 4, DType::f32);
  fit.require(is_real(fit.out(0).dtype), "output 0 is of type {}", name_of(fit.out(0).dtype));
}

void check_layer_fit(const RowProductProblem& p, Fit& fit) {
  fit.input(0, "1k");
  fit.input(1, "kn");
  fit.optional(2, "1n");
  for (size_t i : {3, 4}) fit.optional(i, "1k");
  fit.output(0, "1r");
  for (size_t i : {0, 1, 2, 3, 4}) check_type(fit, i, is_real);
  fit.require(is_real(fit.out(0).dtype), "output 0 is of type {}", name_of(fit.out(0).dtype));
  check_row_work(p.work, fit.size('n'), fit);
}

void check_layer_fit(const ExpertsProblem& p, Fit& fit) {
  fit.input(0, "rk");
  fit.input(1, "rc");
  fit.input(2, "enw");
  fit.optional(3, "en");
  fit.output(0, "rcn");
  check_type(fit, 0, DType::f32);
  check_type(fit, 1, DType::i64);
  check_type(fit, 3, DType::f32);
  check_type(fit, 4, is_real);
  check_type(fit, 5, DType::u8);
  fit.require(fit.out(0).dtype == DType::f32, "output 0 is of type {}", name_of(fit.out(0).dtype));
  const int64_t k = fit.size('k');
  const DType type = fit.in(2).dtype;
  const bool packs = type == DType::u8 && (p.bits == 2 || p.bits == 4 || p.bits == 8);
  fit.require((packs || (p.bits == 0 && (type == DType::f32 || is_half(type)))) && p.block >= 0,
              "{} of {} bits in blocks of {}", name_of(type), p.bits, p.block);
  fit.require(!p.rounds || p.block > 0, "activations that are rounded by no blocks");
  fit.require(p.bits == 0 ? same_size(fit.size('w'), k)
                          : same_size(times(fit.size('w'), 8), times(k, p.bits)),
              "rows of the matrices and of the input");
  for (size_t i = 0; i < fit.count_in(); ++i)
    fit.require(is_in_order(fit.in(i)), "input {} in another order", i);
  fit.require(is_in_order(fit.out(0)), "a result in another order");
  if (p.bits == 0) return;
  auto bytes = [&](int64_t count) {
    const int64_t all = times(count, p.bits);
    return all < 0 ? -1 : (all + 7) / 8;
  };
  const int64_t blocks = p.block && k >= 0 ? k / p.block + (k % p.block != 0) : -1;
  fit.input(4, p.block ? "enb" : "en");
  fit.derived('b', blocks);
  fit.optional(5, p.block ? "enz" : "ez");
  fit.derived('z', fit.has(5) ? bytes(p.block ? blocks : fit.size('n')) : -1);
}

} // namespace tbx::extern_kernels
