#include "extern_kernels/direct/geometry.h"

#include <algorithm>
#include <numeric>

namespace tbx::extern_kernels::direct {
namespace {

/// Calls `f` with every index below `extents`, the last one fastest.
template <class F> void for_each_index(const std::vector<int64_t>& extents, F&& f) {
  std::vector<int64_t> at(extents.size(), 0);
  for (;;) {
    f(at);
    size_t d = at.size();
    while (d-- > 0) {
      if (++at[d] < extents[d]) break;
      at[d] = 0;
    }
    if (d == static_cast<size_t>(-1)) return;
  }
}

class Maker {
public:
  Maker(const ConvProblem& p, std::span<const int64_t> kernel)
      : p_(p), kernel_(kernel), rank_(kernel.size()) {}

  /// A part with these phases: numbers along each dimension, below the strides (of a convolution: 0).
  Part part(const std::vector<std::vector<int64_t>>& phases) const {
    Part part;
    part.phases = static_cast<int64_t>(phases.size());
    for (const auto& phase : phases)
      for (size_t d = 0; d < rank_; ++d)
        part.shifts.push_back(p_.transposed ? phase[d] - p_.pads_begin[d] : 0);
    std::vector<int64_t> extents;
    for (size_t d = 0; d < rank_; ++d)
      extents.push_back(p_.transposed ? (kernel_[d] - 1) * p_.dilations[d] / p_.strides[d] + 1 : kernel_[d]);
    std::vector<int64_t> elements(phases.size());
    std::vector<std::vector<int64_t>> of_phases(phases.size());
    for_each_index(extents, [&](const std::vector<int64_t>& j) {
      bool any = false;
      for (size_t i = 0; i < phases.size(); ++i) any |= (elements[i] = element(phases[i], j)) >= 0;
      if (!any) return;
      ++part.taps;
      for (size_t i = 0; i < phases.size(); ++i) of_phases[i].push_back(elements[i]);
      for (size_t d = 0; d < rank_; ++d)
        part.offsets.push_back(p_.transposed ? -j[d] : j[d] * p_.dilations[d] - p_.pads_begin[d]);
    });
    for (const auto& e : of_phases) part.kernel.insert(part.kernel.end(), e.begin(), e.end());
    return part;
  }

private:
  /// Of a transposed convolution: result q * s + phase - pad takes input q - j through the element k with k *
  /// dilation = phase + j * s.
  int64_t element(const std::vector<int64_t>& phase, const std::vector<int64_t>& j) const {
    int64_t flat = 0;
    for (size_t d = 0; d < rank_; ++d) {
      int64_t k = j[d];
      if (p_.transposed) {
        const int64_t reach = phase[d] + j[d] * p_.strides[d];
        k = reach / p_.dilations[d];
        if (reach % p_.dilations[d] != 0 || k >= kernel_[d]) return -1;
      }
      flat = flat * kernel_[d] + k;
    }
    return flat;
  }

