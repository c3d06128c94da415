// com.microsoft MoE and QMoE: rows times the matrices that each of them chooses. The rows of a matrix are
// gathered, multiplied at once and put where they belong; a matrix that no row chooses is not read.
#include <fmt/format.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "base/caches.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/rounding.h"
#include "base/task_work.h"
#include "extern_kernels/kernel.h"
#include "extern_kernels/moe/row_products.h"
#include "extern_kernels/widen.h"

namespace tbx::extern_kernels {
namespace {

constexpr int64_t kFewRows = 8;    ///< up to here the matrix is read where it lies
constexpr int64_t kMostRows = 256; ///< gathered at a time: another kernel of the library for each number

/// Libraries prepare a kernel for each number of rows: few different ones are asked for.
int64_t padded_rows(int64_t rows) {
  return rows <= kFewRows ? rows : round_up(rows, rows <= 64 ? 16 : rows <= 128 ? 32 : 64);
}

/// What the tensors say of the shapes.
struct Shape {
  int64_t rows, choices, experts, n, k;
  explicit Shape(std::span<const TensorRef> in)
      : rows(in[0].sizes[0]), choices(in[1].sizes[1]), experts(in[2].sizes[0]), n(in[2].sizes[1]),
        k(in[0].sizes[1]) {}
  int64_t most_rows() const { return padded_rows(std::min(rows * choices, kMostRows)); }
};

/// Rows of x that one matrix multiplies, and where their results go: [rows, choices] flattened.
struct Batch {
  int64_t expert;
  std::span<const int64_t> routes;
};

/// Memory that grows and is used again.
class Scratch {
public:
  float* floats(int64_t count) { return static_cast<float*>(bytes(count * 4)); }
  void* bytes(int64_t count) {
    if (count > size_) memory_ = allocate_aligned(size_ = count);
    return memory_.get();
  }

private:
  std::shared_ptr<void> memory_;
  int64_t size_ = 0;
};

class ExpertProducts : public ExternKernel {
public:
  ExpertProducts(const ExpertsProblem& p, std::span<const OperandInfo> in)
      : bits_(p.bits), block_(p.block), rounds_(p.rounds),
        has_bias_(in.size() > 3 && in[3].dtype != DType::undefined) {
    if (bits_ == 0) {
      MatMulProblem product;
      product.has_bias = has_bias_;
      std::vector<OperandInfo> operands(2, {DType::f32, {-1, -1}, {}, nullptr});
      if (has_bias_) operands.push_back({DType::f32, {1, -1}, {}, nullptr});
      const OperandInfo out{DType::f32, {-1, -1}, {}, nullptr};
      product_ = select(product, operands, {&out, 1}).kernel;
      return;
    }
    auto known = [&](size_t i) {
      return i >= in.size() || in[i].dtype == DType::undefined || in[i].constant;
    };
    if (!known(2) || !known(4) || !known(5)) return;
    const int64_t k = in[2].sizes[2] * 8 / bits_;
    auto reference = [&](size_t i) {
      if (i >= in.size() || !in[i].constant) return TensorRef();
      return TensorRef{const_cast<std::byte*>(in[i].constant->data), in[i].dtype, in[i].sizes, {}};
    };
    for (int64_t e = 0; e < in[2].sizes[0]; ++e)
      packed_.push_back(pack(reference(2), reference(4), reference(5), e, k));
    drop_pages(*in[2].constant);
  }

  std::string description() const override {
    return fmt::format("products of chosen {} matrices", bits_ ? fmt::format("{}-bit", bits_) : "float");
  }

  int64_t packed_bytes() const override {
    int64_t bytes = 0;
    for (const auto& kernel : packed_) bytes += kernel->packed_bytes();
    return bytes;
  }

  int64_t workspace_bytes(std::span<const TensorRef> in, std::span<const TensorRef>) const override {
    const Shape s(in);
    return s.most_rows() * (s.k + s.n) * 4 + 64;
  }

