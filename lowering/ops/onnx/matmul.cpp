// Matrix products: MatMul, Gemm, Einsum and their relatives, all brought to one extern matrix product.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "extern_kernels/catalogue.h"
#include "extern_kernels/cuda/select.h"
#include "lowering/op_helpers.h"
#include "lowering/ops/families.h"
#include "lowering/ops/products.h"

namespace tbx::lowering {

/// Of a row times a matrix in loops: by how much more rows than columns the matrix may have.
constexpr int64_t kLongestOfRow = 4;

ir::ExternOperand operand_of(const ir::StridedView& v) {
  return {v.buffer, v.sizes, v.coefficients, v.start};
}

/// A copy of the box in memory of its own, as narrow as memory holds the box.
static ir::ExternOperand copied_operand(OpContext& ctx, const TensorBox& x, const std::string& reason) {
  const TensorBox copy = map(ctx, x.dtype(), x, [](Expr e) { return e; });
  copy.storage()->stored = ir::memory_type(ctx.program, x);
  return operand_of(ir::realize_strided(ctx.program, copy, reason));
}

ir::ExternOperand library_operand(OpContext& ctx, const TensorBox& x, const std::string& reason) {
  const ir::StridedView view = ir::realize_strided(ctx.program, x, reason);
  if (std::all_of(view.coefficients.begin(), view.coefficients.end(),
                  [](SymInt step) { return ir::provably_nonnegative(step); }))
    return operand_of(view);
  return copied_operand(ctx, x, reason + ", read backwards");
}

/// Whether the elements of a vector lie side by side: along the only dimension of the buffer.
static bool is_dense(const ir::Program& program, const ir::StridedView& v) {
  const auto d = std::find_if(v.sizes.begin(), v.sizes.end(), [](SymInt n) { return !n.is(1); });
  if (d == v.sizes.end()) return true;
  const SymInts& buffer = program.at(v.buffer).sizes;
  const size_t first = static_cast<size_t>(d - v.sizes.begin()) * buffer.size();
  bool along = false;
  for (size_t k = 0; k < buffer.size(); ++k) {
    if (buffer[k].is(1)) continue;
    if (along || !v.coefficients[first + k].is(1)) return false;
    along = true;
  }
  return along;
}

ir::ExternOperand dense_operand(OpContext& ctx, const TensorBox& x, const std::string& reason) {
  const ir::StridedView view = ir::realize_strided(ctx.program, x, reason);
  return is_dense(ctx.program, view) ? operand_of(view) : copied_operand(ctx, x, reason + ", side by side");
}

TensorBox wide(OpContext& ctx, const TensorBox& x) {
  return is_low_precision_float(x.dtype()) ? convert(ctx, x, DType::f32) : x;
}

TensorBox shown_half(OpContext& ctx, const TensorBox& x) {
  const ir::StorageBox& storage = *x.storage();
  if (x.dtype() != DType::f32 || storage.is_realized() || storage.loops().kind != ir::LoopKind::pointwise)
    return x;
  const ir::Loops& loops = storage.loops();
  if (loops.body->op != Op::load || loops.body->mask()) return x;
  const ir::Buffer& b = ctx.program.at(loops.body->buffer);
  if (!is_half(b.dtype)) return x;
  TensorBox whole = ir::make_buffer_box(ctx.program, b.id).view(ctx.c, loops.ranges, loops.body->indices);
  return x.is_identity_view() ? whole : whole.view(ctx.c, x.sizes(), x.index_map());
}

/// A view of what is in memory: of a constant, or of what each run brings or computes.
static bool is_in_memory(OpContext& ctx, const TensorBox& x, bool constant) {
  const ir::StorageBox& storage = *x.storage();
  return storage.is_realized() &&
         (ctx.program.at(storage.buffer()).kind == ir::BufferKind::constant) == constant;
}

TensorBox narrow_constant(OpContext& ctx, const TensorBox& x) {
  TensorBox half = shown_half(ctx, x);
  return is_in_memory(ctx, half, true) ? half : x;
}

namespace {

/// A matrix that an Expand repeats along dimensions of the batch is shown once there, which the kernels know
/// as broadcasting.
void show_once(OpContext& ctx, TensorBox& a, TensorBox& b, const SymInts& result) {
  auto is_repeated = [&](const TensorBox& x, int k) {
    const ir::Extents extents{x.sizes(), {}};
    return !x.is_identity_view() && !x.sizes()[k].is(1) &&
           std::none_of(x.index_map().begin(), x.index_map().end(), [&](SymInt at) {
             return ir::depends_on(ir::simplify(at, extents), ctx.c.var(k).node());
           });
  };
  // Where an index has no value, nothing depends on it, nor on others beside it.
  for (const TensorBox* x : {&a, &b})
    if (std::any_of(x->sizes().begin(), x->sizes().end(), [](SymInt n) { return n.is(0); })) return;
  for (int k = 0; k + 2 < a.rank(); ++k) {
    const bool left = is_repeated(a, k), right = is_repeated(b, k);
    if (left == right) continue;
    TensorBox &once = left ? a : b, &other = left ? b : a;
    if (!ir::provably_equal(other.sizes()[k], result[k])) continue;
    SymInts sizes = once.sizes();
    sizes[k] = 1;
    once = once.view(ctx.c, sizes, loop_vars(ctx.c, once.rank()));
  }
}

/// One value per column, the form that libraries know as a bias.
bool is_row(const TensorBox& bias, SymInt columns) {
  for (int k = 0; k + 1 < bias.rank(); ++k)
    if (!bias.sizes()[k].is(1)) return false;
  return bias.rank() > 0 && ir::provably_equal(bias.sizes().back(), columns);
}

} // namespace

/// Memory is to hold the node's first input as `type`.
static bool stores_operand(OpContext& ctx, DType type) {
  return ctx.node.input(0) >= 0 && ctx.graph.at(ctx.node.inputs[0]).stored == type;
}

bool gives_half(OpContext& ctx) {
  if (ctx.node.outputs.empty() || ctx.node.outputs[0] < 0) return false;
  const Value& v = ctx.graph.at(ctx.node.outputs[0]);
  return is_half(v.type.dtype) || is_half(v.stored);
}

DType result_in_memory(OpContext& ctx, const extern_kernels::Problem& problem, const TensorBox& operand) {
  const DType type = ir::memory_type(ctx.program, operand);
  if (!ctx.program.target.cuda || !is_half(type) || !gives_half(ctx)) return DType::f32;
  const auto* product = std::get_if<extern_kernels::MatMulProblem>(&problem);
  return !product || product->has_bias ? type : DType::f32;
}

ir::ExternOperand bias_operand(OpContext& ctx, const TensorBox& bias, DType result) {
  const TensorBox x =
      is_half(result) ? convert(ctx, bias, result) : ir::wide_in_memory(ctx.program, wide(ctx, bias));
  return dense_operand(ctx, x, "bias of a product");
}

static extern_kernels::OperandInfo info_of(DType type, const SymInts& sizes) {
  extern_kernels::OperandInfo i;
  i.dtype = type;
  for (SymInt s : sizes) i.sizes.push_back(s.as_constant().value_or(-1));
  return i;
}

bool is_slow_as(const ir::Program& program, const ir::ExternCall& call, DType type) {
  std::vector<extern_kernels::OperandInfo> inputs;
  for (const ir::ExternOperand& in : call.inputs)
    inputs.push_back(in.buffer < 0 ? extern_kernels::OperandInfo{}
                                   : info_of(program.at(in.buffer).dtype, in.sizes));
  auto is_slow = [&](DType result) {
    const extern_kernels::OperandInfo output = info_of(result, program.at(call.outputs[0]).sizes);
    return !extern_kernels::accepts_post_ops(call.problem, inputs, {&output, 1}, program.target).empty();
  };
  return is_slow(type) && !is_slow(DType::f32);
}

void choose_operand_types(OpContext& ctx, const extern_kernels::Problem& problem, TensorBox& a, TensorBox& b,
                          const SymInts& result) {
  TensorBox x = shown_half(ctx, a), y = shown_half(ctx, b);
  DType left = ir::memory_type(ctx.program, x);
  const DType right = ir::memory_type(ctx.program, y);
  // Weights are not widened where the result is narrow.
  if (ctx.program.target.cuda && is_half(right) && left == DType::f32 && gives_half(ctx) &&
      is_in_memory(ctx, y, true)) {
    x = convert(ctx, x, right);
    left = right;
  }
  // The operand is to be narrow in memory, but is shown by what gives float32 alone, a product of float32.
  if (!ctx.program.target.cuda && is_half(right) && left == DType::f32 && is_in_memory(ctx, y, true) &&
      stores_operand(ctx, right)) {
    x = map(ctx, DType::f32, x, [](Expr e) { return e; });
    x.storage()->stored = right;
    left = right;
  }
  if (!is_half(left) && !is_half(right)) return;
  if (left == right) {
    std::vector<extern_kernels::OperandInfo> inputs{info_of(left, x.sizes()), info_of(right, y.sizes())};
    if (const auto* conv = std::get_if<extern_kernels::ConvProblem>(&problem); conv && conv->has_bias)
      inputs.push_back(info_of(DType::f32, {result[1]}));
    extern_kernels::OperandInfo output = info_of(DType::f32, result);
    if (ctx.program.target.cuda) output.dtype = result_in_memory(ctx, problem, x);
    for (size_t i = 2; i < inputs.size(); ++i) inputs[i].dtype = output.dtype;
    const bool accepted =
        ctx.program.target.cuda
            ? extern_kernels::accepts_on_gpu(problem, inputs, {&output, 1}).empty()
            : extern_kernels::accepts_post_ops(problem, inputs, {&output, 1}, ctx.program.target).empty();
    if (accepted) {
      a = std::move(x);
      b = std::move(y);
      return;
    }
  }
  if (ctx.program.target.cuda) { // no library there widens constants
    a = wide(ctx, a);
    b = wide(ctx, b);
  }
  a = ir::wide_in_memory(ctx.program, a);
  b = ir::wide_in_memory(ctx.program, b); // a constant stays: its kernel widens it
}

/// `beta` times the bias, of the rank of the product that it is added to.
static TensorBox addend(OpContext& ctx, const TensorBox& bias, float beta, const SymInts& product) {
  TensorBox c = wide(ctx, bias);
  TBX_MODEL(c.rank() <= static_cast<int>(product.size()), "a bias of rank {} for a product of rank {}",
            c.rank(), product.size());
  for (int k = 1; k <= c.rank(); ++k)
    require_broadcast(ctx, c.sizes()[c.rank() - k], product[product.size() - k], "the bias");
  if (beta != 1) // libraries add a bias as it is: it is scaled before, in the type that sums have
    c = map(ctx, is_float(c.dtype()) ? compute_type(c.dtype()) : c.dtype(), c,
            [&](Expr e) { return ir::mul(e, number(e, beta)); });
  const std::vector<int> axes = axes_from(0, static_cast<int>(product.size()) - c.rank());
  return axes.empty() ? c : ir::unsqueeze(ctx.program, c, axes);
}

/// Matrices times vectors as sums in loops, which read each matrix once and where it was computed: the
/// library copies it into its blocks first. nullopt: a product for the library. Long sums for few columns
/// are, of which a vector would read little at each step, and a row times a matrix that may be a constant,
/// for which there are faster kernels.
static std::optional<TensorBox> as_sums(OpContext& ctx, const TensorBox& a, const TensorBox& b,
                                        const SymInts& sizes, DType type) {
  const int rank = static_cast<int>(sizes.size());
  if (ctx.program.target.cuda || !is_float(type) || a.dtype() != type || b.dtype() != type)
    return std::nullopt;
  const SymInt inner = a.sizes().back();
  const bool one_column = sizes.back().is(1);
  const bool one_row = (rank > 2 || is_in_memory(ctx, b, false)) && sizes[rank - 2].is(1) &&
                       ir::size_hint(inner) <= kLongestOfRow * ir::size_hint(sizes.back());
  if (!one_column && !one_row) return std::nullopt;
  std::vector<int> turned = axes_from(0, rank);
  std::swap(turned[rank - 2], turned[rank - 1]);
  SymInts space = sizes;
  const int axis = one_column ? rank - 1 : rank - 2;
  space[axis] = inner; // takes the place of what is 1
  const TensorBox products = one_column ? map(ctx, type, a, ir::permute(ctx.program, b, turned), ir::mul)
                                        : map(ctx, type, ir::permute(ctx.program, a, turned), b, ir::mul);
  return AxisReducer(ctx, space, {axis})(ReduceOp::sum, type, products);
}

TensorBox matrix_product(OpContext& ctx, TensorBox a, TensorBox b, const TensorBox* bias, float alpha,
                         float beta, DType result_type, const ZeroPoints* zeros) {
  if (is_low_precision_float(result_type)) // sums are float32, rounded once
    return convert(ctx, matrix_product(ctx, std::move(a), std::move(b), bias, alpha, beta, DType::f32),
                   result_type);
  a = wide(ctx, a);
  b = wide(ctx, b);
  int rank = std::max(a.rank(), b.rank());
  auto pad_rank = [&](const TensorBox& x) {
    const std::vector<int> axes = axes_from(0, rank - x.rank());
    return axes.empty() ? x : ir::unsqueeze(ctx.program, x, axes);
  };
  a = pad_rank(a);
  b = pad_rank(b);
  auto inner_a = a.sizes()[rank - 1], inner_b = b.sizes()[rank - 2];
  if (inner_a.is_constant() && inner_b.is_constant())
    TBX_MODEL(inner_a == inner_b, "inner dimensions differ: {} and {}", inner_a.constant(),
              inner_b.constant());
  else if (!ir::provably_equal(inner_a, inner_b))
    ctx.program.add_check(
        inner_a - inner_b, true,
        fmt::format("inner dimensions differ: {} and {}", ir::to_string(inner_a), ir::to_string(inner_b)));
  SymInts batch = ir::broadcast_sizes(ctx.program, {a.sizes().begin(), a.sizes().end() - 2},
                                      {b.sizes().begin(), b.sizes().end() - 2});
  SymInts sizes = batch;
  sizes.push_back(a.sizes()[rank - 2]);
  sizes.push_back(b.sizes()[rank - 1]);
  // Nothing is summed: what loops of its readers compute.
  if (inner_a.is(1) && inner_b.is(1) && !zeros && a.dtype() == result_type && b.dtype() == result_type) {
    TensorBox y = map(ctx, result_type, a, b, ir::mul);
    if (alpha != 1) y = map(ctx, result_type, y, [&](Expr e) { return ir::mul(e, number(e, alpha)); });
    return bias ? map(ctx, result_type, y, addend(ctx, *bias, beta, sizes), ir::add) : y;
  }
  show_once(ctx, a, b, sizes);
  // One product instead of many: a broadcast b sees the batch of a as rows.
  bool fold = rank > 2;
  for (int k = 0; k + 2 < rank; ++k) fold &= b.sizes()[k].is(1);
  SymInts folded = sizes;
  if (fold) {
    std::span<const SymInt> as(a.sizes());
    SymInt rows = ir::product(as.first(rank - 1));
    a = ir::reshape(ctx.program, a, {rows, inner_a});
    b = ir::reshape(ctx.program, b, {inner_b, b.sizes()[rank - 1]});
    folded = {rows, sizes.back()};
  }
  if (!zeros)
    if (auto y = as_sums(ctx, a, b, folded, result_type)) {
      if (alpha != 1) y = map(ctx, result_type, *y, [&](Expr e) { return ir::mul(e, number(e, alpha)); });
      if (bias) y = map(ctx, result_type, *y, addend(ctx, *bias, beta, folded), ir::add);
      return fold ? ir::reshape(ctx.program, *y, sizes) : *y;
    }
  ir::ExternCall call;
  extern_kernels::MatMulProblem problem;
  problem.alpha = alpha;
  if (b.rank() == 2) b = narrow_constant(ctx, b);
  choose_operand_types(ctx, problem, a, b, folded);
  call.inputs.push_back(library_operand(ctx, a, "operand of a matrix product"));
  call.inputs.push_back(library_operand(ctx, b, "operand of a matrix product"));
  TensorBox beside; // what is added to the product, but is no bias to libraries
  if (bias) {
    const TensorBox c = addend(ctx, *bias, beta, folded);
    problem.has_bias = is_row(c, folded.back());
    if (problem.has_bias)
      call.inputs.push_back(bias_operand(ctx, c, result_in_memory(ctx, problem, a)));
    else
      beside = c;
  }
  if (zeros) {
    append_zero_point(ctx, call, zeros->left, problem.a_zero);
    append_zero_point(ctx, call, zeros->right, problem.b_zero);
  }
  call.problem = problem;
  const DType stored = result_in_memory(ctx, problem, a);
  ir::BufferId out = ctx.program.new_buffer("", stored == DType::f32 ? result_type : stored, folded);
  call.outputs = {out};
  ctx.program.operations.push_back({std::move(call), {}, "matrix product"});
  TensorBox result = wide(ctx, ir::make_buffer_box(ctx.program, out));
  if (beside.defined())
    result = map(ctx, result_type, result, beside, [](Expr x, Expr y) { return ir::add(x, y); });
  return fold ? ir::reshape(ctx.program, result, sizes) : result;
}

void append_zero_point(OpContext& ctx, ir::ExternCall& call, const TensorBox& zero, int& number) {
  if (!zero.defined()) return;
  while (call.inputs.size() < 3) call.inputs.emplace_back();
  number = static_cast<int>(call.inputs.size());
  call.inputs.push_back(dense_operand(ctx, zero, "zero points of a product"));
}

TensorBox matmul_boxes(OpContext& ctx, const TensorBox& x, const TensorBox& y, DType type,
                       const ZeroPoints* zeros) {
  TBX_MODEL(x.rank() >= 1 && y.rank() >= 1, "operands of rank {} and {}: at least 1 is needed", x.rank(),
            y.rank());
  // numpy: a vector on the left is a row, on the right a column; the extra dimension goes away.
  TensorBox a = x.rank() == 1 ? ir::unsqueeze(ctx.program, x, std::vector<int>{0}) : x;
  TensorBox b = y.rank() == 1 ? ir::unsqueeze(ctx.program, y, std::vector<int>{1}) : y;
  TensorBox r = matrix_product(ctx, a, b, nullptr, 1, 1, type, zeros);
  std::vector<int> drop;
  if (x.rank() == 1) drop.push_back(r.rank() - 2);
  if (y.rank() == 1) drop.push_back(r.rank() - 1);
  return drop.empty() ? r : ir::squeeze(ctx.program, r, drop);
}

namespace {

using Values = std::vector<LoweredValue>;

Values matmul(OpContext& ctx) { return {matmul_boxes(ctx, ctx.in(0), ctx.in(1), ctx.in(0).dtype())}; }

Values gemm(OpContext& ctx) {
  TensorBox a = ctx.in(0), b = ctx.in(1);
  TBX_MODEL(a.rank() == 2 && b.rank() == 2, "operands of rank {} and {}, expected 2", a.rank(), b.rank());
  std::vector<int> swap{1, 0};
  if (ctx.attr_int("transA", 0)) a = ir::permute(ctx.program, a, swap);
  if (ctx.attr_int("transB", 0)) b = ir::permute(ctx.program, b, swap);
  float alpha = ctx.attr_float("alpha", 1), beta = ctx.attr_float("beta", 1);
  const bool with_bias = ctx.has(2) && beta != 0;
  if (is_integer(a.dtype())) {
    auto whole = [](float v) { return v == std::trunc(v) && std::abs(v) < 0x1p31f; };
    TBX_MODEL(whole(alpha) && (!with_bias || whole(beta)),
              "alpha {} and beta {} must be whole for integer operands", alpha, beta);
  }
  if (!with_bias) return {matrix_product(ctx, a, b, nullptr, alpha, 0, a.dtype())};
  const TensorBox& c = ctx.in(2);
  return {matrix_product(ctx, a, b, &c, alpha, beta, a.dtype())};
}

// --- Einsum

/// Splits "ij,jk->ik"; the ellipsis becomes labels '0', '1', ... aligned at the right end.
struct Equation {
  std::vector<std::string> inputs;
  std::string output;
};

Equation parse_equation(OpContext& ctx) {
  std::string text = ctx.attr_string("equation", "");
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  size_t arrow = text.find("->");
  std::string left = text.substr(0, arrow);
  Equation eq;
  size_t begin = 0;
  for (;;) {
    size_t comma = left.find(',', begin);
    eq.inputs.push_back(left.substr(begin, comma == std::string::npos ? comma : comma - begin));
    if (comma == std::string::npos) break;
    begin = comma + 1;
  }
  TBX_MODEL(static_cast<int>(eq.inputs.size()) == ctx.num_inputs(),
            "equation '{}' has {} terms for {} inputs", text, eq.inputs.size(), ctx.num_inputs());
  int ellipsis_rank = 0;
  for (size_t i = 0; i < eq.inputs.size(); ++i)
    if (eq.inputs[i].find("...") != std::string::npos)
      ellipsis_rank =
          std::max(ellipsis_rank, ctx.rank(static_cast<int>(i)) - static_cast<int>(eq.inputs[i].size()) + 3);
  auto ellipsis_labels = [&](int rank) {
    std::string s;
    for (int k = ellipsis_rank - rank; k < ellipsis_rank; ++k) s += static_cast<char>('0' + k);
    return s;
  };
  std::map<char, int> count;
  for (size_t i = 0; i < eq.inputs.size(); ++i) {
    std::string& term = eq.inputs[i];
    if (size_t at = term.find("..."); at != std::string::npos)
      term.replace(at, 3, ellipsis_labels(ctx.rank(static_cast<int>(i)) - static_cast<int>(term.size()) + 3));
    TBX_MODEL(static_cast<int>(term.size()) == ctx.rank(static_cast<int>(i)),
              "term {} of '{}' has {} labels, input has rank {}", i, text, term.size(),
              ctx.rank(static_cast<int>(i)));
    for (char l : std::set<char>(term.begin(), term.end())) ++count[l];
    for (char l : term)
      TBX_MODEL(std::isalnum(static_cast<unsigned char>(l)), "equation '{}' has the character '{}'", text, l);
  }
  if (arrow != std::string::npos) {
    eq.output = text.substr(arrow + 2);
    if (size_t at = eq.output.find("..."); at != std::string::npos)
      eq.output.replace(at, 3, ellipsis_labels(ellipsis_rank));
  } else {
    eq.output = ellipsis_labels(ellipsis_rank);
    for (auto [label, n] : count) {
      bool twice_in_one = std::any_of(eq.inputs.begin(), eq.inputs.end(), [l = label](const std::string& t) {
        return std::count(t.begin(), t.end(), l) > 1;
      });
      if (n == 1 && !twice_in_one && std::isalpha(static_cast<unsigned char>(label))) eq.output += label;
    }
  }
  for (char l : eq.output) TBX_MODEL(count.count(l), "output label '{}' of '{}' is in no input", l, text);
  return eq;
}

class Einsum {
public:
  explicit Einsum(OpContext& ctx) : ctx_(ctx), eq_(parse_equation(ctx)) {
    for (size_t i = 0; i < eq_.inputs.size(); ++i)
      for (size_t k = 0; k < eq_.inputs[i].size(); ++k) {
        SymInt size = ctx.sizes(static_cast<int>(i))[k];
        auto [it, fresh] = extent_.try_emplace(eq_.inputs[i][k], size);
        if (!fresh) it->second = ir::broadcast_sizes(ctx.program, {it->second}, {size})[0];
      }
  }

