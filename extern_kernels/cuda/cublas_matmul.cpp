// Matrix products by cuBLASLt: operands by strides, bias, one addition and one activation in the same kernel.
#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "device/cuda/cuda_device.h"
#include "extern_kernels/cuda/epilogue.h"
#include "extern_kernels/cuda/few_rows_product.h"
#include "extern_kernels/cuda/gelu_product.h"
#include "extern_kernels/cuda/gemm.h"
#include "extern_kernels/cuda/measure.h"
#include "extern_kernels/cuda/notes.h"
#include "extern_kernels/cuda/padded_columns.h"
#include "extern_kernels/cuda/plain.h"
#include "extern_kernels/cuda/row_product.h"
#include "extern_kernels/library_kernel.h"

namespace tbx::extern_kernels {

using namespace cuda;

namespace {

/// cudaDataType; -1: not of the library.
int type_of(DType t) {
  switch (t) {
  case DType::f32: return lt::kF32;
  case DType::f64: return lt::kF64;
  case DType::f16: return lt::kF16;
  case DType::bf16: return lt::kBf16;
  case DType::i8: return lt::kI8;
  case DType::i32: return lt::kI32;
  default: return -1;
  }
}

/// A matrix with dense rows, or dense columns.
struct Matrix {
  bool fits = false, columns = false;
  int64_t step = 0;
};

Matrix matrix_of(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
  const bool one_row = rows == 1, one_column = columns == 1;
  if ((column_stride == 1 || one_column) && (row_stride >= columns || one_row))
    return {true, false, one_row ? columns : row_stride};
  if ((row_stride == 1 || one_row) && (column_stride >= rows || one_column))
    return {true, true, one_column ? rows : column_stride};
  return {};
}

/// A dimension of the batch and what a step along it is in each operand.
struct BatchStep {
  int64_t size, a, b, c, residual;
};

/// The products that one call of the kernel is: a Gemm, and loops over the batches that it does not count
/// itself.
struct Products {
  Gemm gemm;
  std::vector<BatchStep> outer;
  std::string refusal;
};

/// The dimensions of the batch, those joined that lie as one would.
std::vector<BatchStep> batch_steps(const TensorRef& a, const TensorRef& b, const TensorRef& c,
                                   const TensorRef* residual) {
  auto stride = [](const TensorRef& t, size_t d) { return t.sizes[d] == 1 ? 0 : t.strides[d]; };
  std::vector<BatchStep> steps;
  for (size_t d = 0; d + 2 < c.sizes.size(); ++d) {
    if (c.sizes[d] == 1) continue;
    const BatchStep s{c.sizes[d], stride(a, d), stride(b, d), c.strides[d],
                      residual ? stride(*residual, d) : 0};
    BatchStep* const last = steps.empty() ? nullptr : &steps.back();
    if (last && last->a == s.a * s.size && last->b == s.b * s.size && last->c == s.c * s.size &&
        last->residual == s.residual * s.size)
      *last = {last->size * s.size, s.a, s.b, s.c, s.residual};
    else
      steps.push_back(s);
  }
  return steps;
}

/// A batch of which b knows nothing is more rows.
void take_rows(Gemm& g, std::vector<BatchStep>& steps) {
  if (steps.empty() || g.a_columns) return;
  const BatchStep s = steps.back();
  const bool residual_fits = !g.residual || s.residual == g.residual_step * g.m;
  if (s.b != 0 || s.a != g.a_step * g.m || s.c != g.c_step * g.m || !residual_fits || (g.m <= 1 && s.a < g.k))
    return;
  g.m *= s.size;
  steps.pop_back();
}

/// The library knows one dimension of a batch: the largest.
void take_batch(Gemm& g, std::vector<BatchStep>& steps) {
  if (steps.empty()) return;
  const auto largest = std::max_element(
      steps.begin(), steps.end(), [](const BatchStep& x, const BatchStep& y) { return x.size < y.size; });
  g.batch = largest->size;
  g.a_batch = largest->a, g.b_batch = largest->b, g.c_batch = largest->c;
  g.residual_batch = largest->residual;
  steps.erase(largest);
}

Products products_of(const MatMulProblem& p, const Epilogue& e, std::span<const TensorRef> in,
                     const TensorRef& c) {
  Products out;
  auto refuse = [&](const char* why) {
    out.refusal = why;
    return out;
  };
  const TensorRef &a = in[0], &b = in[1];
  const size_t rank = c.sizes.size(), row = rank - 2, column = rank - 1;
  Gemm& g = out.gemm;
  g.type = type_of(a.dtype), g.result = type_of(c.dtype);
  g.tf32 = p.precision == Precision::any && a.dtype == DType::f32;
  g.m = c.sizes[row], g.n = c.sizes[column], g.k = a.sizes[column];
  if (g.k == 0) return refuse("an empty inner dimension");
  const Matrix ma = matrix_of(g.m, g.k, a.strides[row], a.strides[column]),
               mb = matrix_of(g.k, g.n, b.strides[row], b.strides[column]),
               mc = matrix_of(g.m, g.n, c.strides[row], c.strides[column]);
  if (!ma.fits || !mb.fits) return refuse("operands without dense rows or columns");
  if (!mc.fits || mc.columns) return refuse("a result without dense rows");
  g.a_columns = ma.columns, g.a_step = ma.step;
  g.b_columns = mb.columns, g.b_step = mb.step;
  g.c_step = mc.step;
  g.bias = e.bias >= 0, g.residual = e.residual >= 0, g.activation = e.activation;
  const TensorRef* residual = g.residual ? &in[e.residual] : nullptr;
  if (residual) {
    const Matrix mr = matrix_of(g.m, g.n, residual->strides[row], residual->strides[column]);
    if (!mr.fits || mr.columns) return refuse("an addition without dense rows");
    g.residual_step = mr.step;
  }
  if (g.bias && g.n > 1 && in[e.bias].strides.back() != 1 &&
      *std::max_element(in[e.bias].strides.begin(), in[e.bias].strides.end()) != 1)
    return refuse("a bias that is not dense");
  out.outer = batch_steps(a, b, c, residual);
  take_rows(g, out.outer);
  take_batch(g, out.outer);
  if (std::max({g.m, g.n, g.k, g.batch}) > INT32_MAX) return refuse("a dimension above 2^31 - 1");
  return out;
}

class CublasMatMul final : public LibraryKernel {
public:
  CublasMatMul(device::Device& device, const MatMulProblem& p, std::span<const OperandInfo> inputs,
               std::span<const OperandInfo> outputs)
      : p_(p), context_(device::context_of(device)), plain_(make_cuda_matmul, device, p, inputs, outputs),
        row_(device, inputs[0], inputs[1]), few_(device, inputs[1]), gelu_(device),
        padded_(device, inputs[1]), version_(lt::version()) {}

