#include "driver/all_variants.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.h"
#include "graph/partition/graph_part.h"
#include "lowering/op_registry.h"

namespace tbx::driver {
namespace {

constexpr int64_t kMostPrograms = 64; ///< of one part, in a package
constexpr int64_t kMostTries = 256;   ///< with elements of which some are not legal
constexpr int64_t kMostBytes = 64 << 20;

/// The integers from `least` to below `below`.
struct Range {
  int64_t least, below;
};

/// What the elements of input `v` may be, where those are few and nothing else is legal: conditions, and
/// axes, which nodes of this graph alone read, as they are. Some in the range may be refused.
std::optional<Range> few_elements(const Graph& g, ValueId v, int64_t count) {
  if (g.at(v).type.dtype == DType::boolean) return Range{0, 2};
  if (g.at(v).type.dtype != DType::i64 && g.at(v).type.dtype != DType::i32) return std::nullopt;
  int64_t rank = 0;
  bool read = false;
  for (const Node& n : g.nodes) {
    const std::vector<ValueId> all = graph::values_read(n);
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      if (n.inputs[i] != v) continue;
      const lowering::NeedOf* need = lowering::Registry::instance().need_of(n, i);
      if (!need || !(*need)(g, n).distinct) return std::nullopt; // no axis
      const ValueId data = n.input(0);
      if (data < 0 || !g.at(data).type.shape) return std::nullopt;
      rank = std::max(rank, static_cast<int64_t>(g.at(data).type.shape->size()));
      read = true;
    }
    // Captured by a body.
    if (std::count(all.begin(), all.end(), v) > std::count(n.inputs.begin(), n.inputs.end(), v))
      return std::nullopt;
  }
  if (!read || std::count(g.outputs.begin(), g.outputs.end(), v)) return std::nullopt;
  rank = std::max<int64_t>(rank + count, 1); // of the result, where axes are added
  return Range{-rank, rank};
}

template <class T> void put(Tensor& t, int64_t i, int64_t value) {
  reinterpret_cast<T*>(t.mutable_data())[i] = static_cast<T>(value);
}

void set_element(Tensor& t, int64_t i, int64_t value) {
  switch (t.dtype) {
  case DType::boolean: return put<bool>(t, i, value);
  case DType::i32: return put<int32_t>(t, i, value);
  case DType::i64: return put<int64_t>(t, i, value);
  default: TBX_INTERNAL(false);
  }
}

/// Inputs as a run would give them, with sizes that stand for any and elements that are set one after the
/// other.
class Inputs {
public:
  /// False where there cannot be one of each: types or ranks are not known, or it would take much memory.
  bool make(const Graph& g) {
    std::vector<InputKind> kinds;
    if (!graph::declared_kinds(g, kinds)) return false;
    int64_t bytes = 0;
    for (const InputKind& kind : kinds) {
      fixed_.push_back(true);
      std::vector<int64_t> dims = *kind.dims;
      for (int64_t& d : dims)
        if (d < 0) {
          d = 1 - d; // 2 and more: none is a special case
          fixed_.back() = false;
        }
      __int128 n = 64;
      for (int64_t d : dims) n = std::min<__int128>(n * d, kMostBytes);
      bytes += static_cast<int64_t>(n);
      if (bytes >= kMostBytes) return false;
      tensors_.push_back(Tensor::make(kind.dtype, std::move(dims)));
      std::fill_n(tensors_.back().mutable_data(), tensors_.back().bytes(), std::byte{0});
    }
    return true;
  }

  bool is_fixed(size_t i) const { return fixed_[i]; }
  bool all_fixed() const { return std::count(fixed_.begin(), fixed_.end(), false) == 0; }
  Tensor& at(size_t i) { return tensors_[i]; }
  std::vector<runtime::RunTensor> given() {
    std::vector<runtime::RunTensor> all;
    for (Tensor& t : tensors_) all.push_back({t.mutable_data(), t.dtype, t.dims, nullptr, nullptr});
    return all;
  }

private:
  std::vector<bool> fixed_; ///< all of its sizes are known
  std::vector<Tensor> tensors_;
};

/// An element of an input and what it may be.
struct Place {
  size_t input;
  int64_t element;
  Range range;
};

/// The elements of the inputs that the code depends on; nullopt: they are not few.
std::optional<std::vector<Place>> places_of(const Graph& g, Inputs& inputs,
                                            const std::vector<std::string>& needed) {
  std::vector<Place> places;
  int64_t tries = 1;
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    if (std::find(needed.begin(), needed.end(), g.at(g.inputs[i]).name) == needed.end()) continue;
    if (!inputs.is_fixed(i)) return std::nullopt;
    const int64_t count = inputs.at(i).numel();
    const std::optional<Range> range = few_elements(g, g.inputs[i], count);
    if (!range) return std::nullopt;
    for (int64_t k = 0; k < count; ++k) {
      tries *= range->below - range->least;
      if (tries > kMostTries) return std::nullopt;
      places.push_back({i, k, *range});
    }
  }
  return places;
}