  TensorBox run() {
    TensorBox left = prepared(0);
    std::string labels = labels_of(0);
    for (int i = 1; i < static_cast<int>(eq_.inputs.size()); ++i) {
      std::string needed = eq_.output;
      for (int j = i + 1; j < static_cast<int>(eq_.inputs.size()); ++j) needed += eq_.inputs[j];
      contract(left, labels, prepared(i), labels_of(i), needed);
    }
    return finish(left, labels);
  }

private:
  std::string labels_of(int i) const {
    std::string unique;
    for (char l : eq_.inputs[i])
      if (unique.find(l) == std::string::npos) unique += l;
    return unique;
  }

  /// Input `i` with repeated labels reduced to their diagonal.
  TensorBox prepared(int i) {
    const TensorBox& x = ctx_.in(i);
    std::string labels = labels_of(i);
    if (labels.size() == eq_.inputs[i].size()) return x;
    SymInts sizes, at;
    for (char l : labels) sizes.push_back(extent_.at(l));
    for (char l : eq_.inputs[i]) at.push_back(ctx_.c.var(static_cast<int>(labels.find(l))));
    return x.view(ctx_.c, sizes, at);
  }

  /// Dimensions of `x` in the order of `wanted`; missing labels get size 1.
  TensorBox arrange(const TensorBox& x, const std::string& labels, const std::string& wanted) {
    SymInts sizes, at(labels.size(), SymInt(0));
    for (size_t k = 0; k < wanted.size(); ++k) {
      size_t from = labels.find(wanted[k]);
      sizes.push_back(from == std::string::npos ? SymInt(1) : x.sizes()[from]);
      if (from != std::string::npos) at[from] = ctx_.c.var(static_cast<int>(k));
    }
    return x.view(ctx_.c, sizes, at);
  }