  void run(const RunArgs& args) const override {
    const Shape s(args.inputs);
    if (s.rows == 0 || s.choices == 0 || s.n == 0) return;
    const std::vector<int64_t> order = by_expert(args.inputs[1], s);
    const auto* chosen = static_cast<const int64_t*>(args.inputs[1].data);
    std::vector<Batch> few;
    Scratch scratch;
    for (size_t begin = 0; begin < order.size();) {
      size_t end = begin;
      while (end < order.size() && end - begin < kMostRows && chosen[order[end]] == chosen[order[begin]])
        ++end;
      const Batch batch{chosen[order[begin]], {order.data() + begin, end - begin}};
      if (bits_ == 0 && (static_cast<int64_t>(end - begin) <= kFewRows || s.k == 0))
        few.push_back(batch);
      else
        many_rows(args, s, batch, scratch);
      begin = end;
    }
    few_rows(args, s, few);
  }

private:
  /// The numbers of all (row, choice) pairs, those of one matrix behind each other.
  static std::vector<int64_t> by_expert(const TensorRef& t, const Shape& s) {
    const auto* chosen = static_cast<const int64_t*>(t.data);
    const int64_t count = s.rows * s.choices;
    std::vector<int64_t> first(static_cast<size_t>(s.experts) + 1, 0), order(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      TBX_MODEL(chosen[i] >= 0 && chosen[i] < s.experts, "expert {} of {} is chosen", chosen[i], s.experts);
      ++first[chosen[i] + 1];
    }
    std::partial_sum(first.begin(), first.end(), first.begin());
    for (int64_t i = 0; i < count; ++i) order[first[chosen[i]]++] = i;
    return order;
  }

  /// Row `route / choices` of x behind each other; x itself where there is only one.
  static const float* gathered(const RunArgs& args, const Shape& s, std::span<const int64_t> routes,
                               float* to) {
    const auto* x = static_cast<const float*>(args.inputs[0].data);
    if (routes.size() == 1) return x + routes[0] / s.choices * s.k;
    for (size_t i = 0; i < routes.size(); ++i)
      std::copy_n(x + routes[i] / s.choices * s.k, s.k, to + static_cast<int64_t>(i) * s.k);
    return to;
  }

  const float* bias_of(const RunArgs& args, const Shape& s, int64_t expert) const {
    return has_bias_ ? static_cast<const float*>(args.inputs[3].data) + expert * s.n : nullptr;
  }

  /// Products with float matrices where they lie: the columns of all of them are shared out over the threads.
  void few_rows(const RunArgs& args, const Shape& s, const std::vector<Batch>& batches) const {
    const TensorRef& w = args.inputs[2];
    const int64_t row_bytes = s.k * size_of(w.dtype);
    const int64_t columns =
        std::max<int64_t>(4, round_up(kTaskWork.part_bytes / std::max<int64_t>(row_bytes, 1), 4));
    const int64_t parts = (s.n + columns - 1) / columns, tasks = parts * static_cast<int64_t>(batches.size());
    auto* out = static_cast<float*>(args.outputs[0].data);
    auto task = [&](int64_t t) {
      const Batch& b = batches[t / parts];
      const int64_t begin = t % parts * columns;
      std::array<const float*, kFewRows> from;
      std::array<float*, kFewRows> to;
      const auto* x = static_cast<const float*>(args.inputs[0].data);
      for (size_t i = 0; i < b.routes.size(); i += kFewRows) {
        const size_t here = std::min<size_t>(kFewRows, b.routes.size() - i);
        for (size_t m = 0; m < here; ++m) {
          from[m] = x + b.routes[i + m] / s.choices * s.k;
          to[m] = out + b.routes[i + m] * s.n;
        }
        multiply_rows(w.dtype, static_cast<const std::byte*>(w.data) + b.expert * s.n * row_bytes, s.k, begin,
                      std::min(s.n, begin + columns), bias_of(args, s, b.expert), {from.data(), here},
                      {to.data(), here});
      }
    };
    if (tasks <= 1 || tbb::this_task_arena::max_concurrency() == 1)
      for (int64_t t = 0; t < tasks; ++t) task(t);
    else
      tbb::parallel_for(int64_t{0}, tasks, task);
  }

