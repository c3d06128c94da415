// Convolutions: Conv, ConvTranspose and their fused and integer relatives, as extern calls.
#include <algorithm>
#include <array>

#include "lowering/ops/families.h"
#include "lowering/ops/products.h"
#include "lowering/ops/window.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

int64_t constant_pad(SymInt pad) {
  if (auto p = pad.as_constant()) return *p;
  throw_unsupported("auto_pad over a dynamic spatial size: give explicit pads");
}

std::vector<int64_t> kernel_of_weight(const TensorBox& w) {
  std::vector<int64_t> kernel;
  for (int k = 2; k < w.rank(); ++k) {
    auto size = w.sizes()[k].as_constant();
    if (!size) throw_unsupported("the kernel size is not known while compiling");
    kernel.push_back(*size);
  }
  return kernel;
}

void check_bias(OpContext& ctx, const TensorBox& bias, SymInt channels) {
  TBX_MODEL(bias.rank() == 1, "the bias has rank {}, expected 1", bias.rank());
  ctx.program.add_check(bias.sizes()[0] - channels, true,
                        fmt::format("the bias has {} elements, the result {} channels",
                                    ir::to_string(bias.sizes()[0]), ir::to_string(channels)));
}

/// Realizes the operands and emits the call; the result has shape `sizes`.
TensorBox convolution(OpContext& ctx, extern_kernels::ConvProblem problem, const TensorBox& x,
                      const TensorBox& w, const TensorBox* bias, SymInts sizes, DType type,
                      const ZeroPoints* zeros = nullptr) {
  if (is_low_precision_float(type)) // sums are float32, rounded once
    return convert(ctx, convolution(ctx, std::move(problem), x, w, bias, std::move(sizes), DType::f32), type);
  if (bias) check_bias(ctx, *bias, sizes[1]);
  if (w.sizes()[problem.transposed ? 0 : 1].is(0)) // a sum of nothing, which no library computes
    return generate(ctx, type, sizes, [&](std::span<const SymInt> at) {
      return bias ? to_compute(bias->load(ctx.program, at.subspan(1, 1)), compute_type(type))
                  : ctx.c.constant(compute_type(type), 0.0);
    });
  ir::ExternCall call;
  problem.has_bias = bias != nullptr;
  auto realized = [&](const TensorBox& box, const char* why) { return library_operand(ctx, box, why); };
  TensorBox image = wide(ctx, x), weights = narrow_constant(ctx, wide(ctx, w));
  choose_operand_types(ctx, problem, image, weights, sizes);
  call.inputs.push_back(realized(image, "input of a convolution"));
  call.inputs.push_back(realized(weights, "weights of a convolution"));
  if (bias) call.inputs.push_back(bias_operand(ctx, *bias, result_in_memory(ctx, problem, image)));
  if (zeros) append_zero_point(ctx, call, zeros->left, problem.x_zero);
  const DType stored = result_in_memory(ctx, problem, image);
  call.problem = std::move(problem);
  ir::BufferId out = ctx.program.new_buffer("", stored == DType::f32 ? type : stored, std::move(sizes));
  call.outputs = {out};
  ctx.program.operations.push_back({std::move(call), {}, "convolution"});
  return wide(ctx, ir::make_buffer_box(ctx.program, out));
}

void check_channels(OpContext& ctx, const TensorBox& x, const TensorBox& w, int64_t group, bool transposed) {
  TBX_MODEL(x.rank() >= 3, "the input has rank {}, expected [N, C, spatial...]", x.rank());
  TBX_MODEL(w.rank() == x.rank(), "weights of rank {} for an input of rank {}", w.rank(), x.rank());
  TBX_MODEL(group > 0, "group is {}", group);
  auto channels = x.sizes()[1].as_constant(), per_group = w.sizes()[transposed ? 0 : 1].as_constant();
  if (channels && per_group)
    TBX_MODEL(*channels == *per_group * (transposed ? 1 : group),
              "{} input channels do not match weights of shape {} with group {}", *channels,
              ir::to_string(w.sizes()), group);
  auto out = w.sizes()[transposed ? 1 : 0].as_constant();
  if (out && !transposed)
    TBX_MODEL(*out % group == 0, "{} output channels are not a multiple of group {}", *out, group);
  const SymInt in = w.sizes()[transposed ? 0 : 1] * SymInt(transposed ? 1 : group);
  ctx.program.add_check(x.sizes()[1] - in, true,
                        fmt::format("{} input channels, the weights are for {}", ir::to_string(x.sizes()[1]),
                                    ir::to_string(in)));
  if (channels)
    TBX_MODEL(*channels % group == 0, "{} input channels are not a multiple of group {}", *channels, group);
}

/// One pixel in, one pixel out: a product of [N, C] and [C, M], as in the gates of squeeze-and-excitation.
bool is_single_pixel(const Window& window, int64_t group, std::span<const SymInt> spatial) {
  bool single = group == 1;
  for (int k = 0; k < window.spatial(); ++k)
    single &=
        window.kernel[k] == 1 && spatial[k].is(1) && window.pads_begin[k].is(0) && window.pads_end[k].is(0);
  return single;
}