  const ConvProblem& p_;
  std::span<const int64_t> kernel_;
  size_t rank_;
};

} // namespace

void Part::grid(std::span<const int64_t> out, std::span<const int64_t> out_step, std::vector<int64_t>& first,
                std::vector<int64_t>& count) const {
  const size_t rank = out.size();
  first.assign(rank, 0);
  count.assign(rank, 0);
  for (size_t d = 0; d < rank; ++d) {
    int64_t low = 0, high = 0;
    for (int64_t i = 0; i < phases; ++i) {
      const int64_t shift = shifts[i * rank + d], step = out_step[d];
      const int64_t begin = -floor_div(shift, step), end = floor_div(out[d] - 1 - shift, step);
      low = i == 0 ? begin : std::min(low, begin);
      high = i == 0 ? end : std::max(high, end);
    }
    first[d] = low;
    count[d] = std::max<int64_t>(0, high - low + 1);
  }
}

Geometry geometry_of(const ConvProblem& problem, std::span<const int64_t> kernel, int64_t columns,
                     int64_t panel) {
  const size_t rank = kernel.size();
  Geometry g;
  const Maker maker(problem, kernel);
  std::vector<int64_t> ones(rank, 1);
  g.in_step = problem.transposed ? ones : problem.strides;
  g.out_step = problem.transposed ? problem.strides : ones;
  std::vector<std::vector<int64_t>> phases;
  for_each_index(g.out_step, [&](const std::vector<int64_t>& phase) { phases.push_back(phase); });
  for (const auto& phase : phases) g.parts.push_back(maker.part({phase}));
  if (phases.size() == 1 || columns == 0) return g;
  auto panels = [&](int64_t n) { return (n + panel - 1) / panel; };
  Part all = maker.part(phases);
  int64_t apart = 0;
  for (const Part& part : g.parts) apart += part.taps * panels(columns);
  if (all.taps * panels(columns * all.phases) <= apart) {
    g.parts.clear();
    g.parts.push_back(std::move(all));
  }
  return g;
}

namespace {

/// Results lie at the points of the grid, which begins with the first of both: those of convolutions. Grids
/// of transposed ones begin where their padding ends.
bool gives_its_points(const Geometry& g) {
  return g.parts.size() == 1 && std::ranges::all_of(g.out_step, [](int64_t step) { return step == 1; }) &&
         std::ranges::all_of(g.parts[0].shifts, [](int64_t shift) { return shift == 0; });
}

} // namespace

TakenPixels::TakenPixels(const Geometry& geometry) : steps_(geometry.in_step), offsets_(steps_.size()) {
  const size_t rank = steps_.size(), last = rank - 1;
  auto once = [](std::vector<int64_t>& v) {
    std::sort(v.begin(), v.end());
    v.erase(std::unique(v.begin(), v.end()), v.end());
  };
  const bool passes = gives_its_points(geometry); // others take all
  for (size_t d = 0; passes && d < rank; ++d) {
    const Part& part = geometry.parts[0];
    for (int64_t t = 0; t < part.taps; ++t) offsets_[d].push_back(part.offsets[t * rank + d]);
    once(offsets_[d]);
  }
  for (int64_t o : offsets_[last]) remainders_.push_back(o - floor_div(o, steps_[last]) * steps_[last]);
  once(remainders_);
  if (remainders_.empty())
    for (int64_t r = 0; r < steps_[last]; ++r) remainders_.push_back(r);
}

TakenPixels::Places TakenPixels::all(std::span<const int64_t> in) {
  Places p;
  for (int64_t size : in) {
    std::vector<int64_t>& taken = p.taken.emplace_back(static_cast<size_t>(size));
    std::iota(taken.begin(), taken.end(), 0);
  }
  p.index = p.taken;
  return p;
}

TakenPixels::Places TakenPixels::places(std::span<const int64_t> in, std::span<const int64_t> out) const {
  Places p;
  p.taken.resize(in.size());
  p.index.resize(in.size());
  for (size_t d = 0; d < in.size(); ++d) {
    const bool is_last = d + 1 == in.size();
    std::vector<bool> taken(static_cast<size_t>(in[d]), offsets_[d].empty());
    for (int64_t i = 0; is_last && i < in[d]; ++i)
      taken[i] = std::binary_search(remainders_.begin(), remainders_.end(), i % steps_[d]);
    for (int64_t offset : offsets_[d])
      for (int64_t q = 0; !is_last && q < out[d]; ++q)
        if (const int64_t i = q * steps_[d] + offset; i >= 0 && i < in[d]) taken[i] = true;
    for (int64_t i = 0; i < in[d]; ++i) {
      if (!is_last) p.index[d].push_back(static_cast<int64_t>(p.taken[d].size()));
      if (taken[i]) p.taken[d].push_back(i);
    }
  }
  return p;
}

Geometry TakenPixels::geometry_of_taken(Geometry geometry) const {
  const size_t rank = steps_.size(), d = rank - 1;
  const auto each = static_cast<int64_t>(remainders_.size());
  geometry.in_step[d] = each;
  for (Part& part : geometry.parts)
    for (int64_t t = 0; t < part.taps; ++t) {
      int64_t& offset = part.offsets[t * rank + d];
      const int64_t whole = floor_div(offset, steps_[d]);
      offset = whole * each +
               (std::lower_bound(remainders_.begin(), remainders_.end(), offset - whole * steps_[d]) -
                remainders_.begin());
    }
  return geometry;
}

const char* refused_geometry(const ConvProblem& problem, std::span<const int64_t> kernel) {
  constexpr int64_t kMost = int64_t{1} << 20;
  int64_t taps = 1, phases = 1, reach = 1;
  for (size_t d = 0; d < kernel.size(); ++d) {
    if (kernel[d] <= 0) return "a kernel of unknown size";
    if (kernel[d] > kMaxTaps || (taps *= kernel[d]) > kMaxTaps) return "a kernel of many elements";
    if (!problem.transposed) continue;
    if (problem.strides[d] > kMaxPhases || (phases *= problem.strides[d]) > kMaxPhases)
      return "large strides of a transposed convolution";
    // Taps of a phase are looked for among all places that the kernel spans.
    if (kernel[d] > 1 && problem.dilations[d] > kMost) return "a large dilation of a transposed convolution";
    reach *= (kernel[d] - 1) * problem.dilations[d] / problem.strides[d] + 1;
    if (reach > kMost) return "a large dilation of a transposed convolution";
  }
  // All phases know of each tap whether they have it.
  return phases * std::max(taps, reach) > kMost ? "many elements and large strides" : nullptr;
}

} // namespace tbx::extern_kernels::direct
