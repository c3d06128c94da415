#include "fusion/post_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>

#include "base/float_formats.h"
#include "extern_kernels/catalogue.h"
#include "extern_kernels/cuda/select.h"
#include "fusion/dependencies.h"
#include "fusion/operand_infos.h"
#include "fusion/post_op_chain.h"

namespace tbx::fusion {

using namespace ir;
using extern_kernels::PostOp;

namespace {

std::vector<PostOp>* post_ops_of(extern_kernels::Problem& problem) {
  if (auto* conv = std::get_if<extern_kernels::ConvProblem>(&problem)) return &conv->post_ops;
  if (auto* matmul = std::get_if<extern_kernels::MatMulProblem>(&problem)) return &matmul->post_ops;
  return nullptr;
}

/// Which loop variables of a consumer make up each dimension of the result it reads, row-major; variables of
/// size 1 are left out.
using DimGroups = std::vector<std::vector<int>>;

/// nullopt where the ranges cannot be grouped into these sizes.
std::optional<DimGroups> group_ranges(const SymInts& ranges, const SymInts& sizes) {
  DimGroups groups(sizes.size());
  size_t v = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    SymInt extent = 1;
    for (; v < ranges.size() && !provably_equal(extent, sizes[d]); ++v) {
      if (ranges[v].is(1)) continue;
      groups[d].push_back(static_cast<int>(v));
      extent = extent * ranges[v];
    }
    if (!provably_equal(extent, sizes[d])) return std::nullopt;
  }
  for (; v < ranges.size(); ++v)
    if (!ranges[v].is(1)) return std::nullopt;
  return groups;
}

/// The indices read each element of a buffer of these sizes once, in the row-major order of the consumer's
/// points.
bool reads_in_order(const SymInts& indices, const SymInts& ranges, const SymInts& sizes, Context& c) {
  auto groups = group_ranges(ranges, sizes);
  if (!groups) return false;
  for (size_t d = 0; d < sizes.size(); ++d) {
    SymInt index = 0;
    for (int v : (*groups)[d]) index = index * ranges[v] + c.var(v);
    if (!provably_equal(indices[d], index) && !(sizes[d].is(1) && indices[d].is(0))) return false;
  }
  return true;
}

/// The operand as a view of the result's rank: size 1 where the read does not move. nullopt where it moves
/// with a part of a dimension only.
std::optional<ExternOperand> operand_of(const Program& program, Expr load, const DimGroups& groups,
                                        const SymInts& sizes) {
  const Buffer& b = program.at(load->buffer);
  size_t rank = sizes.size(), r = b.sizes.size();
  ExternOperand operand{load->buffer, SymInts(rank, SymInt(1)), SymInts(rank * r, SymInt(0)),
                        SymInts(r, SymInt(0))};
  for (size_t k = 0; k < r; ++k) {
    if (load->indices[k].is(0)) continue;
    int v = load->indices[k].node()->number;
    auto has_variable = [&](const std::vector<int>& g) {
      return std::find(g.begin(), g.end(), v) != g.end();
    };
    auto d = std::find_if(groups.begin(), groups.end(), has_variable) - groups.begin();
    if (d == static_cast<std::ptrdiff_t>(rank)) continue; // a variable of size 1
    if (groups[d].size() != 1) return std::nullopt;
    operand.sizes[d] = sizes[d];
    operand.coefficients[d * r + k] = 1;
  }
  return operand;
}

class PostOpPass {
public:
  PostOpPass(Program& program, const Target& target)
      : program_(program), deps_(analyse(program)), target_(target) {}

