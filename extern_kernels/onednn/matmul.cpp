// Matrix products by oneDNN: operands by strides, constant right-hand sides packed once.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>

#include "base/error.h"
#include "extern_kernels/library_kernel.h"
#include "extern_kernels/onednn/batches.h"
#include "extern_kernels/onednn/common.h"
#include "extern_kernels/onednn/guess.h"
#include "extern_kernels/onednn/product.h"
#include "extern_kernels/onednn/scaled_sums.h"
#include "extern_kernels/threads.h"
#include "extern_kernels/widen.h"

namespace tbx::extern_kernels {

std::unique_ptr<ExternKernel> make_direct_matmul(const Problem&, std::span<const OperandInfo>,
                                                 std::span<const OperandInfo>);
std::unique_ptr<ExternKernel> make_reference_matmul(const Problem&, std::span<const OperandInfo>,
                                                    std::span<const OperandInfo>);

namespace {

using dnnl::memory;
using namespace onednn;

/// One matrix of weights is multiplied by several matrices.
bool repeats_weights(const TensorRef& weights, const TensorRef& result) {
  for (size_t d = 0; d + 2 < result.sizes.size(); ++d)
    if (weights.sizes[d] == 1 && result.sizes[d] > 1) return true;
  return false;
}

/// A constant matrix, kept in the order that the library likes best.
bool is_packed(const OperandInfo& b) { return b.constant && b.sizes.size() == 2; }

/// Products of numbers that take less time than asking the library for them, and waking its threads: of any
/// form, and of many terms, with results counted in whole vectors.
constexpr int64_t kLittle = 1 << 14, kLittleInVectors = 1 << 16, kManyTerms = 32, kLanes = 16;

bool is_little(int64_t rows, int64_t terms, int64_t columns) {
  auto is_within = [&](int64_t width, int64_t most) { // none of the products overflows
    return terms <= most && width <= most / terms && rows <= most / terms / width;
  };
  if (rows < 1 || terms < 1 || columns < 1) return false;
  if (is_within(columns, kLittle)) return true;
  return terms >= kManyTerms && columns <= kLittleInVectors &&
         is_within((columns + kLanes - 1) / kLanes * kLanes, kLittleInVectors);
}

class OneDnnMatMul : public LibraryKernel {
public:
  /// `for_question`: nothing is packed, and nothing can be run. `little`: what computes products of few
  /// numbers.
  OneDnnMatMul(const MatMulProblem& problem, std::span<const OperandInfo> inputs, bool for_question = false,
               std::unique_ptr<ExternKernel> little = nullptr)
      : p_(problem), is_packed_(is_packed(inputs[1])), large_sums_(has_large_sums(problem, inputs[1])),
        little_(std::move(little)) {
    if (is_packed_ && !for_question)
      packed_ = std::make_unique<PackedWeights>(describe(inputs[1].sizes, inputs[1].strides, inputs[1].dtype),
                                                inputs[1].constant);
  }

  std::string description() const override { return "oneDNN " + extern_kernels::to_string(Problem(p_)); }

  int64_t workspace_bytes(std::span<const TensorRef> inputs,
                          std::span<const TensorRef> outputs) const override {
    if (is_serial(inputs, outputs)) return little_->workspace_bytes(inputs, outputs);
    // Made ahead of the run; calls bring memory of their own.
    if (outputs[0].numel() > 0 && inputs[0].sizes.back() > 0) prepared(inputs, outputs);
    return 0;
  }

  void run(const RunArgs& args) const override {
    if (args.outputs[0].numel() == 0) return;
    // An empty sum, with what follows it: oneDNN refuses inner dimensions of no elements.
    if (args.inputs[0].sizes.back() == 0) return make_reference_matmul(p_, {}, {})->run(args);
    if (is_serial(args.inputs, args.outputs)) return little_->run(args);
    guarded("matrix product", [&] { prepared(args.inputs, args.outputs)->execute(args); });
  }

