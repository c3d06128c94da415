// Reading of window attributes and of the elements that a window covers.
#include "lowering/ops/window.h"

#include <numeric>

namespace tbx::lowering {

SymInt Window::output_size(int k, SymInt size) const {
  SymInt extent = (kernel[k] - 1) * dilations[k] + 1;
  SymInt room = size + pads_begin[k] + pads_end[k] - extent;
  if (!ceil_mode) return ir::floordiv(room, strides[k]) + SymInt(1);
  // A window that would start beyond the input and its begin padding does not count (ONNX pooling).
  SymInt out = ir::ceildiv(room, strides[k]) + SymInt(1);
  SymInt last_start = (out - SymInt(1)) * SymInt(strides[k]) - (size + pads_begin[k]);
  if (last_start.is_constant()) return last_start.constant() >= 0 ? out - SymInt(1) : out;
  return out - ir::min(ir::max(last_start + SymInt(1), 0), 1);
}

namespace {

std::vector<int64_t> positive_ints(OpContext& ctx, const char* name, int n) {
  std::vector<int64_t> v = ctx.attr_ints(name, std::vector<int64_t>(n, 1));
  TBX_MODEL(static_cast<int>(v.size()) == n, "{} has {} entries, expected {}", name, v.size(), n);
  for (int64_t x : v) TBX_MODEL(x > 0 && x < (int64_t{1} << 31), "{} has the value {}", name, x);
  return v;
}

} // namespace

Window read_window(OpContext& ctx, std::span<const SymInt> spatial_sizes, std::vector<int64_t> kernel) {
  Window w;
  int n = static_cast<int>(spatial_sizes.size());
  w.kernel = kernel.empty() ? ctx.attr_ints("kernel_shape") : std::move(kernel);
  TBX_MODEL(static_cast<int>(w.kernel.size()) == n, "kernel_shape has {} entries for {} spatial dimensions",
            w.kernel.size(), n);
  for (int64_t k : w.kernel) TBX_MODEL(k > 0 && k < (int64_t{1} << 31), "kernel_shape has the value {}", k);
  w.strides = positive_ints(ctx, "strides", n);
  w.dilations = positive_ints(ctx, "dilations", n);
  w.ceil_mode = ctx.attr_int("ceil_mode", 0) != 0;
  std::vector<int64_t> pads = ctx.attr_ints("pads", std::vector<int64_t>(2 * spatial_sizes.size(), 0));
  TBX_MODEL(static_cast<int>(pads.size()) == 2 * n, "pads has {} entries, expected {}", pads.size(), 2 * n);
  for (int64_t p : pads) TBX_MODEL(p >= 0 && p < (int64_t{1} << 31), "pads has the value {}", p);
  std::string auto_pad = ctx.attr_string("auto_pad", "NOTSET");
  for (int k = 0; k < n; ++k) {
    if (auto_pad == "NOTSET" || auto_pad.empty()) {
      w.pads_begin.push_back(pads[k]);
      w.pads_end.push_back(pads[n + k]);
    } else if (auto_pad == "VALID") {
      w.pads_begin.push_back(0);
      w.pads_end.push_back(0);
    } else if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
      SymInt size = spatial_sizes[k], extent = (w.kernel[k] - 1) * w.dilations[k] + 1;
      SymInt out = ir::ceildiv(size, w.strides[k]);
      SymInt total = ir::max((out - SymInt(1)) * SymInt(w.strides[k]) + extent - size, 0);
      SymInt small = ir::floordiv(total, 2);
      w.pads_begin.push_back(auto_pad == "SAME_UPPER" ? small : total - small);
      w.pads_end.push_back(auto_pad == "SAME_UPPER" ? total - small : small);
    } else {
      throw_model_error("unknown auto_pad '{}'", auto_pad);
    }
  }
  if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") w.ceil_mode = false;
  return w;
}

WindowAccess window_access(OpContext& ctx, const TensorBox& x, const Window& w) {
  WindowAccess a;
  a.sizes = {x.sizes()[0], x.sizes()[1]};
  a.at = {ctx.c.var(0), ctx.c.var(1)};
  for (int k = 0; k < w.spatial(); ++k) {
    SymInt size = x.sizes()[2 + k];
    SymInt out = w.output_size(k, size);
    TBX_MODEL(!out.is_constant() || out.constant() >= 0,
              "the window is larger than the padded input along axis {}", k + 2);
    a.sizes.push_back(out);
    a.reduced.push_back(w.kernel[k]);
    SymInt i =
        ctx.c.var(2 + k) * SymInt(w.strides[k]) + ctx.c.rvar(k) * SymInt(w.dilations[k]) - w.pads_begin[k];
    a.at.push_back(i);
    SymInt reach = (out - SymInt(1)) * SymInt(w.strides[k]) + SymInt((w.kernel[k] - 1) * w.dilations[k]) -
                   w.pads_begin[k];
    Expr e = ctx.c.index(i), condition = nullptr;
    if (!w.pads_begin[k].is(0))
      condition = ir::binary(Op::greater_equal, e, ctx.c.constant_int(DType::i64, 0));
    if (!ir::provably_less(reach, size)) {
      Expr below = ir::binary(Op::less, e, ctx.c.index(size));
      condition = condition ? ir::binary(Op::logical_and, condition, below) : below;
    }
    if (condition) a.inside = a.inside ? ir::binary(Op::logical_and, a.inside, condition) : condition;
  }
  return a;
}

Expr window_read(OpContext& ctx, const TensorBox& x, const WindowAccess& a, Expr outside) {
  Expr value = x.load(ctx.program, a.at);
  return a.inside ? ir::where(a.inside, ir::mask_loads(value, a.inside), outside) : value;
}

Expr window_coverage(OpContext& ctx, const Window& w, int k, SymInt size, bool include_pad) {
  SymInt start = ctx.c.var(2 + k) * SymInt(w.strides[k]) - w.pads_begin[k];
  SymInt lo = include_pad ? SymInt(0) - w.pads_begin[k] : SymInt(0);
  SymInt hi = include_pad ? size + w.pads_end[k] : size;
  SymInt d = w.dilations[k];
  // Window positions j in [0, kernel) with lo <= start + j*d < hi.
  SymInt first = ir::max(ir::ceildiv(lo - start, d), 0);
  SymInt last = ir::min(ir::ceildiv(hi - start, d), w.kernel[k]);
  return ctx.c.index(ir::max(last - first, 0));
}

TensorBox channels_first(OpContext& ctx, const TensorBox& x) {
  std::vector<int> order(x.rank());
  std::iota(order.begin(), order.end(), 0);
  TBX_MODEL(x.rank() >= 3, "the input has rank {}, expected [N, spatial..., C]", x.rank());
  order.insert(order.begin() + 1, x.rank() - 1);
  order.pop_back();
  return ir::permute(ctx.program, x, order);
}

TensorBox channels_last(OpContext& ctx, const TensorBox& x) {
  std::vector<int> order(x.rank());
  std::iota(order.begin(), order.end(), 0);
  order.erase(order.begin() + 1);
  order.push_back(1);
  return ir::permute(ctx.program, x, order);
}

} // namespace tbx::lowering