  void run() {
    std::vector<bool> moved(program_.operations.size(), false);
    for (size_t i = 0; i < program_.operations.size(); ++i) {
      // A fused call takes its consumer's place and may fuse again there.
      if (auto consumer = try_fuse(static_cast<int>(i))) moved[i] = true;
    }
    std::vector<Operation> kept;
    for (size_t i = 0; i < program_.operations.size(); ++i) {
      if (auto it = before_.find(static_cast<int>(i)); it != before_.end())
        std::move(it->second.begin(), it->second.end(), std::back_inserter(kept));
      if (!moved[i]) kept.push_back(std::move(program_.operations[i]));
    }
    program_.operations = std::move(kept);
  }

private:
  std::optional<int> try_fuse(int producer) {
    Operation& op = program_.operations[producer];
    auto* call = std::get_if<ExternCall>(&op.what);
    if (!call || !call->output_symbols.empty() || call->outputs.size() != 1 || !post_ops_of(call->problem))
      return std::nullopt;
    BufferId result = call->outputs[0];
    const Buffer& buffer = program_.at(result);
    const bool integers =
        multiplies_bytes(*call) && (buffer.dtype == DType::i32 || takes_bytes(buffer.dtype));
    if (owner_of(program_, result) != result || !(is_real(buffer.dtype) || integers) ||
        deps_.is_output[result])
      return std::nullopt;
    // The indices of an empty nest say nothing of what moves with them.
    if (std::any_of(buffer.sizes.begin(), buffer.sizes.end(), [](SymInt s) { return s.is(0); }))
      return std::nullopt;
    const auto& readers = deps_.readers[result];
    if (readers.size() != 1) {
      op.reason += fmt::format("; post-operations: the result has {} readers", readers.size());
      return std::nullopt;
    }
    Operation& consumer = program_.operations[readers[0]];
    auto* compute = std::get_if<Compute>(&consumer.what);
    if (!compute || compute->loops.kind != LoopKind::pointwise ||
        !(is_real(compute->loops.dtype) || (integers && is_byte(compute->loops.dtype))) ||
        !may_write(*call, compute->output))
      return std::nullopt;
    std::vector<Operation> made;
    if (!fuse_chain(op, *call, consumer, *compute, made)) return std::nullopt;
    auto& before = before_[readers[0]];
    std::move(made.begin(), made.end(), std::back_inserter(before));
    return readers[0];
  }

  /// Products on GPUs write into a part of a concatenation that is one piece of its memory: whatever shape
  /// the call sees the result in, it lies there.
  bool may_write(const ExternCall& call, BufferId result) const {
    const Buffer& part = program_.at(result);
    if (part.slice_of < 0) return true;
    const Buffer& whole = program_.at(part.slice_of);
    if (!target_.cuda || !std::holds_alternative<extern_kernels::MatMulProblem>(call.problem) ||
        whole.slice_of >= 0 || whole.overwrites >= 0)
      return false;
    size_t inner = part.sizes.size(); // dimensions from here on are those of the whole
    while (inner > 0 && provably_equal(part.sizes[inner - 1], whole.sizes[inner - 1])) --inner;
    return inner == 0 ||
           std::all_of(part.sizes.begin(), part.sizes.begin() + inner - 1, [](SymInt s) { return s.is(1); });
  }

  /// Computed in f32, whatever memory holds.
  static bool is_real(DType type) { return type == DType::f32 || is_half(type); }

  bool multiplies_bytes(const ExternCall& call) const {
    return is_byte(program_.at(call.inputs[0].buffer).dtype) &&
           is_byte(program_.at(call.inputs[1].buffer).dtype);
  }

  /// Bytes that the library has stored may be what it goes on with, and what it adds.
  bool takes_bytes(DType type) const { return is_byte(type) && !target_.cuda; }