  bool is_serial(std::span<const TensorRef> inputs, std::span<const TensorRef> outputs) const override {
    const int64_t columns = outputs[0].sizes.back();
    return little_ && columns > 0 && is_little(outputs[0].numel() / columns, inputs[0].sizes.back(), columns);
  }

  int64_t packed_bytes() const override {
    return (packed_ ? packed_->bytes() : 0) + (little_ ? little_->packed_bytes() : 0);
  }
  bool reads(size_t input) const override {
    return input != 1 || !packed_ || (little_ && little_->reads(input));
  }
  std::vector<std::string> implementations() const override { return cache_.implementations(); }

  /// As in conv.cpp.
  std::string slow(std::span<const TensorRef> in, std::span<const TensorRef> out, bool or_beside) const {
    auto implementation = [&](bool with_work) {
      return *shared_answer(key(in, out, with_work), [&] {
        const Wanted w = wanted(in, out, with_work);
        auto made = descriptor(w);
        return choose(made, w.use);
      });
    };
    auto good = [](const Implementation& i) { return !i.name.empty() && !i.is_reference; };
    const Implementation whole = implementation(true);
    if (good(whole)) return {};
    const bool has_work = p_.has_bias || !p_.post_ops.empty() || p_.alpha != 1;
    if (or_beside && has_work && good(implementation(false))) return {};
    return whole.name.empty() ? "all its implementations are refused" : whole.name + " is a plain loop";
  }

private:
  static bool has_large_sums(const MatMulProblem& p, const OperandInfo& b) {
    return (p.a_zero >= 0 || p.b_zero >= 0) && b.dtype == DType::i8 && b.sizes.size() >= 2 &&
           large_sums_on_tiles(b, b.sizes.size() - 1, b.sizes.end()[-2], p.b_zero >= 0);
  }

  std::shared_ptr<Prepared> prepared(std::span<const TensorRef> inputs,
                                     std::span<const TensorRef> outputs) const {
    return cache_.get(inputs, outputs, [&] { return make(inputs, outputs); });
  }

  /// The code that the library makes reaches 2^31 bytes from the first row of a block of rows.
  static void explain_reach(const dnnl::error& e, std::span<const TensorRef> in, const TensorRef& out) {
    if (e.status != dnnl_runtime_error) return;
    constexpr int64_t kReach = int64_t{1} << 31;
    for (const TensorRef& t : {in[0], in[1], out})
      if (t.sizes.end()[-2] > 1 && t.numel() > kReach / size_of(t.dtype))
        throw_backend_error("oneDNN makes no code for a product of matrices whose rows lie as far apart as "
                            "those of a matrix of {} x {} (split the product along the longer dimension)",
                            t.sizes.end()[-2], t.sizes.end()[-1]);
  }

  /// In order of preference: everything in one call; the product alone, what comes after it beside. A plain
  /// loop of the library only where nothing else is left.
  std::shared_ptr<Prepared> make(std::span<const TensorRef> in, std::span<const TensorRef> out) const {
    try {
      return make_by_library(in, out);
    } catch (const dnnl::error& e) {
      explain_reach(e, in, out[0]);
      raise("matrix product", e);
    }
  }

  std::shared_ptr<Prepared> make_by_library(std::span<const TensorRef> in,
                                            std::span<const TensorRef> out) const {
    const bool has_work = p_.has_bias || !p_.post_ops.empty() || p_.alpha != 1;
    auto whole = call(in, out, true);
    if (is_fast(*whole.primitive)) return finish({std::move(whole)});
    if (has_work && out[0].dtype == DType::f32 && in[0].dtype == DType::f32) {
      auto alone = call(in, out, false);
      std::vector<PostOp> work;
      if (p_.alpha != 1) work.push_back({PostOp::linear, p_.alpha, 0});
      if (p_.has_bias) work.push_back({PostOp::add, 0, 0, 2});
      work.insert(work.end(), p_.post_ops.begin(), p_.post_ops.end());
      auto beside = stages_beside(describe(out[0].sizes, out[0].strides), std::nullopt, work,
                                  [&](int k) { return describe(in[k].sizes, in[k].strides); });
      if (is_fast(*alone.primitive) && beside) {
        std::vector<Stage> stages{std::move(alone)};
        std::move(beside->begin(), beside->end(), std::back_inserter(stages));
        return finish(std::move(stages), whole.primitive->implementation.text());
      }
    }
    if (whole.primitive->implementation.name.empty())
      throw_backend_error("oneDNN has no implementation that is known to be right: {}",
                          whole.primitive->implementation.text());
    return finish({std::move(whole)});
  }

