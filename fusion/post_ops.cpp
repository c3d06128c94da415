#include "fusion/post_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "extern_kernels/catalogue.h"
#include "fusion/dependencies.h"
#include "ir/activations.h"

namespace tbx::fusion {

using namespace ir;
using extern_kernels::PostOp;

namespace {

std::vector<PostOp>* post_ops_of(extern_kernels::Problem& problem) {
  if (auto* conv = std::get_if<extern_kernels::ConvProblem>(&problem)) return &conv->post_ops;
  if (auto* matmul = std::get_if<extern_kernels::MatMulProblem>(&problem)) return &matmul->post_ops;
  return nullptr;
}

bool contains(Expr root, Expr needle) {
  bool found = false;
  visit(root, [&](Expr n) { found |= n == needle; });
  return found;
}

/// True when `root` still reaches `needle` on a path that avoids `gate`.
bool reaches_around(Expr root, Expr needle, Expr gate) {
  std::unordered_set<Expr> seen;
  std::vector<Expr> stack{root};
  while (!stack.empty()) {
    Expr n = stack.back();
    stack.pop_back();
    if (n == gate || !seen.insert(n).second) continue;
    if (n == needle) return true;
    for (int i = 0; i < n->num_args; ++i) stack.push_back(n->args[i]);
  }
  return false;
}

std::optional<double> constant_of(Expr e) {
  if (e->op != Op::constant || e->dtype != DType::f32) return std::nullopt;
  return e->as_double();
}

/// One step of the chain: how `cur` becomes the next expression.
struct Link {
  Expr next;
  PostOp op;
  Expr operand = nullptr; ///< load of the extra operand
};

/// Recognises what the consumer does with `cur` (an f32 value) inside `root`.
class ChainMatcher {
public:
  ChainMatcher(Expr root, const SymInts& ranges) : root_(root), ranges_(ranges) {
    visit(root, [&](Expr n) { nodes_.push_back(n); });
    present_.insert(nodes_.begin(), nodes_.end());
  }

  std::optional<Link> next(Expr cur) const {
    for (const Link& link : whole_activations(cur))
      if (usable(cur, link)) return link;
    for (Expr user : nodes_) {
      if (user->num_args != 2 || (user->args[0] != cur && user->args[1] != cur)) continue;
      if (auto link = binary_link(cur, user); link && usable(cur, *link)) return link;
    }
    for (Expr user : nodes_)
      if (auto link = parametric_link(cur, user); link && usable(cur, *link)) return link;
    return std::nullopt;
  }

private:
  bool usable(Expr cur, const Link& link) const {
    return present_.count(link.next) && !reaches_around(root_, cur, link.next);
  }

  static std::vector<Link> whole_activations(Expr x) {
    return {{gelu_erf(x), {PostOp::gelu_erf}},
            {gelu_tanh(x), {PostOp::gelu_tanh}},
            {silu(x), {PostOp::silu, 1}},
            {hard_swish(x), {PostOp::hard_swish}},
            {hard_sigmoid(x, 1.0 / 6, 0.5), {PostOp::hard_sigmoid, 1.0f / 6, 0.5f}},
            {hard_sigmoid(x, 0.2, 0.5), {PostOp::hard_sigmoid, 0.2f, 0.5f}},
            {relu(x), {PostOp::relu}},
            {unary(Op::sigmoid, x), {PostOp::sigmoid}},
            {unary(Op::tanh, x), {PostOp::tanh}}};
  }