  std::string description() const override { return fmt::format("{} {}", version_, to_string(Problem(p_))); }

  int64_t workspace_bytes(std::span<const TensorRef> inputs,
                          std::span<const TensorRef> outputs) const override {
    if (outputs[0].numel() == 0) return 0;
    const Products products = decompose(inputs, outputs[0]);
    if (!products.refusal.empty()) return 0;
    const bool few = may_take_few(products, {}); // as if all lay at the best addresses
    if (few) few_.prepare(products.gemm);
    if (products.gemm.activation == Activation::gelu_erf && !few)
      return products.outer.empty() ? gelu_.workspace_bytes(products.gemm) : 0;
    if (products.gemm.m == 1) row_.prepare(products.gemm); // ahead of the run, which may be recorded
    if (products.outer.empty()) std::call_once(row_compiled_, [&] { row_.compile(products.gemm); });
    if (pads(products)) {
      padded_.weights(); // also ahead
      const Gemm g = padded_gemm(products.gemm);
      return result_bytes(g) + static_cast<int64_t>(plan_of(context_, g)->workspace_bytes());
    }
    Gemm library = products.gemm; // also where a run finds addresses that few rows do not take
    if (library.activation == Activation::gelu_erf) library.activation = Activation::none;
    return static_cast<int64_t>(plan_of(context_, library)->workspace_bytes());
  }