  /// The product as the library is asked for it, with bias and post-operations or without.
  struct Wanted {
    memory::desc a, b, weights, bias, c;
    dnnl::primitive_attr attr;
    Use use;
    std::vector<Argument> arguments; ///< of bias, scales, post-operations and zero points
  };

  Wanted wanted(std::span<const TensorRef> in, std::span<const TensorRef> out, bool with_work) const {
    Wanted w;
    const Batches batches(in, out[0]);
    w.a = batches.describe(in[0]);
    w.b = batches.describe(in[1]);
    w.c = batches.describe(out[0]);
    const bool bytes = is_byte(in[0].dtype);
    w.weights = is_packed_ ? memory::desc(w.b.get_dims(), bytes ? w.b.get_data_type() : w.a.get_data_type(),
                                          memory::format_tag::any)
                           : w.b;
    w.attr = attributes(p_.precision);
    dnnl::post_ops ops;
    auto operand = [&](int k) { return batches.describe(in[k]); };
    auto add = [&](const PostOp& op) {
      append(ops, op, operand);
      if (op.operand >= 0 && op.kind != PostOp::sum) // a sum's operand is the destination
        w.arguments.push_back({DNNL_ARG_ATTR_MULTIPLE_POST_OP(ops.len() - 1) | DNNL_ARG_SRC_1,
                               operand(op.operand), op.operand});
    };
    // alpha scales the product before the bias, so a bias beside it is added by a post-operation.
    const bool plain_bias = with_work && p_.has_bias && p_.alpha == 1 && is_row(in[2], out[0]);
    ScaledSums sums;
    if (bytes && with_work) sums = scaled_sums(p_.post_ops, in, out[0], out[0].sizes.size() - 1);
    if (with_work) {
      if (p_.alpha != 1) add({PostOp::linear, p_.alpha, 0});
      if (p_.has_bias && !plain_bias) add({PostOp::add, 0, 0, 2});
      append_all(std::span(p_.post_ops).subspan(sums.post_ops), out[0].dtype, add);
    }
    if (sums.has_scale()) {
      w.attr.set_scales_mask(DNNL_ARG_WEIGHTS, sums.is_of_columns ? 1 << (w.c.get_ndims() - 1) : 0);
      w.arguments.push_back(scale_argument(sums, {out[0].sizes.back()}));
    }
    auto zero_point = [&](int input, int argument) {
      if (input < 0) return;
      w.attr.set_zero_points_mask(argument, 0);
      w.arguments.push_back({DNNL_ARG_ATTR_ZERO_POINTS | argument, one_integer(), input});
    };
    zero_point(p_.a_zero, DNNL_ARG_SRC);
    zero_point(p_.b_zero, DNNL_ARG_WEIGHTS);
    w.attr.set_post_ops(ops);
    if (const int bias = plain_bias ? 2 : sums.bias; bias >= 0) {
      w.bias = operand(bias);
      w.arguments.push_back({DNNL_ARG_BIAS, w.bias, bias});
    }
    w.use = {dnnl::primitive::kind::matmul, plain_bias || sums.bias >= 0, ops.len() > 0, {}, {}};
    w.use.has_zero_point = p_.a_zero >= 0 || p_.b_zero >= 0;
    w.use.large_sums = large_sums_;
    w.use.interleaved_batches = interleaves_batches(in[0]) || interleaves_batches(in[1]);
    w.use.repeats_weights = repeats_weights(in[1], out[0]);
    return w;
  }