TensorBox pixel_product(OpContext& ctx, const TensorBox& x, const TensorBox& w, const TensorBox* bias,
                        DType type) {
  if (bias) check_bias(ctx, *bias, w.sizes()[0]);
  TensorBox rows = ir::reshape(ctx.program, x, {x.sizes()[0], x.sizes()[1]});
  TensorBox matrix = ir::reshape(ctx.program, w, {w.sizes()[0], w.sizes()[1]});
  TensorBox y =
      matrix_product(ctx, rows, ir::permute(ctx.program, matrix, std::array{1, 0}), bias, 1, 1, type);
  SymInts sizes(x.rank(), SymInt(1));
  std::copy_n(y.sizes().begin(), 2, sizes.begin());
  return ir::reshape(ctx.program, y, sizes);
}

/// Windows beside each other of an image with few channels, as at the start of vision transformers, for which
/// libraries of GPUs have no fast convolutions.
bool is_of_patches(OpContext& ctx, const Window& window, int64_t group, const TensorBox& x) {
  auto channels = x.sizes()[1].as_constant();
  bool patches =
      ctx.program.target.cuda && group == 1 && channels && *channels % ctx.program.target.gpu.channels != 0;
  for (int k = 0; k < window.spatial(); ++k)
    patches &= window.strides[k] == window.kernel[k] && window.dilations[k] == 1 &&
               window.pads_begin[k].is(0) && window.pads_end[k].is(0) && x.sizes()[2 + k].is_constant() &&
               x.sizes()[2 + k].constant() >= window.kernel[k];
  return patches;
}

/// The product of [N * patches, C * pixels] and [C * pixels, M].
TensorBox patch_product(OpContext& ctx, const Window& window, const TensorBox& x, const TensorBox& w,
                        const TensorBox* bias, DType type) {
  ir::Program& p = ctx.program;
  const int n = window.spatial();
  if (bias) check_bias(ctx, *bias, w.sizes()[0]);
  SymInts split{x.sizes()[0], x.sizes()[1]}, sizes{x.sizes()[0]};
  std::vector<int> order{0};
  TensorBox image = x;
  for (int k = 0; k < n; ++k) {
    const SymInt out = window.output_size(k, x.sizes()[2 + k]), used = out * SymInt(window.kernel[k]);
    if (!(used == x.sizes()[2 + k]))
      image = ir::slice(p, image, 2 + k, 0, 1, used); // a rest that no window has
    split.insert(split.end(), {out, SymInt(window.kernel[k])});
    sizes.push_back(out);
    order.push_back(2 + 2 * k);
  }
  order.push_back(1);
  for (int k = 0; k < n; ++k) order.push_back(3 + 2 * k);
  TensorBox patches = ir::permute(p, ir::reshape(p, image, split), order);
  SymInt pixels = w.sizes()[1];
  for (int64_t size : window.kernel) pixels = pixels * SymInt(size);
  TensorBox rows = ir::reshape(p, patches, {ir::product(sizes), pixels});
  TensorBox matrix = ir::reshape(p, w, {w.sizes()[0], pixels});
  TensorBox y = matrix_product(ctx, rows, ir::permute(p, matrix, std::array{1, 0}), bias, 1, 1, type);
  sizes.push_back(w.sizes()[0]);
  std::vector<int> back{0, n + 1};
  for (int k = 0; k < n; ++k) back.push_back(1 + k);
  return ir::permute(p, ir::reshape(p, y, sizes), back);
}

/// An image of one pixel in each line, convolved along its column.
bool is_column(const Window& window, std::span<const SymInt> spatial) {
  return window.spatial() == 2 && spatial[1].is(1) && !spatial[0].is(1) && window.kernel[1] == 1 &&
         window.pads_begin[1].is(0) && window.pads_end[1].is(0);
}

/// The window for the image with its column as a line: the same memory, and libraries compute several pixels
/// of a line at a time, of a column one after the other.
Window turned(Window window) {
  for (std::vector<int64_t>* each : {&window.kernel, &window.strides, &window.dilations})
    std::swap(each->at(0), each->at(1));
  std::swap(window.pads_begin[0], window.pads_begin[1]);
  std::swap(window.pads_end[0], window.pads_end[1]);
  return window;
}

TensorBox convolution_in(OpContext& ctx, const Window& window, const TensorBox& x, const TensorBox& w,
                         const TensorBox* bias, DType type, const ZeroPoints* zeros) {
  extern_kernels::ConvProblem p;
  p.spatial_rank = window.spatial();
  p.group = ctx.attr_int("group", 1);
  p.strides = window.strides;
  p.dilations = window.dilations;
  SymInts sizes{x.sizes()[0], w.sizes()[0]};
  for (int k = 0; k < window.spatial(); ++k) {
    p.pads_begin.push_back(constant_pad(window.pads_begin[k]));
    p.pads_end.push_back(constant_pad(window.pads_end[k]));
    SymInt out = window.output_size(k, x.sizes()[2 + k]);
    TBX_MODEL(!out.is_constant() || out.constant() >= 0,
              "the kernel is larger than the padded input along axis {}", k + 2);
    sizes.push_back(out);
  }
  return convolution(ctx, std::move(p), x, w, bias, std::move(sizes), type, zeros);
}

} // namespace

