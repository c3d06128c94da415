// Known values under views, indexing and creation.
#include <algorithm>
#include <numeric>

#include "lowering/known_rules.h"

namespace tbx::lowering::known {
namespace {

/// Picks elements: out[i] = x[source(i)].
Known pick(const KnownTensor& x, std::vector<int64_t> dims,
           const std::function<std::optional<int64_t>(std::span<const int64_t>)>& source) {
  if (numel_of(dims) > kMaxElements) return std::nullopt;
  KnownTensor out{x.dtype, std::move(dims), {}, x.denominator};
  bool ok = for_each_index(out.dims, [&](std::span<const int64_t> at) {
    auto from = source(at);
    if (!from || *from < 0 || *from >= static_cast<int64_t>(x.values.size())) return false;
    out.values.push_back(x.values[*from]);
    return true;
  });
  return ok ? Known(std::move(out)) : std::nullopt;
}

Known concat_rule(const Args& args) {
  auto axis = args.wrap(args.node.attr_int("axis", 1), args[0].dims.size());
  if (!axis) return std::nullopt;
  KnownTensor out{args[0].dtype, args[0].dims, {}, 1};
  std::vector<KnownTensor> parts;
  out.dims[*axis] = 0;
  for (const auto& p : args.in) {
    if (!p || p->dims.size() != out.dims.size() || p->denominator != 1) return std::nullopt;
    for (size_t d = 0; d < out.dims.size(); ++d)
      if (static_cast<int64_t>(d) != *axis && p->dims[d] != args[0].dims[d]) return std::nullopt;
    out.dims[*axis] += p->dims[*axis];
  }
  int64_t outer = numel_of(std::span(out.dims).first(*axis)),
          inner = numel_of(std::span(out.dims).subspan(*axis + 1));
  if (numel_of(out.dims) > kMaxElements) return std::nullopt;
  for (int64_t o = 0; o < outer; ++o)
    for (const auto& p : args.in) {
      int64_t run = p->dims[*axis] * inner;
      out.values.insert(out.values.end(), p->values.begin() + o * run, p->values.begin() + (o + 1) * run);
    }
  return out;
}

Known gather_rule(const Args& args) {
  const KnownTensor& x = args[0];
  auto axis = args.wrap(args.node.attr_int("axis", 0), x.dims.size());
  auto indices = args.ints(1);
  if (!axis || !indices) return std::nullopt;
  size_t index_rank = args[1].dims.size();
  std::vector<int64_t> dims(x.dims.begin(), x.dims.begin() + *axis);
  dims.insert(dims.end(), args[1].dims.begin(), args[1].dims.end());
  dims.insert(dims.end(), x.dims.begin() + *axis + 1, x.dims.end());
  return pick(x, dims, [&](std::span<const int64_t> at) -> std::optional<int64_t> {
    int64_t i = (*indices)[broadcast_position(at.subspan(*axis, index_rank), args[1].dims)],
            n = x.dims[*axis];
    if (i < -n || i >= n) return std::nullopt;
    std::vector<int64_t> from(at.begin(), at.begin() + *axis);
    from.push_back(i < 0 ? i + n : i);
    from.insert(from.end(), at.begin() + *axis + index_rank, at.end());
    return broadcast_position(from, x.dims);
  });
}

Known slice_rule(const Args& args) {
  const KnownTensor& x = args[0];
  if (args.node.opset() < 10) return std::nullopt;
  auto starts = args.ints(1), ends = args.ints(2);
  if (!starts || !ends || starts->size() != ends->size()) return std::nullopt;
  std::vector<int64_t> axes(starts->size()), steps(starts->size(), 1);
  std::iota(axes.begin(), axes.end(), 0);
  for (size_t input : {3, 4}) {
    if (!args.has(input)) continue;
    auto given = args.ints(input);
    if (!given || given->size() != starts->size()) return std::nullopt;
    (input == 3 ? axes : steps) = *given;
  }
  std::vector<int64_t> dims = x.dims, first(dims.size(), 0), step(dims.size(), 1);
  for (size_t i = 0; i < axes.size(); ++i) {
    auto axis = args.wrap(axes[i], dims.size());
    if (!axis || steps[i] == 0 || steps[i] == INT64_MIN) return std::nullopt;
    int64_t n = x.dims[*axis], down = steps[i] < 0;
    auto clamp = [&](int64_t v, int64_t lo, int64_t hi) {
      return std::max(std::min(v < 0 ? v + n : v, hi), lo);
    };
    int64_t from = clamp((*starts)[i], 0, down ? n - 1 : n),
            to = clamp((*ends)[i], down ? -1 : 0, down ? n - 1 : n);
    int64_t distance = down ? from - to : to - from, stride = std::abs(steps[i]);
    dims[*axis] = n == 0 || distance <= 0 ? 0 : (distance - 1) / stride + 1;
    first[*axis] = from;
    step[*axis] = steps[i];
  }
  return pick(x, dims, [&](std::span<const int64_t> at) -> std::optional<int64_t> {
    int64_t from = 0;
    for (size_t d = 0; d < at.size(); ++d) from = from * x.dims[d] + first[d] + at[d] * step[d];
    return from;
  });
}

Known with_dims(const KnownTensor& x, std::vector<int64_t> dims) {
  if (numel_of(dims) != static_cast<int64_t>(x.values.size())) return std::nullopt;
  KnownTensor out = x;
  out.dims = std::move(dims);
  return out;
}

Known squeeze_rule(const Args& args) {
  auto axes = args.axes(13);
  if (!axes) return std::nullopt;
  const std::vector<int64_t>& dims = args[0].dims;
  std::vector<char> drop(dims.size(), 0);
  for (int64_t a : *axes) {
    auto axis = args.wrap(a, dims.size());
    if (!axis || dims[*axis] != 1) return std::nullopt;
    drop[*axis] = 1;
  }
  std::vector<int64_t> out;
  for (size_t d = 0; d < dims.size(); ++d)
    if (axes->empty() ? dims[d] != 1 : !drop[d]) out.push_back(dims[d]);
  return with_dims(args[0], out);
}

Known unsqueeze_rule(const Args& args) {
  auto axes = args.axes(13);
  if (!axes) return std::nullopt;
  std::vector<int64_t> out(args[0].dims.size() + axes->size(), 0);
  for (int64_t a : *axes) {
    auto axis = args.wrap(a, out.size());
    if (!axis || out[*axis] != 0) return std::nullopt;
    out[*axis] = 1;
  }
  size_t next = 0;
  std::vector<char> fresh(out.size());
  for (size_t d = 0; d < out.size(); ++d) fresh[d] = out[d] == 1;
  for (size_t d = 0; d < out.size(); ++d)
    if (!fresh[d]) out[d] = args[0].dims[next++];
  return with_dims(args[0], out);
}

Known reshape_rule(const Args& args) {
  const KnownTensor& x = args[0];
  std::vector<int64_t> to;
  if (args.node.opset() < 5) {
    to = args.node.attr_ints("shape");
  } else {
    auto given = args.ints(1);
    if (!given) return std::nullopt;
    to = *given;
  }
  bool zero_is_zero = args.node.attr_int("allowzero", 0) != 0;
  int64_t known = 1, unknown = -1;
  for (size_t d = 0; d < to.size(); ++d) {
    if (to[d] == 0 && !zero_is_zero) {
      if (d >= x.dims.size()) return std::nullopt;
      to[d] = x.dims[d];
    }
    if (to[d] == -1) {
      if (unknown >= 0) return std::nullopt;
      unknown = static_cast<int64_t>(d);
    } else if (to[d] < 0 || __builtin_mul_overflow(known, to[d], &known)) {
      return std::nullopt;
    }
  }
  if (unknown >= 0) {
    if (known == 0) return std::nullopt;
    to[unknown] = static_cast<int64_t>(x.values.size()) / known;
  }
  return with_dims(x, to);
}

Known transpose_rule(const Args& args) {
  const KnownTensor& x = args[0];
  std::vector<int64_t> perm = args.node.attr_ints("perm");
  if (perm.empty())
    for (size_t d = x.dims.size(); d-- > 0;) perm.push_back(static_cast<int64_t>(d));
  if (perm.size() != x.dims.size()) return std::nullopt;
  std::vector<int64_t> dims;
  for (int64_t p : perm) {
    if (p < 0 || p >= static_cast<int64_t>(perm.size())) return std::nullopt;
    dims.push_back(x.dims[p]);
  }
  return pick(x, dims, [&](std::span<const int64_t> at) -> std::optional<int64_t> {
    std::vector<int64_t> from(at.size());
    for (size_t d = 0; d < at.size(); ++d) from[perm[d]] = at[d];
    return broadcast_position(from, x.dims);
  });
}

Known expand_rule(const Args& args) {
  auto to = args.ints(1);
  if (!to || std::any_of(to->begin(), to->end(), [](int64_t d) { return d < 0; })) return std::nullopt;
  auto dims = broadcast_dims(args[0].dims, *to);
  if (!dims) return std::nullopt;
  return pick(args[0], *dims, [&](std::span<const int64_t> at) -> std::optional<int64_t> {
    return broadcast_position(at, args[0].dims);
  });
}

Known tile_rule(const Args& args) {
  auto repeats = args.ints(1);
  const std::vector<int64_t>& from = args[0].dims;
  if (args.node.opset() < 6 || !repeats || repeats->size() != from.size()) return std::nullopt;
  std::vector<int64_t> dims = from;
  for (size_t d = 0; d < dims.size(); ++d) {
    if ((*repeats)[d] < 0 || (*repeats)[d] > kMaxElements) return std::nullopt;
    dims[d] *= (*repeats)[d];
  }
  return pick(args[0], dims, [&](std::span<const int64_t> at) -> std::optional<int64_t> {
    std::vector<int64_t> index(at.begin(), at.end());
    for (size_t d = 0; d < index.size(); ++d) index[d] %= from[d];
    return broadcast_position(index, from);
  });
}

Known range_rule(const Args& args) {
  if (is_float(args[0].dtype)) return std::nullopt;
  for (int i = 0; i < 3; ++i)
    if (args[i].values.size() != 1 || !is_tame(args[i].values[0])) return std::nullopt;
  SymInt start = args[0].values[0], step = args[2].values[0], span = args[1].values[0] - start;
  if (!span.is_constant() || !step.is_constant() || step.is(0) || !is_tame(span) || !is_tame(step))
    return std::nullopt;
  int64_t s = step.constant(), n = span.constant();
  int64_t count = s > 0 ? (n + s - 1) / s : (-n - s - 1) / -s;
  if (count > kMaxElements) return std::nullopt;
  KnownTensor out{args[0].dtype, {std::max<int64_t>(count, 0)}, {}, 1};
  for (int64_t i = 0; i < count; ++i) out.values.push_back(start + SymInt(i * s));
  return out;
}

Known constant_of_shape_rule(const Args& args) {
  auto dims = args.ints(0);
  if (!dims || std::any_of(dims->begin(), dims->end(), [](int64_t d) { return d < 0; })) return std::nullopt;
  int64_t n = numel_of(*dims);
  auto value = args.node.attr_tensor("value");
  if (n > kMaxElements || !value || value->numel() != 1 ||
      !(is_integer(value->dtype) || value->dtype == DType::boolean))
    return std::nullopt;
  return KnownTensor{value->dtype, *dims, SymInts(n, element_as_int(*value, 0)), 1};
}

Known nonzero_rule(const Args& args) {
  const KnownTensor& x = args[0];
  KnownTensor out{DType::i64, {static_cast<int64_t>(x.dims.size()), 0}, {}, 1};
  std::vector<SymInts> rows(x.dims.size());
  bool ok = for_each_index(x.dims, [&](std::span<const int64_t> at) {
    Element zero = equal(x.values[broadcast_position(at, x.dims)], 0);
    if (!zero->is_constant()) return false;
    if (zero->is(0)) {
      ++out.dims[1];
      for (size_t d = 0; d < at.size(); ++d) rows[d].push_back(at[d]);
    }
    return true;
  });
  if (!ok || x.dims.empty()) return std::nullopt;
  for (const SymInts& row : rows) out.values.insert(out.values.end(), row.begin(), row.end());
  return out;
}

} // namespace

std::optional<std::vector<LoweredValue>> split(const OpContext& node) {
  auto x = node.known_tensor(0);
  auto parts = static_cast<int64_t>(node.node.outputs.size());
  if (!x || is_float(x->dtype) || x->dims.size() != 1 || parts == 0) return std::nullopt;
  int64_t n = x->dims[0];
  Dims lengths = node.opset() < 13 ? node.attr_ints("split") : Dims{};
  if (node.opset() >= 13 && node.has(1)) {
    auto given = node.known_tensor(1);
    auto ints = given ? as_constants(*given) : std::nullopt;
    if (!ints) return std::nullopt;
    lengths = *ints;
  }
  if (lengths.empty()) {
    int64_t each = (n + parts - 1) / parts;
    for (int64_t i = 0; i < parts; ++i) lengths.push_back(std::clamp<int64_t>(n - i * each, 0, each));
  }
  if (static_cast<int64_t>(lengths.size()) != parts) return std::nullopt;
  std::vector<LoweredValue> out;
  int64_t start = 0;
  for (int64_t length : lengths) {
    if (length < 0 || length > n - start) return std::nullopt;
    auto first = x->values.begin() + start;
    out.emplace_back(KnownTensor{x->dtype, {length}, {first, first + length}, 1});
    start += length;
  }
  return start == n ? std::optional(std::move(out)) : std::nullopt;
}

void add_movement_rules(Rules& rules) {
  rules["Identity"] = [](const Args& a) -> Known { return a[0]; };
  rules["Concat"] = concat_rule;
  rules["Gather"] = gather_rule;
  rules["Slice"] = slice_rule;
  rules["Squeeze"] = squeeze_rule;
  rules["Unsqueeze"] = unsqueeze_rule;
  rules["Reshape"] = reshape_rule;
  rules["Transpose"] = transpose_rule;
  rules["Expand"] = expand_rule;
  rules["Tile"] = tile_rule;
  rules["Range"] = range_rule;
  rules["ConstantOfShape"] = constant_of_shape_rule;
  rules["NonZero"] = nonzero_rule;
}

} // namespace tbx::lowering::known
