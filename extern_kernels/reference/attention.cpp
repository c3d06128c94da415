// Attention by plain loops: the scores of one query at a time, in double. What the fused kernel is held
// against.
#include <tbb/parallel_for.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "extern_kernels/attention/carried.h"
#include "extern_kernels/reference/dense.h"

namespace tbx::extern_kernels {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class ReferenceAttention : public ExternKernel {
public:
  explicit ReferenceAttention(const AttentionProblem& p) : p_(p) {}
  std::string description() const override { return "reference " + to_string(Problem(p_)); }

  void run(const RunArgs& args) const override {
    const TensorRef &q = args.inputs[0], &k = args.inputs[1], &v = args.inputs[2], &y = args.outputs[0];
    for (size_t i : {0, 1}) {
      const size_t cache = AttentionProblem::kCacheKeys + i;
      if (p_.carries) attention::Carried(args.inputs[cache], args.outputs[1 + i]).copy_all();
      if (!p_.appends) continue;
      std::vector<double> added = to_dense<double>(args.inputs[cache]);
      if (i == 0) rotate(added, args.inputs[cache].sizes, args, p_.rotation.keys);
      from_dense(added, args.outputs[1 + i]);
    }
    if (y.numel() == 0) return;
    const int64_t batch = q.sizes[0], heads = q.sizes[1], queries = q.sizes[2], depth = q.sizes[3],
                  kv_heads = k.sizes[1], keys = k.sizes[2], width = v.sizes[3];
    TBX_MODEL(kv_heads > 0 && heads % kv_heads == 0, "{} heads of queries over {} of keys", heads, kv_heads);
    auto values = [&](bool given, size_t i) {
      return given ? to_dense<double>(args.inputs[i]) : std::vector<double>();
    };
    std::vector<double> qs = to_dense<double>(q);
    rotate(qs, q.sizes, args, p_.rotation.queries);
    const std::vector<double> ks = to_dense<double>(k), vs = to_dense<double>(v),
                              mask = values(p_.has_mask, 3), starts = values(p_.has_starts, 4),
                              sinks = values(p_.has_sinks, 5);
    // Keys stand beside each other, so that the loops below go along memory.
    std::vector<double> columns(ks.size());
    tbb::parallel_for(int64_t{0}, batch * kv_heads, [&](int64_t head) {
      for (int64_t key = 0; key < keys; ++key)
        for (int64_t d = 0; d < depth; ++d)
          columns[(head * depth + d) * keys + key] = ks[(head * keys + key) * depth + d];
    });
    std::vector<double> out(static_cast<size_t>(y.numel()));
    tbb::parallel_for(int64_t{0}, batch * heads * queries, [&](int64_t row) {
      const int64_t b = row / queries / heads, h = row / queries % heads, i = row % queries,
                    kv = b * kv_heads + h / (heads / kv_heads);
      const auto [first, end] = visible(p_.has_starts ? starts[b] : 0, i, queries, keys);
      std::vector<double> scores(static_cast<size_t>(end - first), 0);
      for (int64_t d = 0; d < depth; ++d) {
        const double x = qs[row * depth + d], *column = columns.data() + (kv * depth + d) * keys;
        for (int64_t key = first; key < end; ++key) scores[key - first] += x * column[key];
      }
      double most = p_.has_sinks ? sinks[h] : -kInfinity;
      const int64_t all[] = {batch, heads, queries, keys};
      for (int64_t key = first; key < end; ++key) {
        double s = scores[key - first] * p_.scale;
        if (p_.softcap > 0) s = p_.softcap * std::tanh(s / p_.softcap);
        if (p_.has_mask) s += mask[broadcast_index(row * keys + key, all, args.inputs[3].sizes)];
        scores[key - first] = s;
        most = s > most || s != s ? s : most;
      }
      double sum = p_.has_sinks ? std::exp(sinks[h] - most) : 0;
      for (double& s : scores) {
        s = most == -kInfinity ? 0 : std::exp(s - most);
        sum += s;
      }
      const bool nothing = (p_.zero_undefined_rows && !(sum > 0)) || // also NaN
                           ((p_.zero_hidden_rows || keys == 0) && sum == 0);
      const int64_t to = p_.tokens_first ? ((b * queries + i) * heads + h) * width : row * width;
      for (int64_t key = first; key < end; ++key)
        for (int64_t d = 0; d < width; ++d)
          out[to + d] += scores[key - first] * vs[(kv * keys + key) * width + d];
      for (int64_t d = 0; d < width; ++d) out[to + d] = nothing ? 0 : out[to + d] / sum;
    });
    from_dense(out, y);
  }

private:
  static double rounded(double x, DType type) {
    if (type == DType::undefined) return x;
    return decode_float(type, encode_float(type, static_cast<float>(x)));
  }

