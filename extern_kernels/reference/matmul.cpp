// Matrix products of every type by plain loops: what the libraries refuse, and the oracle of their tests.
#include <tbb/parallel_for.h>

#include <algorithm>

#include "extern_kernels/reference/dense.h"

namespace tbx::extern_kernels {
namespace {

class ReferenceMatMul : public ExternKernel {
public:
  explicit ReferenceMatMul(const MatMulProblem& p) : p_(p) {}
  std::string description() const override { return "reference " + to_string(Problem(p_)); }

  void run(const RunArgs& args) const override {
    if (args.outputs[0].numel() == 0) return;
    with_sums_of(p_.post_ops, args.outputs[0].dtype, [&]<class T>(T) { compute<T>(args); });
  }

private:
  template <class T> void compute(const RunArgs& args) const {
    const TensorRef &a = args.inputs[0], &b = args.inputs[1], &c = args.outputs[0];
    std::vector<T> x = to_dense<T>(a), y = to_dense<T>(b), z(static_cast<size_t>(c.numel()), T(0));
    subtract_zero(x, args.inputs, p_.a_zero);
    subtract_zero(y, args.inputs, p_.b_zero);
    size_t rank = c.sizes.size();
    int64_t m = c.sizes[rank - 2], n = c.sizes[rank - 1], k = a.sizes[rank - 1],
            batches = c.numel() / (m * n);
    auto batch = c.sizes.first(rank - 2);
    tbb::parallel_for(int64_t{0}, batches * m, [&](int64_t row) {
      int64_t g = row / m, i = row % m;
      const T* xr = x.data() + (broadcast_index(g, batch, a.sizes.first(rank - 2)) * m + i) * k;
      const T* yb = y.data() + broadcast_index(g, batch, b.sizes.first(rank - 2)) * k * n;
      T* zr = z.data() + row * n;
      for (int64_t l = 0; l < k; ++l)
        for (int64_t j = 0; j < n; ++j) add_to(zr[j], product_of(xr[l], yb[l * n + j]));
    });
    for (T& v : z) v = product_of(static_cast<T>(p_.alpha), v);
    if (p_.has_bias) {
      const TensorRef& bias = args.inputs[2];
      std::vector<T> d = to_dense<T>(bias);
      for (size_t i = 0; i < z.size(); ++i)
        add_to(z[i], d[broadcast_index(static_cast<int64_t>(i), c.sizes, bias.sizes)]);
    }
    if constexpr (std::is_same_v<T, double>)
      apply_post_ops(p_.post_ops, z, c, args.inputs, is_of_bytes(args.inputs[0].dtype, args.inputs[1].dtype));
    from_dense(z, c);
  }

  MatMulProblem p_;
};

} // namespace

std::string supports_reference_matmul(const Problem& problem, std::span<const OperandInfo> inputs,
                                      std::span<const OperandInfo> outputs, const Target&) {
  return refuse_product(std::get<MatMulProblem>(problem).post_ops, inputs, outputs);
}

std::unique_ptr<ExternKernel> make_reference_matmul(const Problem& problem, std::span<const OperandInfo>,
                                                    std::span<const OperandInfo>) {
  return std::make_unique<ReferenceMatMul>(std::get<MatMulProblem>(problem));
}

} // namespace tbx::extern_kernels