  void run(const RunArgs& args) const override {
    if (args.outputs[0].numel() == 0) return;
    Products products = decompose(args.inputs, args.outputs[0]);
    if (!products.refusal.empty()) return run_plain(args, products.refusal);
    const auto bytes = static_cast<size_t>(workspace_bytes(args.inputs, args.outputs));
    if (pads(products)) return run_padded(args, products.gemm, bytes);
    const Epilogue e = epilogue(args.inputs, args.outputs[0]);
    GemmAddresses at{args.inputs[0].data, args.inputs[1].data,
                     e.bias >= 0 ? args.inputs[e.bias].data : nullptr,
                     e.residual >= 0 ? args.inputs[e.residual].data : nullptr, args.outputs[0].data};
    if (e.in_place) at.residual = at.c;
    Gemm& g = products.gemm;
    if (g.activation == Activation::gelu_erf) {
      if (!products.outer.empty()) return run_plain(args, "batches that do not lie as one");
      return run_gelu(args, products, at, bytes);
    }
    if (products.outer.empty() && row_.suits(g, at)) {
      row_.run(*args.stream, g, at, p_.alpha);
      return notes_.add(fmt::format("[{} x {} x {} x {}]: our own, of one row", g.batch, g.m, g.k, g.n));
    }
    g.align_a = alignment(at.a, products.outer, &BatchStep::a, args.inputs[0].dtype);
    g.align_b = alignment(at.b, products.outer, &BatchStep::b, args.inputs[1].dtype);
    g.align_c = alignment(at.c, products.outer, &BatchStep::c, args.outputs[0].dtype);
    if (at.residual)
      g.align_c = std::min(
          g.align_c, alignment(at.residual, products.outer, &BatchStep::residual, args.outputs[0].dtype));
    const std::shared_ptr<GemmPlan> plan = plan_of(context_, g);
    if (plan->empty()) return run_plain(args, "the library has no algorithm");
    FewRowsProduct::Weights weights;
    const GemmPlan::Other few =
        may_take_few(products, at) ? few_rows(args, g, at, weights) : GemmPlan::Other{};
    int64_t batches = 1;
    for (const BatchStep& s : products.outer) batches *= s.size;
    for (int64_t i = 0; i < batches; ++i) {
      GemmAddresses here = at;
      int64_t rest = i;
      for (size_t d = products.outer.size(); d-- > 0; rest /= products.outer[d].size) {
        const BatchStep& s = products.outer[d];
        const int64_t index = rest % s.size, in = size_of(args.inputs[0].dtype),
                      out = size_of(args.outputs[0].dtype);
        here.a = static_cast<const char*>(here.a) + index * s.a * in;
        here.b = static_cast<const char*>(here.b) + index * s.b * in;
        here.c = static_cast<char*>(here.c) + index * s.c * out;
        if (here.residual) here.residual = static_cast<const char*>(here.residual) + index * s.residual * out;
      }
      if (!plan->run(*args.stream, here, p_.alpha, args.workspace, bytes, few))
        return run_plain(args, kLargerWorkspace);
    }
    if (few && plan->takes_other()) keep(args, weights);
    notes_.add(plan_text(g, *plan));
  }