  /// leaky_relu and clip carry a number: read it from the node and compare with the spelled form.
  std::optional<Link> parametric_link(Expr cur, Expr user) const {
    if (user->op == Op::where && user->num_args == 3 && user->args[2] == cur &&
        user->args[1]->op == Op::mul) {
      for (int i = 0; i < 2; ++i)
        if (auto a = constant_of(user->args[1]->args[i]); a && leaky_relu(cur, *a) == user)
          return Link{user, {PostOp::leaky_relu, static_cast<float>(*a)}};
    }
    if (user->op == Op::min || user->op == Op::max) {
      Op outer = user->op, inner = outer == Op::min ? Op::max : Op::min;
      for (int i = 0; i < 2; ++i) {
        auto bound = constant_of(user->args[i]);
        Expr rest = user->args[1 - i];
        if (!bound || rest->op != inner) continue;
        for (int j = 0; j < 2; ++j) {
          auto other = constant_of(rest->args[j]);
          if (!other || rest->args[1 - j] != cur) continue;
          double lo = outer == Op::min ? *other : *bound, hi = outer == Op::min ? *bound : *other;
          if (lo <= hi) return Link{user, {PostOp::clip, static_cast<float>(lo), static_cast<float>(hi)}};
        }
      }
    }
    return std::nullopt;
  }

  std::optional<Link> binary_link(Expr cur, Expr user) const {
    int side = user->args[0] == cur ? 0 : 1;
    Expr other = user->args[1 - side];
    if (other == cur || user->dtype != DType::f32) return std::nullopt;
    if (auto c = constant_of(other)) {
      auto value = static_cast<float>(*c);
      switch (user->op) {
      case Op::add: return Link{user, {PostOp::linear, 1, value}};
      case Op::mul: return Link{user, {PostOp::linear, value, 0}};
      case Op::sub:
        return side == 0 ? Link{user, {PostOp::linear, 1, -value}} : Link{user, {PostOp::linear, -1, value}};
      case Op::div:
        if (side == 0) return Link{user, {PostOp::linear, 1 / value, 0}};
        return std::nullopt;
      default: return std::nullopt;
      }
    }
    if (other->op != Op::load || other->mask() || !is_broadcast_read(other)) return std::nullopt;
    switch (user->op) {
    case Op::add: return Link{user, {PostOp::add}, other};
    case Op::mul: return Link{user, {PostOp::mul}, other};
    case Op::sub: return side == 0 ? std::optional(Link{user, {PostOp::sub}, other}) : std::nullopt;
    case Op::div: return side == 0 ? std::optional(Link{user, {PostOp::div}, other}) : std::nullopt;
    default: return std::nullopt;
    }
  }

  /// Every index is one loop variable or a constant, no variable twice, in increasing order, and the
  /// dimension is as long as the loop.
  bool is_broadcast_read(Expr load) const {
    int last = -1;
    for (SymInt index : load->indices) {
      if (index.is(0)) continue;
      if (index.is_constant() || index.node()->kind != SymKind::var || index.node()->number <= last)
        return false;
      last = index.node()->number;
    }
    return true;
  }

  Expr root_;
  const SymInts& ranges_;
  std::vector<Expr> nodes_;
  std::unordered_set<Expr> present_;
};

/// The operand as a view of result rank: size 1 where the read does not move.
ExternOperand operand_of(const Program& program, Expr load, const SymInts& ranges) {
  const Buffer& b = program.at(load->buffer);
  size_t rank = ranges.size(), r = b.sizes.size();
  ExternOperand operand{load->buffer, SymInts(rank, SymInt(1)), SymInts(rank * r, SymInt(0)),
                        SymInts(r, SymInt(0))};
  for (size_t k = 0; k < r; ++k) {
    if (load->indices[k].is(0)) continue;
    int v = load->indices[k].node()->number;
    operand.sizes[v] = ranges[v];
    operand.coefficients[v * r + k] = 1;
  }
  return operand;
}

bool is_identity(const SymInts& indices, const SymInts& ranges, const Program& program) {
  for (size_t k = 0; k < indices.size(); ++k)
    if (!(indices[k] == program.context->var(static_cast<int>(k))) && !(ranges[k].is(1) && indices[k].is(0)))
      return false;
  return true;
}

class PostOpPass {
public:
  explicit PostOpPass(Program& program) : program_(program), deps_(analyse(program)) {}

