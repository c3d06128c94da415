// Convolutions of every type and rank by plain loops: what the libraries refuse, and the oracle of their
// tests.
#include <tbb/parallel_for.h>

#include <numeric>

#include "extern_kernels/reference/dense.h"

namespace tbx::extern_kernels {
namespace {

class ReferenceConv : public ExternKernel {
public:
  explicit ReferenceConv(const ConvProblem& p) : p_(p) {}
  std::string description() const override { return "reference " + to_string(Problem(p_)); }

  void run(const RunArgs& args) const override {
    if (args.outputs[0].numel() == 0) return;
    // Behind exact sums, post-operations of integers are floating point.
    with_accumulator(p_.post_ops.empty() ? args.outputs[0].dtype : DType::f32,
                     [&]<class T>(T) { compute<T>(args); });
  }

private:
  static int64_t volume(std::span<const int64_t> s) {
    return std::accumulate(s.begin(), s.end(), int64_t{1}, std::multiplies<>());
  }
  static void unflatten(int64_t i, std::span<const int64_t> sizes, std::vector<int64_t>& index) {
    for (size_t d = sizes.size(); d-- > 0; i /= sizes[d]) index[d] = i % sizes[d];
  }

  template <class T> void compute(const RunArgs& args) const {
    const TensorRef &xt = args.inputs[0], &wt = args.inputs[1], &yt = args.outputs[0];
    std::vector<T> x = to_dense<T>(xt), w = to_dense<T>(wt), y(static_cast<size_t>(yt.numel()), T(0)), bias;
    if (p_.has_bias) bias = to_dense<T>(args.inputs[2]);
    subtract_zero(x, args.inputs, p_.x_zero);
    auto in = xt.sizes.subspan(2), kernel = wt.sizes.subspan(2), out = yt.sizes.subspan(2);
    int64_t n = yt.sizes[0], m = yt.sizes[1], c = xt.sizes[1], g = p_.group, cg = c / g, mg = m / g;
    int64_t vi = volume(in), vk = volume(kernel), vo = volume(out);
    tbb::parallel_for(int64_t{0}, n * m, [&](int64_t nm) {
      int64_t image = nm / m, channel = nm % m, group = channel / mg;
      std::vector<int64_t> o(out.size()), k(out.size());
      for (int64_t io = 0; io < vo; ++io) {
        unflatten(io, out, o);
        T sum = p_.has_bias ? bias[channel] : T(0);
        for (int64_t ik = 0; ik < vk; ++ik) {
          unflatten(ik, kernel, k);
          int64_t at = 0;
          bool inside = true;
          for (size_t d = 0; d < out.size() && inside; ++d) {
            int64_t pos;
            if (p_.transposed) {
              // output o receives input i where o = i*stride + k*dilation - pad
              int64_t t = o[d] + p_.pads_begin[d] - k[d] * p_.dilations[d];
              inside = t % p_.strides[d] == 0;
              pos = t / p_.strides[d];
            } else {
              pos = o[d] * p_.strides[d] + k[d] * p_.dilations[d] - p_.pads_begin[d];
            }
            inside = inside && pos >= 0 && pos < in[d];
            at = at * in[d] + pos;
          }
          if (!inside) continue;
          for (int64_t ic = 0; ic < cg; ++ic) {
            int64_t xc = group * cg + ic;
            T wv = p_.transposed ? w[(xc * mg + channel % mg) * vk + ik] : w[(channel * cg + ic) * vk + ik];
            add_to(sum, product_of(x[(image * c + xc) * vi + at], wv));
          }
        }
        y[nm * vo + io] = sum;
      }
    });
    if constexpr (std::is_same_v<T, double>)
      apply_post_ops(p_.post_ops, y, yt, args.inputs,
                     is_of_bytes(args.inputs[0].dtype, args.inputs[1].dtype));
    from_dense(y, yt);
  }

  ConvProblem p_;
};

} // namespace

std::string supports_reference_conv(const Problem& problem, std::span<const OperandInfo> inputs,
                                    std::span<const OperandInfo> outputs) {
  const auto& p = std::get<ConvProblem>(problem);
  if (!p.post_ops.empty() && !is_float(outputs[0].dtype) && !is_of_bytes(inputs[0].dtype, inputs[1].dtype))
    return "post-operations on integers";
  return is_complex(outputs[0].dtype) || outputs[0].dtype == DType::string ? "no numeric result type" : "";
}

std::unique_ptr<ExternKernel> make_reference_conv(const Problem& problem, std::span<const OperandInfo>,
                                                  std::span<const OperandInfo>) {
  return std::make_unique<ReferenceConv>(std::get<ConvProblem>(problem));
}

} // namespace tbx::extern_kernels
