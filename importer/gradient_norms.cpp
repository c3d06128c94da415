// Gradients of normalisations that ONNX defines no body for.
#include "base/error.h"
#include "importer/gradient_rules.h"

namespace tbx::importer {
namespace {

/// Arithmetic on values of the shape of x, on such per channel, and between them.
class Channels {
public:
  explicit Channels(const RuleCall& c) : b(c.b), x(c.in(0)), rank_(c.b.sizes(c.in(0)).size()) {
    TBX_MODEL(rank_ >= 2, "the input has rank {}", rank_);
  }
  ValueId mul(ValueId a, ValueId z) const { return b.emit_any("Mul", {a, z}, x); }
  ValueId sub(ValueId a, ValueId z) const { return b.emit_any("Sub", {a, z}, x); }
  ValueId n(double v) const { return b.number(x, v); }
  /// A list with an entry per channel, to be broadcast.
  ValueId per_channel(ValueId list) const {
    std::vector<int64_t> sizes(rank_ - 1, 1);
    sizes[0] = -1;
    return b.emit_any("Reshape", {list, b.ints(sizes)}, x);
  }
  /// Sums per channel, as a list.
  ValueId sum(ValueId v) const {
    std::vector<int64_t> axes{0};
    for (size_t d = 2; d < rank_; ++d) axes.push_back(static_cast<int64_t>(d));
    return b.emit_any("ReduceSum", {v, b.ints(axes)}, x, {{"keepdims", int64_t{0}}});
  }
  /// Means over the spatial dimensions.
  ValueId mean(ValueId v) const {
    std::vector<int64_t> axes;
    for (size_t d = 2; d < rank_; ++d) axes.push_back(static_cast<int64_t>(d));
    if (axes.empty()) return v;
    return b.emit_any("ReduceMean", {v, b.ints(axes)}, x, {{"keepdims", int64_t{1}}});
  }
  ValueId inverse_root(ValueId variance, double epsilon) const {
    ValueId shifted = b.emit_any("Add", {variance, n(epsilon)}, x);
    return b.emit_any("Reciprocal", {b.emit_any("Sqrt", {shifted}, x)}, x);
  }

  GradientBuilder& b;
  ValueId x;

private:
  size_t rank_;
};

} // namespace

/// y = (x - mean) / sqrt(var + epsilon) * scale + B with given means and variances.
void batch_norm_rule(const RuleCall& c) {
  if (c.integer("training_mode", 0) != 0)
    throw_unsupported("the gradient of BatchNormalization in training mode");
  Channels k(c);
  ValueId g = c.gradient(), scale = c.in(1);
  ValueId inverse = k.inverse_root(c.in(4), c.real("epsilon", 1e-5f)), factor = k.mul(scale, inverse);
  if (c.needs(0)) c.give(0, c.b.reshape_like(k.mul(g, k.per_channel(factor)), k.x));
  ValueId centred = k.mul(g, k.sub(k.x, k.per_channel(c.in(3))));
  if (c.needs(1)) c.give(1, k.mul(k.sum(centred), inverse));
  if (c.needs(2)) c.give(2, k.sum(g));
  if (c.needs(3)) c.give(3, k.mul(k.mul(k.sum(g), factor), k.n(-1)));
  if (c.needs(4)) c.give(4, k.mul(k.mul(k.sum(centred), factor), k.mul(k.mul(inverse, inverse), k.n(-0.5))));
}

/// The same with mean and variance of every channel of every image.
void instance_norm_rule(const RuleCall& c) {
  Channels k(c);
  ValueId g = c.gradient(), centred = k.sub(k.x, k.mean(k.x));
  ValueId inverse = k.inverse_root(k.mean(k.mul(centred, centred)), c.real("epsilon", 1e-5f));
  ValueId normal = k.mul(centred, inverse), along = k.mul(g, normal);
  if (c.needs(0)) {
    ValueId straight = k.sub(k.sub(g, k.mean(g)), k.mul(normal, k.mean(along)));
    c.give(0, c.b.reshape_like(k.mul(k.mul(k.per_channel(c.in(1)), inverse), straight), k.x));
  }
  if (c.needs(1)) c.give(1, k.sum(along));
  if (c.needs(2)) c.give(2, k.sum(g));
}

} // namespace tbx::importer