  void many_rows(const RunArgs& args, const Shape& s, const Batch& b, Scratch& scratch) const {
    const auto count = static_cast<int64_t>(b.routes.size()), rows = padded_rows(count);
    auto* copy = static_cast<float*>(args.workspace);
    const float* x = gathered(args, s, b.routes, copy);
    if (rows > count) std::fill_n(copy + count * s.k, (rows - count) * s.k, 0.0f);
    auto* out = static_cast<float*>(args.outputs[0].data);
    float* y = count == 1 ? out + b.routes[0] * s.n : copy + s.most_rows() * s.k;
    if (bits_)
      product_of_integers(args, s, b.expert, x, rows, y, scratch);
    else
      product_of_floats(args, s, b.expert, x, rows, y, scratch);
    if (count > 1)
      for (int64_t i = 0; i < count; ++i) std::copy_n(y + i * s.n, s.n, out + b.routes[i] * s.n);
  }

  void product_of_floats(const RunArgs& args, const Shape& s, int64_t expert, const float* x, int64_t rows,
                         float* y, Scratch& scratch) const {
    const TensorRef& w = args.inputs[2];
    const bool narrow = is_half(w.dtype);
    const auto* matrix = static_cast<const std::byte*>(w.data) + expert * s.n * s.k * size_of(w.dtype);
    const int64_t slab = narrow ? std::clamp<int64_t>(slab_elements_ / s.k, 1, s.n) : s.n;
    Scratch wide;
    for (int64_t first = 0; first < s.n; first += slab) {
      const int64_t width = std::min(slab, s.n - first);
      const auto* columns = reinterpret_cast<const float*>(matrix) + first * s.k;
      if (narrow) {
        float* to = wide.floats(slab * s.k);
        widen(w.dtype, matrix + first * s.k * 2, width * s.k, to);
        columns = to;
      }
      const int64_t x_sizes[] = {rows, s.k}, x_strides[] = {s.k, 1}, w_sizes[] = {s.k, width},
                    w_strides[] = {1, s.k}, bias_sizes[] = {1, width}, bias_strides[] = {width, 1},
                    y_sizes[] = {rows, width}, y_strides[] = {s.n, 1};
      std::vector<TensorRef> in{{const_cast<float*>(x), DType::f32, x_sizes, x_strides},
                                {const_cast<float*>(columns), DType::f32, w_sizes, w_strides}};
      if (has_bias_)
        in.push_back(
            {const_cast<float*>(bias_of(args, s, expert)) + first, DType::f32, bias_sizes, bias_strides});
      const TensorRef out{y + first, DType::f32, y_sizes, y_strides};
      product_->run({in, {&out, 1}, nullptr, scratch.bytes(product_->workspace_bytes(in, {&out, 1}))});
    }
  }

  void product_of_integers(const RunArgs& args, const Shape& s, int64_t expert, const float* x, int64_t rows,
                           float* y, Scratch& scratch) const {
    std::unique_ptr<ExternKernel> made;
    if (packed_.empty())
      made = pack(args.inputs[2], args.inputs[4], args.inputs.size() > 5 ? args.inputs[5] : TensorRef(),
                  expert, s.k);
    const ExternKernel& kernel = made ? *made : *packed_[expert];
    const int64_t x_sizes[] = {rows, s.k}, x_strides[] = {s.k, 1}, y_sizes[] = {rows, s.n},
                  y_strides[] = {s.n, 1}, bias_sizes[] = {s.n}, bias_strides[] = {1};
    std::vector<TensorRef> in(5);
    in[0] = {const_cast<float*>(x), DType::f32, x_sizes, x_strides};
    if (has_bias_)
      in[4] = {const_cast<float*>(bias_of(args, s, expert)), DType::f32, bias_sizes, bias_strides};
    const TensorRef out{y, DType::f32, y_sizes, y_strides};
    kernel.run({in, {&out, 1}, nullptr, scratch.bytes(kernel.workspace_bytes(in, {&out, 1}))});
  }