  /// Turns rows of heads by the cosines and sines of their batch entry.
  void rotate(std::vector<double>& rows, std::span<const int64_t> sizes, const RunArgs& args,
              DType result) const {
    const HeadRotation& r = p_.rotation;
    if (r.width == 0 || rows.empty()) return;
    const TensorRef &c = args.inputs[AttentionProblem::kCosines], &s = args.inputs[AttentionProblem::kSines];
    const std::vector<double> cosines = to_dense<double>(c), sines = to_dense<double>(s);
    const int64_t depth = sizes[3], of_entry = sizes[1] * sizes[2], pairs = r.width / 2;
    for (int64_t row = 0; row < static_cast<int64_t>(rows.size()) / depth; ++row) {
      auto number = [&](const std::vector<double>& table, const TensorRef& t, int64_t element, int64_t pair) {
        const int64_t entry = t.sizes[0] == 1 ? 0 : row / of_entry;
        return table[entry * t.sizes[1] + (t.sizes[1] == r.width ? element : pair)];
      };
      for (int64_t i = 0; i < pairs; ++i) {
        const int64_t first = r.interleaved ? 2 * i : i, second = r.interleaved ? 2 * i + 1 : i + pairs;
        double &x = rows[row * depth + first], &y = rows[row * depth + second];
        const double xc = rounded(x * number(cosines, c, first, i), r.rounded),
                     ys = rounded(y * number(sines, s, first, i), r.rounded),
                     xs = rounded(x * number(sines, s, second, i), r.rounded),
                     yc = rounded(y * number(cosines, c, second, i), r.rounded);
        x = xc - ys, y = xs + yc;
      }
    }
    for (double& x : rows) x = rounded(x, result);
  }

  struct Range {
    int64_t first, end;
  };
  /// The keys that query `i` sees.
  Range visible(double start, int64_t i, int64_t queries, int64_t keys) const {
    if (!p_.causal) return {0, keys};
    int64_t end = i + 1;
    if (p_.has_starts)
      end += static_cast<int64_t>(start);
    else if (p_.from_end)
      end += keys - queries;
    // A window counts from the query's own place, also where that is behind the last key.
    const int64_t first = p_.window > 0 ? std::clamp<int64_t>(end - p_.window, 0, keys) : 0;
    return {first, std::clamp<int64_t>(end, first, keys)};
  }

  AttentionProblem p_;
};

} // namespace

std::string supports_reference_attention(const Problem&, std::span<const OperandInfo> inputs,
                                         std::span<const OperandInfo> outputs, const Target&) {
  for (size_t i = 0; i < 3; ++i)
    if (inputs[i].sizes.size() != 4 || !is_float(inputs[i].dtype))
      return "operands that are no heads of floats";
  return is_float(outputs[0].dtype) ? "" : "no float result";
}

std::unique_ptr<ExternKernel> make_reference_attention(const Problem& problem, std::span<const OperandInfo>,
                                                       std::span<const OperandInfo>) {
  return std::make_unique<ReferenceAttention>(std::get<AttentionProblem>(problem));
}

} // namespace tbx::extern_kernels