  /// The load of what a kernel of its own computes, or of a constant.
  Expr in_memory(Expr e, const SymInts& ranges, std::vector<Operation>& made,
                 const std::vector<int>& origins) {
    Context& c = *program_.context;
    if (e->op == Op::constant) {
      Tensor t = Tensor::make(DType::f32, {1});
      t.as_mutable<float>()[0] = static_cast<float>(e->as_double());
      return c.load(program_.add_constant(std::make_shared<const Tensor>(std::move(t)), ""), DType::f32,
                    {SymInt(0)});
    }
    int variable = -1;
    visit(e, [&](Expr n) {
      if (n->op == Op::load)
        for (SymInt index : n->indices)
          if (!index.is_constant()) variable = index.node()->number;
    });
    Loops loops;
    loops.ranges = {variable < 0 ? SymInt(1) : ranges[variable]};
    loops.dtype = DType::f32;
    Substitution s;
    s.vars.assign(ranges.size(), SymInt(0));
    if (variable >= 0) s.vars[variable] = c.var(0);
    loops.body = substitute(e, s);
    BufferId id = program_.new_buffer("", DType::f32, loops.ranges);
    made.push_back({Compute{std::move(loops), id}, origins, "operand of a post-operation"});
    return c.load(id, DType::f32, {variable < 0 ? SymInt(0) : c.var(variable)});
  }

  static bool refused(Operation& op, std::string_view why) {
    op.reason += fmt::format("; post-operations: {}", why);
    return false;
  }