  /// The product with matrix `expert`: that of MatMulNBits. A scale for a whole row is one for a block as
  /// long as the row.
  std::unique_ptr<ExternKernel> pack(const TensorRef& data, const TensorRef& scales, const TensorRef& zeros,
                                     int64_t expert, int64_t k) const {
    const int64_t n = data.sizes[1], bytes = data.sizes[2], block = block_ ? block_ : round_up(k, 16);
    const int64_t blocks = (k + block - 1) / block, whole = blocks * block * bits_ / 8;
    auto part = [&](const TensorRef& t, int64_t count) {
      auto slice = std::make_shared<Tensor>();
      slice->dtype = t.dtype;
      slice->dims = {count};
      slice->data = static_cast<const std::byte*>(t.data) + expert * count * size_of(t.dtype);
      return slice;
    };
    std::vector<std::shared_ptr<const Tensor>> constants(3);
    constants[0] = part(data, n * bytes);
    if (bytes != whole) { // rows end at the end of a block there
      auto padded = std::make_shared<Tensor>(Tensor::make(DType::u8, {n * whole}));
      for (int64_t j = 0; j < n; ++j)
        std::copy_n(constants[0]->data + j * bytes, bytes, padded->mutable_data() + j * whole);
      constants[0] = padded;
    }
    constants[1] = part(scales, n * blocks);
    if (zeros.data && block_) {
      constants[2] = part(zeros, n * ((blocks * bits_ + 7) / 8));
    } else if (zeros.data) { // packed along the columns, not along the blocks of each
      const auto packed = part(zeros, (n * bits_ + 7) / 8);
      auto points = std::make_shared<Tensor>(Tensor::make(DType::f32, {n}));
      for (int64_t j = 0; j < n; ++j) {
        const int byte = static_cast<int>(packed->as<uint8_t>()[j * bits_ / 8]);
        points->as_mutable<float>()[j] = static_cast<float>(byte >> (j * bits_ % 8) & ((1 << bits_) - 1));
      }
      constants[2] = points;
    }
    std::vector<OperandInfo> in{{DType::f32, {-1, k}, {}, nullptr}};
    for (const auto& t : constants) in.push_back(t ? OperandInfo{t->dtype, t->dims, {1}, t} : OperandInfo());
    in.push_back(has_bias_ ? OperandInfo{DType::f32, {n}, {}, nullptr} : OperandInfo());
    const PackedMatMulProblem product{k, n, block, bits_, rounds_};
    const OperandInfo out{DType::f32, {-1, n}, {}, nullptr};
    return select(product, in, {&out, 1}).kernel;
  }

  int bits_;
  int64_t block_;
  bool rounds_, has_bias_;
  const int64_t slab_elements_ =
      host_caches().share_bytes / size_of(DType::f32); ///< floats made of halves at a time
  std::unique_ptr<ExternKernel> product_;              ///< of many rows with floats
  std::vector<std::unique_ptr<ExternKernel>> packed_;  ///< one per expert, where the integers are constant
};

} // namespace

std::string supports_expert_products(const Problem&, std::span<const OperandInfo> inputs,
                                     std::span<const OperandInfo> outputs, const Target&) {
  if (inputs[0].dtype != DType::f32 || outputs[0].dtype != DType::f32)
    return fmt::format("products of {} that give {}", name_of(inputs[0].dtype), name_of(outputs[0].dtype));
  return {};
}

std::unique_ptr<ExternKernel> make_expert_products(const Problem& problem,
                                                   std::span<const OperandInfo> inputs,
                                                   std::span<const OperandInfo>) {
  return std::make_unique<ExpertProducts>(std::get<ExpertsProblem>(problem), inputs);
}

} // namespace tbx::extern_kernels