  /// left = sum over the labels nobody needs any more of left * right, as a batched matrix product where
  /// there are such labels.
  void contract(TensorBox& left, std::string& labels, const TensorBox& right, const std::string& right_labels,
                const std::string& needed) {
    std::string batch, rows, columns, inner;
    auto has = [](const std::string& s, char l) { return s.find(l) != std::string::npos; };
    for (char l : labels) {
      if (!has(right_labels, l)) {
        rows += l;
      } else {
        (has(needed, l) ? batch : inner) += l;
      }
    }
    for (char l : right_labels)
      if (!has(labels, l)) columns += l;
    const std::string all = batch + rows + columns;
    if (inner.empty()) { // nothing is summed: no product of matrices, but what loops of its readers compute
      left = map(ctx_, left.dtype(), arrange(left, labels, all), arrange(right, right_labels, all), ir::mul);
      labels = all;
      return;
    }
    auto sizes_of = [&](const std::string& s) {
      SymInts sizes;
      for (char l : s) sizes.push_back(extent_.at(l));
      return sizes;
    };
    auto grouped = [&](const TensorBox& x, const std::string& from, const std::string& first,
                       const std::string& second) {
      SymInts full = sizes_of(batch + first + second);
      TensorBox y = ir::expand(ctx_.program, arrange(x, from, batch + first + second), full);
      SymInts shape = sizes_of(batch);
      shape.push_back(ir::product(sizes_of(first)));
      shape.push_back(ir::product(sizes_of(second)));
      return ir::reshape(ctx_.program, y, shape);
    };
    TensorBox product =
        matrix_product(ctx_, grouped(left, labels, rows, inner), grouped(right, right_labels, inner, columns),
                       nullptr, 1, 1, left.dtype());
    left = ir::reshape(ctx_.program, product, sizes_of(all));
    labels = all;
  }