  static bool is_same(const SymInts& a, const SymInts& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), provably_equal);
  }

  static extern_kernels::Spread spread_of(const extern_kernels::Problem& problem, const SymInts& operand,
                                          const SymInts& result) {
    using extern_kernels::Spread;
    if (is_same(operand, result)) return Spread::none;
    size_t channel = std::holds_alternative<extern_kernels::ConvProblem>(problem) ? 1 : result.size() - 1;
    bool single = true;
    for (size_t d = 0; d < operand.size(); ++d) {
      if (d != channel && !operand[d].is(1)) return Spread::other;
      single &= operand[d].is(1);
    }
    return single                                              ? Spread::single
           : provably_equal(operand[channel], result[channel]) ? Spread::channel
                                                               : Spread::other;
  }

  /// Convolutions of oneDNN with AVX-512 spend longer on these than a pass of generated code does, the memory
  /// it moves included (with AVX2 as long; matrix products gain nothing either way). Small results, which the
  /// first cache holds, are not worth a kernel of their own. Kernels of GPUs that take them are ours.
  bool is_dear_inside(const extern_kernels::Problem& problem, PostOp::Kind kind,
                      const SymInts& result) const {
    if (target_.cuda || !std::holds_alternative<extern_kernels::ConvProblem>(problem)) return false;
    if (kind != PostOp::silu && kind != PostOp::sigmoid && kind != PostOp::tanh && kind != PostOp::gelu_tanh)
      return false;
    auto elements = ir::product(result).as_constant();
    return !elements || *elements >= target_.l1_bytes / size_of(DType::f32);
  }

  /// One value per column, added first: products have a place for it.
  static bool is_bias(const ExternCall& call, const PostOp& op, const SymInts& sizes, bool is_integer) {
    const auto* product = std::get_if<extern_kernels::MatMulProblem>(&call.problem);
    return product && op.kind == PostOp::add && !product->has_bias && !is_integer &&
           product->post_ops.empty() && call.inputs.size() == 2 &&
           std::all_of(sizes.begin(), sizes.end() - 1, [](SymInt s) { return s.is(1); });
  }

  /// Libraries of GPUs add what has the type of the result: constants are rounded to it once.
  void narrow_constants(ExternCall& call) {
    const DType type = program_.at(call.outputs[0]).dtype;
    if (!is_half(type)) return;
    for (size_t i = 2; i < call.inputs.size(); ++i) {
      if (call.inputs[i].buffer < 0) continue;
      const Buffer b = program_.at(call.inputs[i].buffer); // a copy: constants are added
      if (!b.constant || b.dtype != DType::f32) continue;
      Tensor narrow = Tensor::make(type, b.constant->dims);
      const std::span<const float> from = b.constant->as<float>();
      const std::span<uint16_t> to = narrow.as_mutable<uint16_t>();
      for (size_t k = 0; k < from.size(); ++k) to[k] = static_cast<uint16_t>(encode_float(type, from[k]));
      call.inputs[i].buffer =
          program_.add_constant(std::make_shared<const Tensor>(std::move(narrow)), b.name);
    }
  }

  /// Post-operations that grow step by step, and the call that they become part of.
  struct Chain {
    ExternCall call;
    SymInts sizes;    ///< of the result, as the problem sees it
    DimGroups groups; ///< the consumer's loops, by dimension of the result
    Expr cur, end;    ///< what the call computes so far, and what the consumer makes of it
    bool bytes;       ///< the product is stored as bytes
    bool integers;    ///< as bytes, or as exact sums
    bool adds_bytes = false;

    std::vector<PostOp>& post_ops() { return *post_ops_of(call.problem); }
  };

  bool fuse_chain(Operation& op, ExternCall& call, Operation& consumer, Compute& compute,
                  std::vector<Operation>& made) {
    const Buffer buffer = program_.at(call.outputs[0]); // a copy: operands add buffers
    const SymInts& ranges = compute.loops.ranges;
    const SymInts sizes = call.output_sizes.empty() ? buffer.sizes : call.output_sizes;
    std::vector<Expr> loads;
    visit(compute.loops.body, [&](Expr n) {
      if (n->op == Op::load && n->buffer == buffer.id) loads.push_back(n);
    });
    if (loads.size() != 1 || loads[0]->mask()) return refused(op, "the result is read more than once");
    auto groups = group_ranges(ranges, sizes);
    if (!groups || !reads_in_order(loads[0]->indices, ranges, buffer.sizes, *program_.context))
      return refused(op, "the consumer reads the result in another order");
    const bool same_sizes = is_same(program_.at(compute.output).sizes, sizes);
    if (!same_sizes && !std::holds_alternative<extern_kernels::MatMulProblem>(call.problem))
      return refused(op, "the consumer sees the result in another shape");

    const bool bytes = is_byte(buffer.dtype), integers = bytes || buffer.dtype == DType::i32;
    Chain chain{call, sizes, std::move(*groups), loads[0], compute.loops.body, bytes, integers};
    // The store rounds.
    if (chain.end->op == Op::round_to && is_half(compute.loops.dtype) &&
        chain.end->format == compute.loops.dtype)
      chain.end = chain.end->args[0];
    const ChainMatcher matcher(compute.loops.body, loads[0], integers);
    if (integers)
      if (const char* reason = enter_floats(chain, matcher, compute.loops.dtype)) return refused(op, reason);
    while (chain.cur != chain.end) {
      std::optional<Link> link = matcher.next(chain.cur);
      // A partial chain would only move the boundary: the nest stays as one kernel.
      if (!link) return refused(op, "no library form of what follows");
      if (std::string reason = take(chain, *link, ranges, op.origins, made); !reason.empty())
        return refused(op, reason);
    }
    if (bytes && !chain.adds_bytes) return refused(op, "what follows is a table of bytes");
    ExternCall& fused = chain.call;
    fused.outputs = {compute.output};
    fused.output_sizes = same_sizes ? SymInts{} : sizes;
    if (target_.cuda) narrow_constants(fused);
    if (std::string reason = refused_as_a_whole(program_, fused, sizes, target_); !reason.empty())
      return refused(op, reason);
    Operation merged{std::move(fused), op.origins,
                     op.reason + "; pointwise consumer fused as post-operations"};
    merged.origins.insert(merged.origins.end(), consumer.origins.begin(), consumer.origins.end());
    // The call's result now is the consumer's buffer; readers of that buffer are unchanged.
    consumer = std::move(merged);
    return true;
  }

  /// Exact sums and bytes become f32 before anything else; in the end they may be integers again, of type
  /// `result`. Why they do not; nullptr: they do.
  static const char* enter_floats(Chain& chain, const ChainMatcher& matcher, DType result) {
    const auto start = chain.bytes ? matcher.as_dequantised(chain.cur) : std::nullopt;
    if (start) {
      chain.cur = start->first;
      if (start->second.zero != 0)
        append_step(chain.post_ops(), {PostOp::linear, 1, static_cast<float>(-start->second.zero)});
    } else if (chain.bytes) {
      return "bytes that stay bytes";
    } else {
      chain.cur = matcher.as_f32(chain.cur);
      if (!chain.cur) return "the exact sum is used as an integer";
    }
    if (chain.end->op == Op::cast && is_byte(chain.end->dtype)) chain.end = chain.end->args[0];
    if (chain.end->dtype != DType::f32) return "no library form of what follows";
    if (is_byte(result) && chain.end->op != Op::min && chain.end->op != Op::max)
      return "integers that are not clamped";
    return nullptr;
  }

  /// Makes the next link of the chain part of the call. Why it is not; empty: it is.
  std::string take(Chain& chain, Link link, const SymInts& ranges, const std::vector<int>& origins,
                   std::vector<Operation>& made) {
    using extern_kernels::Spread;
    ExternCall& call = chain.call;
    if (!chain.integers && is_dear_inside(call.problem, link.op.kind, chain.sizes))
      return "what follows is faster in a kernel of its own";
    std::optional<ExternOperand> operand;
    Spread spread = Spread::other;
    if (link.operand) {
      if (link.operand->op != Op::load) link.operand = in_memory(link.operand, ranges, made, origins);
      operand = operand_of(program_, link.operand, chain.groups, chain.sizes);
      if (!operand) return "an operand moves with part of a dimension";
      spread = spread_of(call.problem, operand->sizes, chain.sizes);
      link.op.operand = static_cast<int>(std::max<size_t>(call.inputs.size(), 3));
      // Whether a narrow one fits is asked of the kernel, with the whole call.
      const DType type = program_.at(operand->buffer).dtype;
      const bool fits = link.bytes ? takes_bytes(type) && spread == Spread::none : is_real(type);
      if (!fits) return "an operand is not float32";
    }
    if (std::string refusal = accepts_post_op(call.problem, link.op, DType::f32, spread); !refusal.empty())
      return refusal;
    chain.cur = link.next;
    if (operand && is_bias(call, link.op, operand->sizes, chain.integers)) {
      std::get<extern_kernels::MatMulProblem>(call.problem).has_bias = true;
      call.inputs.push_back(std::move(*operand));
      return {};
    }
    if (operand) {
      while (call.inputs.size() < 3) call.inputs.push_back({});
      call.inputs.push_back(std::move(*operand));
    }
    if (!chain.integers) {
      chain.post_ops().push_back(link.op);
      return {};
    }
    // Bytes are added as they lie, in units of their own scale.
    const Dequantised d = link.bytes.value_or(Dequantised{});
    if (d.scale != 1) append_step(chain.post_ops(), {PostOp::linear, static_cast<float>(1 / d.scale), 0});
    append_step(chain.post_ops(), link.op);
    if (d.scale != 1 || d.zero != 0)
      append_step(chain.post_ops(),
                  {PostOp::linear, static_cast<float>(d.scale), static_cast<float>(-d.zero * d.scale)});
    chain.adds_bytes |= link.bytes.has_value();
    return {};
  }

  Program& program_;
  Dependencies deps_;
  std::map<int, std::vector<Operation>> before_; ///< operations made, by the one they come before
  const Target& target_;                         ///< GPUs: their libraries are asked
};

} // namespace

std::string refused_as_a_whole(const Program& program, const ExternCall& call, const SymInts& result,
                               const Target& target) {
  const auto [inputs, outputs] = operand_infos(program, call, result);
  return target.cuda ? extern_kernels::accepts_on_gpu(call.problem, inputs, outputs)
                     : accepts_post_ops(call.problem, inputs, outputs, target);
}

void fuse_post_ops(Program& program, const Target& target) { PostOpPass(program, target).run(); }

} // namespace tbx::fusion