  int64_t packed_bytes() const override { return padded_.bytes() + row_.bytes() + few_.bytes(); }
  std::vector<std::string> implementations() const override { return notes_.all(); }
  bool measures() const override { return measuring(); }

private:
  Epilogue epilogue(std::span<const TensorRef> inputs, const TensorRef& out) const {
    std::vector<OperandInfo> infos = plain_.inputs();
    for (size_t i = 0; i < infos.size(); ++i)
      infos[i].sizes.assign(inputs[i].sizes.begin(), inputs[i].sizes.end());
    const OperandInfo result{out.dtype, {out.sizes.begin(), out.sizes.end()}, {}, nullptr};
    return epilogue_of(p_.post_ops, p_.has_bias ? 2 : -1, infos, result,
                       static_cast<int>(out.sizes.size()) - 1);
  }
  Products decompose(std::span<const TensorRef> inputs, const TensorRef& out) const {
    const Epilogue e = epilogue(inputs, out);
    if (!e.refusal.empty()) return {{}, {}, e.refusal};
    return products_of(p_, e, inputs, out);
  }
  static int alignment(const void* at, const std::vector<BatchStep>& outer, int64_t BatchStep::*step,
                       DType type) {
    int align = alignment_of(at);
    for (const BatchStep& s : outer)
      if (s.*step != 0)
        align = std::min(align, alignment_of(reinterpret_cast<void*>(s.*step * size_of(type))));
    return align;
  }
  bool may_take_few(const Products& products, const GemmAddresses& at) const {
    return products.outer.empty() && measuring() && few_.suits(products.gemm, at);
  }
  /// The product by our own kernel, whose weights are packed when it is first wanted; none while a graph is
  /// recorded before that.
  GemmPlan::Other few_rows(const RunArgs& args, const Gemm& g, const GemmAddresses& at,
                           FewRowsProduct::Weights& weights) const {
    weights = few_.kept();
    if (!weights && device::cuda::is_capturing(*args.stream)) return {};
    GemmPlan::Other few;
    few.run = [&](const GemmAddresses& there) {
      if (!weights) weights = few_.packed(*args.stream, g, at);
      few_.run(*args.stream, g, there, p_.alpha, *weights);
    };
    few.lead = [&] { few_.lead(*args.stream, g); };
    return few;
  }
  /// Another caller may have packed the same ones at the same time: then these are of this run alone.
  void keep(const RunArgs& args, const FewRowsProduct::Weights& weights) const {
    if (weights && (args.rehearsal || !few_.keep(weights))) args.stream->synchronize();
  }
  /// The product gains from columns padded to a multiple of 8.
  bool pads(const Products& products) const {
    const Gemm& g = products.gemm;
    return products.outer.empty() && g.batch == 1 && !g.bias && !g.residual &&
           g.activation == Activation::none && is_half_type(g.type) && g.result == g.type &&
           padded_.gains(g.m);
  }
  static bool is_half_type(int type) { return type == lt::kF16 || type == lt::kBf16; }
  /// The same product with a dense padded result.
  Gemm padded_gemm(Gemm g) const {
    g.n = g.c_step = padded_.padded();
    g.b_columns = true;
    g.b_step = padded_.terms();
    g.align_b = g.align_c = 16;
    return g;
  }
  static int64_t result_bytes(const Gemm& g) { return (g.m * g.c_step * 2 + 255) / 256 * 256; }

  void run_padded(const RunArgs& args, const Gemm& plain, size_t bytes) const {
    Gemm g = padded_gemm(plain);
    g.align_a = alignment_of(args.inputs[0].data);
    const std::shared_ptr<GemmPlan> plan = plan_of(context_, g);
    if (plan->empty()) return run_plain(args, "the library has no algorithm");
    GemmAddresses at;
    at.a = args.inputs[0].data, at.b = padded_.weights(), at.c = args.workspace;
    const auto result = static_cast<size_t>(result_bytes(g));
    if (!plan->run(*args.stream, at, p_.alpha, static_cast<char*>(args.workspace) + result, bytes - result))
      return run_plain(args, kLargerWorkspace);
    padded_.copy(*args.stream, at.c, args.outputs[0].data, g.m, plain.c_step);
    notes_.add(plan_text(g, *plan) + ", padded columns");
  }

