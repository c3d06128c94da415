// com.microsoft.nchwc: what ONNX Runtime's optimiser makes of convolutional networks for one machine. Its
// tensors lie in blocks of channels, which is visible in the weights only; here they are plain [N, C,
// spatial...] with as many channels, those added for a whole block included.
#include <algorithm>

#include "lowering/ops/families.h"
#include "lowering/ops/products.h"
#include "lowering/ops/window.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

/// Channels of a block: 16 where the optimiser ran on a machine with AVX-512, else 8. A model does not say
/// which; as in ONNX Runtime it is that of this machine, unless the channels exclude it.
int64_t block_size(int64_t channels) {
#if defined(__x86_64__)
  bool wide = __builtin_cpu_supports("avx512f") != 0;
#else
  bool wide = false;
#endif
  TBX_MODEL(channels % 8 == 0, "{} channels are no multiple of a block", channels);
  return wide && channels % 16 == 0 ? 16 : 8;
}

/// Weights [O/b, I/b, kernel, b(I), b(O)], or [O/b, I, kernel, b(O)] where the input is not blocked, as
/// [O, I, kernel].
Tensor plain_weights(const Tensor& w, int64_t block, bool blocked_input) {
  const int64_t out = w.dims[0], in = w.dims[1];
  int64_t taps = 1;
  for (size_t d = 2; d < w.dims.size(); ++d) taps *= w.dims[d];
  const int64_t inner = blocked_input ? block : 1;
  Tensor t = Tensor::make(w.dtype, w.dims);
  const auto from = w.as<float>();
  auto to = t.as_mutable<float>();
  for (int64_t o = 0; o < out; ++o)
    for (int64_t i = 0; i < in; ++i)
      for (int64_t k = 0; k < taps; ++k) {
        int64_t group = (o / block * (in / inner) + i / inner) * taps + k;
        to[(o * in + i) * taps + k] = from[(group * inner + i % inner) * block + o % block];
      }
  return t;
}

/// Grouped depthwise, and with fewer input channels than a block, the input side is not blocked.
Values conv(OpContext& ctx) {
  TBX_MODEL(ctx.has(0), "input 0 is missing");
  auto w = ctx.constant_or_throw(1, "W");
  TBX_MODEL(w->dtype == DType::f32 && w->dims.size() >= 3,
            "W is {} of rank {}, expected float of rank 3 or more", name_of(w->dtype), w->dims.size());
  const int64_t block = block_size(w->dims[0]), in = w->dims[1], group = ctx.attr_int("group", 1);
  const bool blocked = group == 1 ? in >= block : in != 1;
  TBX_MODEL(!blocked || in % block == 0, "{} input channels are no multiple of a block of {}", in, block);
  LoweredValue plain = std::make_shared<const Tensor>(plain_weights(*w, block, blocked));
  return {activated_conv(ctx, ctx.value(0), std::move(plain), ctx.has(3) ? ctx.in(3) : TensorBox())};
}

LowerFn pool(const char* op) {
  return [op](OpContext& ctx) {
    TBX_MODEL(ctx.has(0), "input 0 is missing");
    return lower_as(ctx, op, 12, {ctx.value(0)}, ctx.node.attributes);
  };
}

/// Zeros for the channels that the last block lacks.
Values reorder_input(OpContext& ctx) {
  TensorBox x = ctx.attr_int("channels_last", 0) ? channels_first(ctx, ctx.in(0)) : ctx.in(0);
  TBX_MODEL(x.rank() >= 3, "the input has rank {}, expected [N, C, spatial...]", x.rank());
  auto channels = x.sizes()[1].as_constant();
  if (!channels) throw_unsupported("a number of channels that is not known while compiling");
  int64_t block = block_size(16), whole = (*channels + block - 1) / block * block;
  if (whole == *channels) return {x};
  SymInts sizes = x.sizes();
  sizes[1] = whole;
  return {generate(ctx, x.dtype(), sizes, [&](std::span<const SymInt> at) {
    Expr inside = ir::binary(Op::less, ctx.c.index(at[1]), ctx.c.constant_int(DType::i64, *channels));
    Expr e = x.load(ctx.program, at);
    return ir::where(inside, ir::mask_loads(e, inside), number(e, 0));
  })};
}

/// The first `channels` channels.
Values reorder_output(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  int64_t channels = ctx.required_int("channels");
  TBX_MODEL(x.rank() >= 3 && channels > 0, "{} channels of an input of rank {}", channels, x.rank());
  ctx.program.add_check(x.sizes()[1] - SymInt(channels), false,
                        "ReorderOutput: the input has fewer channels");
  TensorBox y = ir::slice(ctx.program, x, 1, 0, 1, channels);
  return {ctx.attr_int("channels_last", 0) ? channels_last(ctx, y) : y};
}

/// Enlarged by whole factors along the spatial dimensions.
Values upsample(OpContext& ctx) {
  std::vector<int64_t> scales = ctx.attr_ints("scales");
  TBX_MODEL(static_cast<int>(scales.size()) == ctx.rank(0), "{} scales for an input of rank {}",
            scales.size(), ctx.rank(0));
  Tensor t = Tensor::make(DType::f32, {static_cast<int64_t>(scales.size())});
  for (size_t k = 0; k < scales.size(); ++k) t.as_mutable<float>()[k] = static_cast<float>(scales[k]);
  std::string mode = ctx.attr_string("mode", "nearest");
  std::map<std::string, Attribute> attributes{{"mode", mode}, {"nearest_mode", std::string("floor")}};
  attributes["coordinate_transformation_mode"] =
      mode == "nearest" ? "asymmetric" : ctx.attr_string("coordinate_transformation_mode", "asymmetric");
  return lower_as(ctx, "Resize", 13,
                  {ctx.value(0), LoweredValue(), std::make_shared<const Tensor>(std::move(t))}, attributes);
}

} // namespace

void register_nchwc(Registry& r) {
  const char* const domain = "com.microsoft.nchwc";
  r.add("Conv", since(1), conv, domain);
  for (const char* op : {"MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool"})
    r.add(op, since(1), pool(op), domain);
  r.add("ReorderInput", since(1), reorder_input, domain);
  r.add("ReorderOutput", since(1), reorder_output, domain);
  r.add("Upsample", since(1), upsample, domain);
}

} // namespace tbx::lowering