  /// Empty where the library has no implementation.
  static dnnl::matmul::primitive_desc descriptor(const Wanted& w) {
    return w.use.has_bias
               ? dnnl::matmul::primitive_desc(cpu_engine(), w.a, w.weights, w.bias, w.c, w.attr, true)
               : dnnl::matmul::primitive_desc(cpu_engine(), w.a, w.weights, w.c, w.attr, true);
  }

  /// The call of the product; its primitive has no name where all implementations are refused.
  Stage call(std::span<const TensorRef> in, std::span<const TensorRef> out, bool with_work) const {
    Wanted w = wanted(in, out, with_work);
    Stage stage;
    stage.primitive =
        shared_primitive(key(in, out, with_work), [&] { return make_primitive(descriptor(w), w.use); });
    stage.arguments = std::move(w.arguments);
    stage.arguments.push_back({DNNL_ARG_SRC, w.a, 0});
    if (!packed_) stage.arguments.push_back({DNNL_ARG_WEIGHTS, w.b, 1});
    stage.arguments.push_back({DNNL_ARG_DST, w.c, -1, 0});
    return stage;
  }

  Key key(std::span<const TensorRef> in, std::span<const TensorRef> out, bool with_work) const {
    Key k;
    k.add(static_cast<int64_t>(dnnl::primitive::kind::matmul)).add(is_packed_).add(p_.has_bias);
    k.add(std::bit_cast<int32_t>(p_.alpha)).add(static_cast<int64_t>(p_.precision)).add(with_work);
    k.add(p_.a_zero).add(p_.b_zero).add(large_sums_).add(p_.post_ops);
    for (const TensorRef& t : in) k.add(t);
    for (const TensorRef& t : out) k.add(t);
    return k;
  }

  /// The product comes first: it gets its packed weights.
  std::shared_ptr<Prepared> finish(std::vector<Stage> stages, std::string passed_over = "") const {
    std::vector<memory> owned;
    if (packed_) {
      const memory::desc wanted = stages[0].primitive->weights();
      owned.push_back(packed_->get(wanted));
      stages[0].arguments.push_back({DNNL_ARG_WEIGHTS, wanted, -1, -1, owned.back().get_data_handle()});
    }
    return std::make_shared<Prepared>(std::move(stages), std::vector<int64_t>{}, std::move(owned),
                                      std::move(passed_over));
  }

  /// One value per column, the form oneDNN calls a bias.
  static bool is_row(const TensorRef& bias, const TensorRef& out) {
    for (size_t d = 0; d + 1 < bias.sizes.size(); ++d)
      if (bias.sizes[d] != 1) return false;
    return bias.sizes.back() == out.sizes.back();
  }