  void run_gelu(const RunArgs& args, const Products& products, const GemmAddresses& at, size_t bytes) const {
    Gemm g = products.gemm;
    const std::string sizes = fmt::format("[{} x {} x {} x {}] with GELU", g.batch, g.m, g.k, g.n);
    if (may_take_few(products, at)) { // not measured: cuDNN would compile its ways for a second
      FewRowsProduct::Weights weights;
      if (const GemmPlan::Other few = few_rows(args, g, at, weights)) {
        few.run(at);
        keep(args, weights);
        return notes_.add(sizes + ": our own, of few rows");
      }
    }
    g.align_a = alignment_of(at.a), g.align_b = alignment_of(at.b), g.align_c = alignment_of(at.c);
    const std::string refusal = gelu_.run(*args.stream, g, at, p_.alpha, args.workspace, bytes);
    if (!refusal.empty()) return run_plain(args, refusal);
    notes_.add(sizes + ": " + gelu_.description(g, at));
  }

  void run_plain(const RunArgs& args, const std::string& why) const {
    notes_.add("plain loops: " + why);
    plain_.get().run(args);
  }
  static std::string plan_text(const Gemm& g, const GemmPlan& plan) {
    return fmt::format("[{} x {} x {} x {}]: {}", g.batch, g.m, g.k, g.n, plan.description());
  }
  MatMulProblem p_;
  std::shared_ptr<const device::cuda::ContextOwner> context_;
  LazyKernel plain_;
  RowProduct row_;
  FewRowsProduct few_;
  GeluProduct gelu_;
  PaddedColumns padded_;
  mutable std::once_flag row_compiled_; ///< for the first sizes
  std::string version_;
  Notes notes_;
};

} // namespace

std::string supports_cublas_matmul(const Problem& problem, std::span<const OperandInfo> inputs,
                                   std::span<const OperandInfo> outputs, const device::Properties&) {
  const auto& p = std::get<MatMulProblem>(problem);
  const DType a = inputs[0].dtype, c = outputs[0].dtype;
  if (a != inputs[1].dtype) return fmt::format("{} times {}", name_of(a), name_of(inputs[1].dtype));
  const bool bytes = a == DType::i8 && c == DType::i32;
  const bool floats =
      (a == c && (a == DType::f32 || a == DType::f64 || is_half(a))) || (is_half(a) && c == DType::f32);
  if (!bytes && !floats) return fmt::format("{} operands and a result of {}", name_of(a), name_of(c));
  if (p.a_zero >= 0 || p.b_zero >= 0) return "zero points";
  if (bytes && p.alpha != 1) return "a factor of an integer product";
  // Other sizes have no algorithm.
  constexpr int64_t kEach = 16;
  if (bytes && (inputs[0].sizes.back() % kEach != 0 || inputs[1].sizes.back() % kEach != 0))
    return "integers in rows that are no multiples of 16, or of unknown length";
  const Epilogue e = epilogue_of(p.post_ops, p.has_bias ? 2 : -1, inputs, outputs[0],
                                 static_cast<int>(outputs[0].sizes.size()) - 1);
  if (!e.refusal.empty()) return e.refusal;
  if ((bytes || a == DType::f64) && (e.bias >= 0 || e.activation != Activation::none))
    return fmt::format("a bias or an activation of a product in {}", name_of(c));
  if (bytes && e.residual >= 0) return "an addition to an integer product";
  if (e.activation == Activation::gelu_erf) return refuse_gelu(inputs, outputs[0], e);
  return {};
}

std::unique_ptr<ExternKernel> make_cublas_matmul(device::Device& device, const Problem& problem,
                                                 std::span<const OperandInfo> inputs,
                                                 std::span<const OperandInfo> outputs) {
  return std::make_unique<CublasMatMul>(device, std::get<MatMulProblem>(problem), inputs, outputs);
}

} // namespace tbx::extern_kernels
