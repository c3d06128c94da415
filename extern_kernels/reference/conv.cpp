// Convolutions of every type and rank by plain loops: what the libraries refuse, and the oracle of their
// tests.
#include <tbb/parallel_for.h>

#include <algorithm>
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
    with_sums_of(p_.post_ops, args.outputs[0].dtype, [&]<class T>(T) { compute<T>(args); });
  }

private:
  using Sizes = std::vector<int64_t>;

  static int64_t volume(const Sizes& s) {
    return std::accumulate(s.begin(), s.end(), int64_t{1}, std::multiplies<>());
  }

  template <class T> void compute(const RunArgs& args) const {
    const TensorRef &xt = args.inputs[0], &wt = args.inputs[1], &yt = args.outputs[0];
    std::vector<T> x = to_dense<T>(xt), w = to_dense<T>(wt), y(static_cast<size_t>(yt.numel()), T(0)), bias;
    if (p_.has_bias) bias = to_dense<T>(args.inputs[2]);
    subtract_zero(x, args.inputs, p_.x_zero);
    auto spatial = [](const TensorRef& t) { return Sizes(t.sizes.begin() + 2, t.sizes.end()); };
    const Sizes in = spatial(xt), kernel = spatial(wt), out = spatial(yt);
    const int64_t n = yt.sizes[0], m = yt.sizes[1], c = xt.sizes[1], g = p_.group, cg = c / g, mg = m / g;
    const int64_t vi = volume(in), vk = volume(kernel), vo = volume(out);
    tbb::parallel_for(int64_t{0}, n * m, [&](int64_t nm) {
      int64_t image = nm / m, channel = nm % m, group = channel / mg;
      T* sums = y.data() + nm * vo;
      std::fill_n(sums, vo, p_.has_bias ? bias[channel] : T(0));
      for (int64_t ic = 0; ic < cg; ++ic) {
        const int64_t xc = group * cg + ic;
        const T* plane = x.data() + (image * c + xc) * vi;
        const int64_t row = p_.transposed ? xc * mg + channel % mg : channel * cg + ic;
        for (int64_t tap = 0; tap < vk; ++tap) add_tap(w[row * vk + tap], tap, kernel, in, out, plane, sums);
      }
    });
    if constexpr (std::is_same_v<T, double>)
      apply_post_ops(p_.post_ops, y, yt, args.inputs,
                     is_of_bytes(args.inputs[0].dtype, args.inputs[1].dtype));
    from_dense(y, yt);
  }

  /// Adds what one element of the kernel gives to all sums of a plane. Output o of a convolution reads input
  /// o * stride + k * dilation - pad; input i of a transposed one is added to the output of that place.
  template <class T>
  void add_tap(T weight, int64_t tap, const Sizes& kernel, const Sizes& in, const Sizes& out, const T* plane,
               T* sums) const {
    const Sizes &steps = p_.transposed ? in : out, &other = p_.transposed ? out : in;
    const size_t rank = steps.size();
    Sizes shift(rank);
    for (size_t d = rank; d-- > 0; tap /= kernel[d])
      shift[d] = tap % kernel[d] * p_.dilations[d] - p_.pads_begin[d];
    const size_t last = rank - 1;
    const int64_t stride = p_.strides[last], length = other[last];
    const int64_t first = shift[last] >= 0 ? 0 : (-shift[last] + stride - 1) / stride;
    const int64_t end =
        shift[last] < length ? std::min(steps[last], (length - 1 - shift[last]) / stride + 1) : 0;
    for (int64_t line = 0, lines = volume(steps) / std::max<int64_t>(steps[last], 1); line < lines; ++line) {
      int64_t at = 0, extent = 1, left = line;
      bool inside = true;
      for (size_t d = last; d-- > 0; left /= steps[d]) {
        const int64_t place = left % steps[d] * p_.strides[d] + shift[d];
        inside &= place >= 0 && place < other[d];
        at += place * extent;
        extent *= other[d];
      }
      if (!inside) continue;
      const int64_t near = line * steps[last], far = at * length + shift[last];
      if (p_.transposed)
        for (int64_t i = first; i < end; ++i)
          add_to(sums[far + i * stride], product_of(plane[near + i], weight));
      else
        for (int64_t i = first; i < end; ++i)
          add_to(sums[near + i], product_of(plane[far + i * stride], weight));
    }
  }

  ConvProblem p_;
};

} // namespace

std::string supports_reference_conv(const Problem& problem, std::span<const OperandInfo> inputs,
                                    std::span<const OperandInfo> outputs, const Target&) {
  return refuse_product(std::get<ConvProblem>(problem).post_ops, inputs, outputs);
}

std::unique_ptr<ExternKernel> make_reference_conv(const Problem& problem, std::span<const OperandInfo>,
                                                  std::span<const OperandInfo>) {
  return std::make_unique<ReferenceConv>(std::get<ConvProblem>(problem));
}

} // namespace tbx::extern_kernels