  MatMulProblem p_;
  bool is_packed_;
  bool large_sums_; ///< of bytes (Use)
  std::unique_ptr<ExternKernel> little_;
  std::unique_ptr<PackedWeights> packed_;
  mutable PreparedCache cache_;
};

/// As in conv.cpp.
std::string slow(const MatMulProblem& p, std::span<const OperandInfo> inputs,
                 std::span<const OperandInfo> outputs, const Target& target, bool or_beside) {
  const Guess guess(p, inputs, outputs);
  if (guess.is_empty) return {};
  try {
    return as_with_threads(target.threads, [&] {
      return OneDnnMatMul(p, inputs, true).slow(guess.inputs, guess.outputs, or_beside);
    });
  } catch (const dnnl::error& e) {
    if (e.status == dnnl_unimplemented) return "the library has no implementation";
    return {};
  }
}

} // namespace

std::string supports_onednn_matmul(const Problem& problem, std::span<const OperandInfo> inputs,
                                   std::span<const OperandInfo> outputs, const Target& target) {
  const auto& p = std::get<MatMulProblem>(problem);
  const bool bytes = is_byte(inputs[0].dtype) && inputs[1].dtype == DType::i8;
  if (bytes) {
    if (std::string reason = inexact_bytes(); !reason.empty()) return reason;
    if (p.has_bias || p.alpha != 1) return "a bias or a factor of an integer product";
    // Sums of u8 times i8 alone are stored as they are; results of post-operations are rounded as float32
    // anyway.
    const OperandInfo& b = inputs[1];
    const bool adds = inputs[0].dtype == DType::i8 || p.a_zero >= 0 || p.b_zero >= 0;
    if (adds && outputs[0].dtype == DType::i32)
      if (std::string reason = inexact_sums(b, b.sizes.size() - 1, b.sizes.end()[-2], p.b_zero >= 0);
          !reason.empty())
        return reason;
  }
  if (!bytes) {
    if (std::string reason = unfit_floats(inputs, outputs[0].dtype); !reason.empty()) return reason;
    if (inputs[0].dtype == DType::f32 && is_half(inputs[1].dtype) && !is_packed(inputs[1]))
      return fmt::format("{} operands", name_of(inputs[1].dtype));
  }
  for (size_t k = 2; bytes && k < inputs.size(); ++k) {
    const DType type = inputs[k].dtype;
    const bool zero = static_cast<int>(k) == p.a_zero || static_cast<int>(k) == p.b_zero;
    if (!(zero && type == DType::i32) && type != DType::f32 && !is_byte(type) && type != DType::undefined)
      return fmt::format("{} operands", name_of(type));
  }
  if (std::string reason = unfit_result(bytes, outputs[0].dtype, !p.post_ops.empty()); !reason.empty())
    return reason;
  if (outputs[0].sizes.size() > 12) return "rank above 12";
  if (p.has_bias || !p.post_ops.empty())
    if (inputs[0].sizes.back() == 0) return "an empty inner dimension";
  for (int i = 0; i < 2; ++i)
    for (int64_t s : inputs[i].strides)
      if (s < 0) return "a negative stride";
  for (int i = 0; i < 2; ++i)
    for (size_t d = 0; d < inputs[i].strides.size(); ++d)
      if (inputs[i].strides[d] == 0 && inputs[i].sizes[d] != 1) return "a repeated operand (stride 0)";
  if (inputs[1].constant && inputs[1].strides.empty()) return "weights without known strides";
  // Nothing else does post-operations: whether they go along was asked before (accepts_post_ops).
  return p.post_ops.empty() ? slow(p, inputs, outputs, target, true) : "";
}

namespace onednn {
std::string slow_work(const MatMulProblem& p, std::span<const OperandInfo> inputs,
                      std::span<const OperandInfo> outputs, const Target& target) {
  return slow(p, inputs, outputs, target, false);
}
} // namespace onednn

std::unique_ptr<ExternKernel> make_onednn_matmul(const Problem& problem, std::span<const OperandInfo> inputs,
                                                 std::span<const OperandInfo> outputs) {
  const auto& p = std::get<MatMulProblem>(problem);
  // With sizes that only a run knows both hold the matrix, a small one.
  auto may_be_little = [&] {
    const std::vector<int64_t>&y = outputs[0].sizes, &w = inputs[1].sizes;
    const bool known = std::all_of(y.begin(), y.end(), [](int64_t n) { return n >= 0; });
    if (!known) return inputs[1].constant->numel() <= kLittle;
    return is_little(checked_numel(std::span(y).first(y.size() - 1)), w[0], w[1]);
  };
  std::unique_ptr<ExternKernel> little;
  if (is_packed(inputs[1]) && inputs[0].dtype == DType::f32 && outputs[0].dtype == DType::f32 &&
      p.post_ops.empty() && may_be_little())
    little = make_direct_matmul(problem, inputs, outputs);
  return std::make_unique<OneDnnMatMul>(p, inputs, false, std::move(little));
}

} // namespace tbx::extern_kernels