  void run() {
    std::vector<bool> moved(program_.operations.size(), false);
    for (size_t i = 0; i < program_.operations.size(); ++i) {
      // A fused call takes its consumer's place and may fuse again there.
      if (auto consumer = try_fuse(static_cast<int>(i))) moved[i] = true;
    }
    size_t out = 0;
    for (size_t i = 0; i < program_.operations.size(); ++i)
      if (!moved[i]) {
        if (out != i) program_.operations[out] = std::move(program_.operations[i]);
        ++out;
      }
    program_.operations.resize(out);
  }

private:
  std::optional<int> try_fuse(int producer) {
    Operation& op = program_.operations[producer];
    auto* call = std::get_if<ExternCall>(&op.what);
    if (!call || !call->output_symbols.empty() || call->outputs.size() != 1 || !post_ops_of(call->problem))
      return std::nullopt;
    BufferId result = call->outputs[0];
    const Buffer& buffer = program_.at(result);
    if (owner_of(program_, result) != result || buffer.dtype != DType::f32 || deps_.is_output[result])
      return std::nullopt;
    const auto& readers = deps_.readers[result];
    if (readers.size() != 1) {
      op.reason += fmt::format("; post-operations: the result has {} readers", readers.size());
      return std::nullopt;
    }
    Operation& consumer = program_.operations[readers[0]];
    auto* compute = std::get_if<Compute>(&consumer.what);
    if (!compute || compute->loops.kind != LoopKind::pointwise || compute->loops.dtype != DType::f32 ||
        program_.at(compute->output).slice_of >= 0)
      return std::nullopt;
    if (!fuse_chain(op, *call, consumer, *compute)) return std::nullopt;
    return readers[0];
  }

  bool fuse_chain(Operation& op, ExternCall& call, Operation& consumer, Compute& compute) {
    const Buffer& buffer = program_.at(call.outputs[0]);
    const SymInts& ranges = compute.loops.ranges;
    if (ranges.size() != buffer.sizes.size()) return false;
    for (size_t k = 0; k < ranges.size(); ++k)
      if (!provably_equal(ranges[k], buffer.sizes[k])) return false;
    std::vector<Expr> loads;
    visit(compute.loops.body, [&](Expr n) {
      if (n->op == Op::load && n->buffer == buffer.id) loads.push_back(n);
    });
    if (loads.size() != 1 || loads[0]->mask() || !is_identity(loads[0]->indices, ranges, program_))
      return false;

    ChainMatcher matcher(compute.loops.body, ranges);
    ExternCall fused = call;
    auto& post_ops = *post_ops_of(fused.problem);
    std::string names;
    Expr cur = loads[0];
    while (cur != compute.loops.body) {
      auto link = matcher.next(cur);
      if (!link) {
        op.reason += "; post-operations stop: no library form of what follows";
        return false; // a partial chain would only move the boundary: the nest stays as one kernel
      }
      bool full = false;
      ExternOperand operand;
      if (link->operand) {
        operand = operand_of(program_, link->operand, ranges);
        full = true;
        for (size_t d = 0; d < ranges.size(); ++d) full &= provably_equal(operand.sizes[d], ranges[d]);
        if (program_.at(operand.buffer).dtype != DType::f32) return false;
      }
      std::string refusal = accepts_post_op(fused.problem, link->op, DType::f32, full);
      if (!refusal.empty()) {
        op.reason += "; post-operations: " + refusal;
        return false;
      }
      if (link->operand) {
        while (fused.inputs.size() < 3) fused.inputs.push_back({});
        link->op.operand = static_cast<int>(fused.inputs.size());
        fused.inputs.push_back(operand);
      }
      post_ops.push_back(link->op);
      cur = link->next;
    }
    fused.outputs = {compute.output};
    Operation merged{std::move(fused), op.origins,
                     op.reason + "; pointwise consumer fused as post-operations"};
    merged.origins.insert(merged.origins.end(), consumer.origins.begin(), consumer.origins.end());
    // The call's result now is the consumer's buffer; readers of that buffer are unchanged.
    consumer = std::move(merged);
    return true;
  }

  Program& program_;
  Dependencies deps_;
};

} // namespace

void fuse_post_ops(Program& program) { PostOpPass(program).run(); }

} // namespace tbx::fusion