/// False where something was learnt on the way, so that there may be more to go through.
bool compile_all(Specialiser& specialiser, Inputs& inputs, const std::vector<Place>& places,
                 std::vector<Specialiser::VariantPtr>& variants) {
  const std::vector<std::string> known = specialiser.needs(true);
  std::vector<int64_t> now;
  for (const Place& p : places) {
    now.push_back(p.range.least);
    set_element(inputs.at(p.input), p.element, p.range.least);
  }
  for (;;) {
    try {
      const auto v = specialiser.variant_for(inputs.given(), Assume::broadcast_too);
      if (std::find(variants.begin(), variants.end(), v) == variants.end()) variants.push_back(v);
    } catch (const Error& e) { // the session refuses them, too
      if (e.kind() == ErrorKind::internal || e.kind() == ErrorKind::backend) throw;
    }
    if (specialiser.needs(true) != known) return false;
    if (static_cast<int64_t>(variants.size()) > kMostPrograms) return true;
    size_t i = 0;
    for (; i < places.size(); ++i) {
      const bool more = ++now[i] < places[i].range.below;
      if (!more) now[i] = places[i].range.least;
      set_element(inputs.at(places[i].input), places[i].element, now[i]);
      if (more) break;
    }
    if (i == places.size()) return true;
  }
}

} // namespace

Coverage compiled_variants(const Specialiser& specialiser) {
  Coverage all{specialiser.variants(), false};
  for (const auto& v : all.variants) all.complete |= v->declared;
  return all;
}

Coverage all_variants(const Specialiser& specialiser, const Graph& graph) {
  Coverage all = compiled_variants(specialiser);
  Inputs inputs;
  if (all.complete || !inputs.make(graph)) return all;
  // What the session has compiled for its runs stays as it is.
  const std::unique_ptr<Specialiser> own = specialiser.another();
  for (;;) {
    if (own->depends_on_shapes() && !inputs.all_fixed()) return all;
    const auto places = places_of(graph, inputs, own->needs(false));
    if (!places) return all;
    std::vector<Specialiser::VariantPtr> variants;
    if (!compile_all(*own, inputs, *places, variants)) continue;
    if (variants.empty() || static_cast<int64_t>(variants.size()) > kMostPrograms) return all;
    return {std::move(variants), true};
  }
}

std::string text_of(const runtime::MadeFor& made_for, const std::vector<std::string>& inputs) {
  std::vector<std::string> all;
  for (size_t i = 0; i < made_for.kinds.size() && i < inputs.size(); ++i) {
    const InputKind& kind = made_for.kinds[i];
    std::vector<std::string> dims;
    for (int64_t d : kind.dims.value_or(std::vector<int64_t>()))
      dims.push_back(d < 0 ? "?" : std::to_string(d));
    for (int64_t axis : kind.several) dims[static_cast<size_t>(axis)] = "2 or more";
    std::string text = fmt::format("{} {}[{}]", inputs[i], name_of(kind.dtype),
                                   kind.dims ? fmt::format("{}", fmt::join(dims, ", ")) : "...");
    std::vector<std::string> elements;
    if (!made_for.elements[i].empty()) {
      for (const std::optional<int64_t>& e : made_for.elements[i])
        elements.push_back(e ? std::to_string(*e) : "any size");
    } else if (const auto& value = made_for.values[i]) {
      constexpr int64_t kShown = 8;
      for (int64_t k = 0; k < std::min(value->numel(), kShown); ++k)
        elements.push_back(value->dtype == DType::boolean || is_integer(value->dtype)
                               ? std::to_string(element_as_int(*value, k))
                               : "...");
      if (value->numel() > kShown) elements.emplace_back("...");
    } else {
      all.push_back(std::move(text));
      continue;
    }
    all.push_back(fmt::format("{} = {{{}}}", text, fmt::join(elements, ", ")));
  }
  return fmt::format("{}", fmt::join(all, ", "));
}

} // namespace tbx::driver