TensorBox conv_boxes(OpContext& ctx, const TensorBox& x, const TensorBox& w, const TensorBox* bias,
                     DType type, const ZeroPoints* zeros) {
  int64_t group = ctx.attr_int("group", 1);
  check_channels(ctx, x, w, group, false);
  std::span<const SymInt> spatial = std::span(x.sizes()).subspan(2);
  std::vector<int64_t> kernel = kernel_of_weight(w), given = ctx.attr_ints("kernel_shape", kernel);
  TBX_MODEL(given == kernel, "kernel_shape differs from the shape of the weights {}",
            ir::to_string(w.sizes()));
  Window window = read_window(ctx, spatial, kernel);
  window.ceil_mode = false;
  if (!zeros && is_single_pixel(window, group, spatial)) return pixel_product(ctx, x, w, bias, type);
  if (!zeros && w.sizes()[0].is_constant() && is_of_patches(ctx, window, group, x))
    return patch_product(ctx, window, x, w, bias, type);
  if (!ctx.program.target.cuda && is_column(window, spatial)) {
    const auto turn = [&](const TensorBox& box) {
      return ir::permute(ctx.program, box, std::array{0, 1, 3, 2});
    };
    return turn(convolution_in(ctx, turned(window), turn(x), turn(w), bias, type, zeros));
  }
  return convolution_in(ctx, window, x, w, bias, type, zeros);
}

namespace {

Values conv(OpContext& ctx) {
  return {conv_boxes(ctx, ctx.in(0), ctx.in(1), ctx.has(2) ? &ctx.in(2) : nullptr, ctx.in(0).dtype())};
}

Values conv_transpose(OpContext& ctx) {
  const TensorBox &x = ctx.in(0), &w = ctx.in(1);
  int64_t group = ctx.attr_int("group", 1);
  check_channels(ctx, x, w, group, true);
  int n = x.rank() - 2;
  Window window = read_window(ctx, std::span(x.sizes()).subspan(2), kernel_of_weight(w));
  std::vector<int64_t> extra = ctx.attr_ints("output_padding", std::vector<int64_t>(n, 0));
  std::vector<int64_t> shape = ctx.attr_ints("output_shape");
  TBX_MODEL(static_cast<int>(extra.size()) == n, "output_padding has {} entries, expected {}", extra.size(),
            n);
  if (static_cast<int>(shape.size()) == n + 2) shape.erase(shape.begin(), shape.begin() + 2);
  TBX_MODEL(shape.empty() || static_cast<int>(shape.size()) == n, "output_shape has {} entries, expected {}",
            shape.size(), n);
  std::string auto_pad = ctx.attr_string("auto_pad", "NOTSET");
  bool same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
  extern_kernels::ConvProblem p;
  p.spatial_rank = n;
  p.transposed = true;
  p.group = group;
  p.strides = window.strides;
  p.dilations = window.dilations;
  SymInts sizes{x.sizes()[0], w.sizes()[1] * SymInt(group)};
  for (int k = 0; k < n; ++k) {
    SymInt full = (x.sizes()[2 + k] - SymInt(1)) * SymInt(window.strides[k]) +
                  SymInt((window.kernel[k] - 1) * window.dilations[k] + 1 + extra[k]);
    SymInt out, begin, end;
    if (!shape.empty() || same) {
      out = !shape.empty() ? SymInt(shape[k]) : x.sizes()[2 + k] * SymInt(window.strides[k]);
      SymInt total = full - out;
      // The formula of the specification: the odd element goes to the end for SAME_UPPER, to the start
      // otherwise.
      SymInt half = ir::floordiv(total, 2);
      begin = auto_pad == "SAME_UPPER" ? half : total - half;
      end = total - begin;
    } else {
      begin = window.pads_begin[k];
      end = window.pads_end[k];
      out = full - begin - end;
    }
    TBX_MODEL(!out.is_constant() || out.constant() >= 0, "the output would have size {} along axis {}",
              out.is_constant() ? out.constant() : 0, k + 2);
    p.pads_begin.push_back(constant_pad(begin));
    // The library derives the end from the sizes; what output_padding adds shows up as less padding there.
    p.pads_end.push_back(constant_pad(end) - extra[k]);
    sizes.push_back(out);
  }
  return {
      convolution(ctx, std::move(p), x, w, ctx.has(2) ? &ctx.in(2) : nullptr, std::move(sizes), x.dtype())};
}

} // namespace

void register_conv(Registry& r) {
  r.add("Conv", since(1), conv);
  r.add("ConvTranspose", since(1), conv_transpose);
  r.narrow(Narrow::product, {"Conv", "ConvTranspose"});
  r.mark(Trait::half_product, {"Conv", "ConvTranspose"});
  r.mark(Trait::has_weights, {"Conv", "ConvTranspose"});
  r.mark(Trait::convolves, {"Conv", "ConvTranspose"});
}

} // namespace tbx::lowering