  /// Sums the labels the output does not have, and puts the others in its order.
  TensorBox finish(TensorBox x, std::string labels) {
    std::vector<int> summed;
    std::string kept;
    for (size_t k = 0; k < labels.size(); ++k) {
      if (eq_.output.find(labels[k]) == std::string::npos) {
        summed.push_back(static_cast<int>(k));
      } else {
        kept += labels[k];
      }
    }
    if (!summed.empty()) {
      AxisReducer reduce(ctx_, x.sizes(), summed);
      x = reduce.drop(reduce(ReduceOp::sum, x.dtype(), x));
    }
    return arrange(x, kept, eq_.output);
  }

  OpContext& ctx_;
  Equation eq_;
  std::map<char, SymInt> extent_;
};

Values einsum(OpContext& ctx) { return {Einsum(ctx).run()}; }

/// com.microsoft FusedMatMul: transposes and scale around a matrix product.
Values fused_matmul(OpContext& ctx) {
  auto prepare = [&](int i, const char* trans, const char* trans_batch) {
    TensorBox x = ctx.in(i);
    std::vector<int> order(x.rank());
    for (int k = 0; k < x.rank(); ++k) order[k] = k;
    if (ctx.attr_int(trans_batch, 0) && x.rank() > 2)
      std::rotate(order.begin(), order.begin() + 1, order.end() - 1);
    if (ctx.attr_int(trans, 0) && x.rank() >= 2) std::swap(order[x.rank() - 1], order[x.rank() - 2]);
    return ir::permute(ctx.program, x, order);
  };
  TensorBox r = matmul_boxes(ctx, prepare(0, "transA", "transBatchA"), prepare(1, "transB", "transBatchB"),
                             ctx.in(0).dtype());
  float alpha = ctx.attr_float("alpha", 1);
  if (alpha == 1) return {r};
  return {map(ctx, r.dtype(), r, [alpha](Expr e) { return ir::mul(e, number(e, alpha)); })};
}

/// com.microsoft SparseToDenseMatMul: its sparse matrix is a constant, which the importer has made dense.
Values sparse_to_dense_matmul(OpContext& ctx) {
  for (int i : {0, 1}) TBX_MODEL(ctx.has(i), "input {} is missing", i);
  TBX_MODEL(ctx.rank(0) == 2 && ctx.rank(1) >= 2, "A and B have ranks {} and {}, expected 2 and at least 2",
            ctx.rank(0), ctx.rank(1));
  TBX_MODEL(ctx.dtype(0) == ctx.dtype(1), "A and B are of types {} and {}", name_of(ctx.dtype(0)),
            name_of(ctx.dtype(1)));
  return fused_matmul(ctx);
}

} // namespace

void register_matmul(Registry& r) {
  r.add("MatMul", since(1), matmul);
  r.add("Gemm", since(1), gemm);
  r.add("Einsum", since(12), einsum);
  r.add("FusedMatMul", since(1), fused_matmul, "com.microsoft");
  r.add("TransposeMatMul", since(1), fused_matmul, "com.microsoft");
  r.add("SparseToDenseMatMul", since(1), sparse_to_dense_matmul, "com.microsoft");
  r.narrow(Narrow::product, {"MatMul", "Gemm", "Einsum"});
  r.narrow(Narrow::product, {"FusedMatMul", "TransposeMatMul"}, "com.microsoft");
  r.mark(Trait::has_weights, {"MatMul", "Gemm"});
  r.mark(Trait::half_product, {"MatMul", "Gemm", "Einsum"});
  r.mark(Trait::half_product, {"FusedMatMul"}, "com.microsoft");
  r.type_from(0, {"FusedMatMul", "TransposeMatMul"}, "com.microsoft");
  r.type_from(1, {"SparseToDenseMatMul"}, "com.microsoft");
}

} // namespace tbx::lowering
