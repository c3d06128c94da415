#include "extern_kernels/onednn/guess.h"

#include <algorithm>

#include "base/strides.h"

namespace tbx::extern_kernels::onednn {
namespace {

using Sizes = std::vector<std::vector<int64_t>>;

Sizes sizes_of(std::span<const OperandInfo> infos) {
  Sizes sizes;
  for (const OperandInfo& info : infos) sizes.push_back(info.sizes);
  return sizes;
}

/// Operands from number `first` on are as large as the result where their size is not known.
void follow(Sizes& inputs, size_t first, const std::vector<int64_t>& result) {
  for (size_t i = first; i < inputs.size(); ++i)
    for (size_t d = 0; d < inputs[i].size(); ++d)
      if (inputs[i][d] < 0) inputs[i][d] = inputs[i].size() == result.size() ? result[d] : 1;
}

/// Of all elements there are some, and so few that they can be counted.
bool has_elements(const Sizes& sizes) {
  return std::ranges::all_of(sizes, [](const std::vector<int64_t>& s) {
    int64_t count = 1;
    return std::ranges::all_of(s,
                               [&](int64_t n) { return n > 0 && !__builtin_mul_overflow(count, n, &count); });
  });
}

std::vector<int64_t> dense(std::span<const int64_t> sizes, bool channels_last) {
  return channels_last && sizes.size() >= 3 ? channels_last_strides(sizes) : row_major_strides(sizes);
}

} // namespace

void Guess::add(std::span<const OperandInfo> infos, Sizes sizes, bool channels_last,
                std::vector<TensorRef>& to) {
  for (size_t i = 0; i < infos.size(); ++i) {
    std::vector<int64_t> strides = infos[i].strides;
    if (strides.size() != sizes[i].size()) strides = dense(sizes[i], channels_last && !infos[i].constant);
    const auto& s = numbers_.emplace_back(std::move(sizes[i]));
    const auto& t = numbers_.emplace_back(std::move(strides));
    to.push_back({nullptr, infos[i].dtype, s, t});
  }
}

Guess::Guess(const ConvProblem& p, std::span<const OperandInfo> in, std::span<const OperandInfo> out) {
  constexpr int64_t kChannels = 64, kPoints = 32;
  numbers_.reserve(2 * (in.size() + out.size())); // spans stay where they are
  Sizes i = sizes_of(in), o = sizes_of(out);
  auto &x = i[0], &w = i[1], &y = o[0];
  auto set = [](int64_t& size, int64_t value) {
    if (size < 0) size = value;
  };
  set(w[0], p.transposed ? x[1] : y[1]);
  set(w[0], kChannels * p.group);
  set(w[1], p.transposed ? kChannels : x[1] / p.group);
  set(w[1], kChannels);
  x[1] = p.transposed ? w[0] : w[1] * p.group;
  y[1] = p.transposed ? w[1] * p.group : w[0];
  set(x[0], y[0]);
  set(x[0], 1);
  y[0] = x[0];
  for (size_t d = 0; d < p.strides.size(); ++d) {
    const int64_t reach = (w[d + 2] - 1) * p.dilations[d] + 1, pads = p.pads_begin[d] + p.pads_end[d];
    set(x[d + 2], kPoints + reach);
    y[d + 2] = p.transposed ? (x[d + 2] - 1) * p.strides[d] + reach - pads
                            : (x[d + 2] + pads - reach) / p.strides[d] + 1;
  }
  follow(i, 2, y);
  is_empty = !has_elements(i) || !has_elements(o);
  if (is_empty) return;
  add(in, std::move(i), true, inputs);
  add(out, std::move(o), true, outputs);
}

Guess::Guess(const MatMulProblem&, std::span<const OperandInfo> in, std::span<const OperandInfo> out) {
  constexpr int64_t kSize = 64, kBatch = 4;
  numbers_.reserve(2 * (in.size() + out.size()));
  Sizes i = sizes_of(in), o = sizes_of(out);
  auto &a = i[0], &b = i[1], &y = o[0];
  const size_t rank = y.size();
  auto set = [](int64_t& size, int64_t value) {
    if (size < 0) size = value;
  };
  for (size_t d = 0; d + 2 < rank; ++d) {
    set(y[d], std::max(a[d], b[d]) > 1 ? std::max(a[d], b[d]) : kBatch);
    set(a[d], y[d]);
    set(b[d], y[d]);
  }
  set(y[rank - 2], a[rank - 2]);
  set(y[rank - 2], kSize);
  set(y[rank - 1], b[rank - 1]);
  set(y[rank - 1], kSize);
  a[rank - 2] = y[rank - 2];
  b[rank - 1] = y[rank - 1];
  set(a[rank - 1], b[rank - 2]);
  set(a[rank - 1], kSize);
  b[rank - 2] = a[rank - 1];
  follow(i, 2, y);
  is_empty = !has_elements(i) || !has_elements(o);
  if (is_empty) return;
  add(in, std::move(i), false, inputs);
  add(out, std::move(o), false, outputs);
}

} // namespace tbx::extern_kernels::onednn
