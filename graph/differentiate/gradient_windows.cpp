// Gradients of convolutions and poolings. The gradient of a convolution by its input is the transposed
// convolution, that by its weights a convolution in which batch and channels change places.
#include <algorithm>

#include "base/error.h"
#include "graph/differentiate/gradient_rules.h"

namespace tbx::graph {
namespace {

using Ints = std::vector<int64_t>;

Ints joined(Ints first, const Ints& rest) {
  first.insert(first.end(), rest.begin(), rest.end());
  return first;
}

/// Per spatial dimension: `large` is the input of a convolution and the result of a transposed one.
struct Windows {
  Ints large, small, kernel, strides, dilations, begins, ends;
  size_t rank() const { return large.size(); }
  int64_t extent(size_t d) const { return (kernel[d] - 1) * dilations[d] + 1; }
  /// From the first element of the first window to the last of the last.
  int64_t reach(size_t d) const { return (small[d] - 1) * strides[d] + extent(d); }
  Ints pads() const { return joined(begins, ends); }
};

Ints spatial_sizes(const RuleCall& c, ValueId v) {
  Ints sizes;
  const ir::SymInts& all = c.b.sizes(v);
  for (size_t d = 2; d < all.size(); ++d) {
    if (!all[d].is_constant())
      throw_unsupported("the gradient of {} whose spatial sizes are not known while compiling",
                        c.node.op_type);
    sizes.push_back(all[d].constant());
  }
  return sizes;
}

Windows windows(const RuleCall& c, ValueId large, ValueId small, Ints kernel) {
  Windows w{spatial_sizes(c, large),
            spatial_sizes(c, small),
            std::move(kernel),
            c.integers("strides"),
            c.integers("dilations"),
            {},
            {}};
  const size_t rank = w.rank();
  if (w.strides.empty()) w.strides.assign(rank, 1);
  if (w.dilations.empty()) w.dilations.assign(rank, 1);
  TBX_MODEL(w.kernel.size() == rank && w.strides.size() == rank && w.dilations.size() == rank,
            "kernel, strides and dilations do not have {} entries", rank);
  const std::string automatic = c.text("auto_pad", "NOTSET");
  Ints pads = c.integers("pads"), extra = c.integers("output_padding");
  TBX_MODEL(pads.empty() || pads.size() == 2 * rank, "pads has {} entries, expected {}", pads.size(),
            2 * rank);
  const bool shaped = !c.integers("output_shape").empty();
  for (size_t d = 0; d < rank; ++d) {
    int64_t begin = pads.empty() ? 0 : pads[d], end = pads.empty() ? 0 : pads[rank + d];
    if (automatic.starts_with("SAME") || shaped) {
      int64_t total = std::max<int64_t>(0, w.reach(d) + (extra.empty() ? 0 : extra[d]) - w.large[d]);
      begin = automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
      end = total - begin;
    }
    w.begins.push_back(begin);
    w.ends.push_back(end);
  }
  return w;
}

Ints kernel_of(const RuleCall& c, ValueId weights) {
  Ints kernel = c.integers("kernel_shape");
  return kernel.empty() ? spatial_sizes(c, weights) : kernel;
}

int64_t channels(const RuleCall& c, ValueId v) {
  const ir::SymInts& sizes = c.b.sizes(v);
  TBX_MODEL(sizes.size() >= 2, "an operand has rank {}", sizes.size());
  if (!sizes[1].is_constant())
    throw_unsupported("the gradient of {} whose channels are not known while compiling", c.node.op_type);
  return sizes[1].constant();
}

/// The transposed convolution of `small`; its result is of the shape of `like`.
ValueId spread_windows(const RuleCall& c, ValueId small, ValueId weights, Windows w, int64_t group,
                       ValueId like) {
  Ints extra;
  for (size_t d = 0; d < w.rank(); ++d) {
    // A window that ceil_mode lets reach beyond the padding reaches into more of it.
    w.ends[d] = std::max(w.ends[d], w.reach(d) - w.begins[d] - w.large[d]);
    extra.push_back(w.large[d] - (w.reach(d) - w.begins[d] - w.ends[d]));
  }
  return c.b.emit("ConvTranspose", {small, weights}, like,
                  {{"strides", w.strides},
                   {"dilations", w.dilations},
                   {"pads", w.pads()},
                   {"output_padding", extra},
                   {"group", group}});
}

/// sum over n and o of small[n, s, o] * large[n, l, o * stride + k * dilation - pad], in the shape of
/// weights.
ValueId weight_gradient(const RuleCall& c, ValueId large, ValueId small, const Windows& w, ValueId weights) {
  GradientBuilder& b = c.b;
  const int64_t group = c.integer("group", 1), per_group = channels(c, large) / std::max<int64_t>(group, 1);
  auto exchange = [&](ValueId v, int64_t a, int64_t z, size_t rank) {
    Ints perm(rank);
    for (size_t d = 0; d < rank; ++d) perm[d] = static_cast<int64_t>(d);
    std::swap(perm[static_cast<size_t>(a)], perm[static_cast<size_t>(z)]);
    return b.emit_any("Transpose", {v}, v, {{"perm", perm}});
  };
  // [N, G * L, ...] -> [L, G * N, ...]: groups stay, the batch becomes their channels.
  ValueId split = b.emit_any("Reshape", {large, b.ints(joined({-1, group, per_group}, w.large))}, large);
  ValueId turned = exchange(split, 0, 2, w.rank() + 3);
  ValueId image = b.emit_any("Reshape", {turned, b.ints(joined({per_group, -1}, w.large))}, large);
  ValueId filter = exchange(small, 0, 1, w.rank() + 2);
  ValueId product = b.emit_any("Conv", {image, filter}, weights,
                               {{"strides", w.dilations},
                                {"dilations", w.strides},
                                {"pads", w.pads()},
                                {"kernel_shape", w.small},
                                {"group", group}});
  Ints axes(w.rank());
  for (size_t d = 0; d < axes.size(); ++d) axes[d] = static_cast<int64_t>(d) + 2;
  // Elements at the end that no window reached make the result larger than the kernel.
  ValueId kernel =
      b.emit_any("Slice", {product, b.ints(Ints(w.rank(), 0)), b.ints(w.kernel), b.ints(axes)}, weights);
  return b.reshape_like(exchange(kernel, 0, 1, w.rank() + 2), weights);
}

void bias_gradient(const RuleCall& c) {
  if (!c.needs(2)) return;
  Ints axes{0};
  for (size_t d = 2; d < c.b.sizes(c.out()).size(); ++d) axes.push_back(static_cast<int64_t>(d));
  c.give(2, c.b.emit("ReduceSum", {c.gradient(), c.b.ints(axes)}, c.in(2), {{"keepdims", int64_t{0}}}));
}

} // namespace

void conv_rule(const RuleCall& c) {
  ValueId x = c.in(0), weights = c.in(1);
  const Windows w = windows(c, x, c.out(), kernel_of(c, weights));
  if (c.needs(0)) c.give(0, spread_windows(c, c.gradient(), weights, w, c.integer("group", 1), x));
  if (c.needs(1)) c.give(1, weight_gradient(c, x, c.gradient(), w, weights));
  bias_gradient(c);
}

void conv_transpose_rule(const RuleCall& c) {
  ValueId x = c.in(0), weights = c.in(1);
  const Windows w = windows(c, c.out(), x, kernel_of(c, weights));
  if (c.needs(0))
    c.give(0, c.b.emit("Conv", {c.gradient(), weights}, x,
                       {{"strides", w.strides},
                        {"dilations", w.dilations},
                        {"pads", w.pads()},
                        {"group", c.integer("group", 1)}}));
  if (c.needs(1)) c.give(1, weight_gradient(c, c.gradient(), x, w, weights));
  bias_gradient(c);
}

/// To the elements that the pooling names.
void max_pool_rule(const RuleCall& c) {
  GradientBuilder& b = c.b;
  ValueId x = c.in(0);
  Node pool = c.node;
  pool.opset = std::max(pool.opset, 12); // the first with indices and all attributes
  pool.attributes.erase("storage_order");
  pool.outputs = {c.out(), c.out()};
  b.append(pool, DType::i64);
  b.graph.at(pool.outputs[0]).type.dtype = b.type(x).dtype;
  ValueId zeros = b.full(b.emit_any("Reshape", {b.emit("Size", {x}, x), b.ints({1})}, b.ints({1})), x, 0);
  ValueId sums = b.emit_any("ScatterElements", {zeros, b.flat(pool.outputs[1]), b.flat(c.gradient())}, x,
                            {{"reduction", std::string("add")}});
  c.give(0, b.reshape_like(sums, x));
}

void average_pool_rule(const RuleCall& c) {
  GradientBuilder& b = c.b;
  ValueId x = c.in(0);
  const Windows w = windows(c, x, c.out(), c.integers("kernel_shape"));
  const Ints ones(w.rank(), 1);
  ValueId filter = b.full(b.ints(joined({1, 1}, w.kernel)), x, 1);
  // What a window counts: elements of the input, or of the input with its padding.
  Windows counted = w;
  for (size_t d = 0; d < w.rank(); ++d) {
    if (c.integer("count_include_pad", 0) != 0) {
      counted.large[d] += w.begins[d] + w.ends[d];
      counted.begins[d] = 0;
    }
    counted.ends[d] = std::max<int64_t>(0, w.reach(d) - counted.large[d] - counted.begins[d]);
  }
  ValueId counts = b.emit_any("Conv", {b.full(b.ints(joined({1, 1}, counted.large)), x, 1), filter}, x,
                              {{"strides", w.strides}, {"dilations", w.dilations}, {"pads", counted.pads()}});
  ValueId parts = b.emit("Div", {c.gradient(), counts}, c.out());
  // Every channel by itself.
  ValueId single = b.emit_any("Reshape", {parts, b.ints(joined({-1, 1}, w.small))}, x);
  c.give(0, b.reshape_like(spread_windows(c, single, filter, w, 1, x), x));
}

} // namespace tbx::graph
