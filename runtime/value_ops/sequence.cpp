// Sequences and optionals at run time, and operators that take values of every type.
#include <algorithm>
#include <cstring>

#include "base/memory.h"
#include "runtime/value_op.h"

namespace tbx::runtime {
namespace {

constexpr int64_t kMaxParts = int64_t{1} << 24;

/// `position` with negative numbers from the end; ModelError when it is not in [-count, limit).
size_t wrapped(int64_t position, size_t count, size_t limit) {
  auto n = static_cast<int64_t>(count);
  TBX_MODEL(position >= -n && position < static_cast<int64_t>(limit),
            "position {} is out of range for a sequence of {}", position, n);
  return static_cast<size_t>(position < 0 ? position + n : position);
}

/// Parts of these lengths along `axis`, which add up to it. Those of numbers share one block of memory.
std::vector<RuntimeValue> split(const Tensor& t, int64_t axis, std::span<const int64_t> lengths) {
  std::vector<RuntimeValue> parts;
  parts.reserve(lengths.size());
  const bool numbers = t.dtype != DType::string;
  const int64_t all = t.dims[axis], rows = checked_numel({t.dims.begin(), t.dims.begin() + axis}),
                each = checked_numel({t.dims.begin() + axis + 1, t.dims.end()}) * size_of(t.dtype);
  const std::shared_ptr<void> memory = numbers ? allocate_aligned(t.bytes()) : nullptr;
  auto* to = static_cast<std::byte*>(memory.get());
  int64_t at = 0;
  for (const int64_t n : lengths) {
    Tensor part;
    if (numbers) {
      part.dtype = t.dtype;
      part.dims = t.dims;
      part.dims[axis] = n;
      part.data = to;
      part.owner = memory;
      const int64_t bytes = n * each;
      for (int64_t r = 0; r < rows && bytes > 0; ++r, to += bytes)
        std::memcpy(to, t.data + r * all * each + at * each, static_cast<size_t>(bytes));
    } else {
      part = slice_of(t, axis, at, at + n);
    }
    parts.emplace_back(std::move(part));
    at += n;
  }
  return parts;
}

void set_scalar(const ValueCall& call, DType dtype, int64_t v) {
  Tensor& t = call.make(0, dtype, {});
  if (dtype == DType::boolean)
    t.as_mutable<uint8_t>()[0] = v != 0;
  else
    t.as_mutable<int64_t>()[0] = v;
}

} // namespace

ValueFunction make_value_identity(const ValueNode&) {
  return [](const ValueCall& call) { call.outputs[0] = call.take(0); };
}

ValueFunction make_sequence_construct(const ValueNode&) {
  return [](const ValueCall& call) {
    std::vector<RuntimeValue> all;
    for (int i = 0; i < call.num_inputs(); ++i) {
      call.tensor(i);
      all.push_back(call.take(i));
    }
    call.outputs[0] = RuntimeValue::sequence(std::move(all));
  };
}

ValueFunction make_sequence_empty(const ValueNode&) {
  return [](const ValueCall& call) { call.outputs[0] = RuntimeValue::sequence({}); };
}

ValueFunction make_sequence_at(const ValueNode&) {
  return [](const ValueCall& call) {
    const auto& s = call.sequence(0);
    call.outputs[0] = s[wrapped(call.integer(1), s.size(), s.size())];
  };
}

ValueFunction make_sequence_insert(const ValueNode&) {
  return [](const ValueCall& call) {
    size_t n = call.sequence(0).size();
    size_t at = call.has(2) ? wrapped(call.integer(2), n, n + 1) : n; // the end is a position, too
    call.tensor(1);
    RuntimeValue s = call.take(0);
    auto& elements = s.own_elements();
    elements.insert(elements.begin() + static_cast<std::ptrdiff_t>(at), call.take(1));
    call.outputs[0] = std::move(s);
  };
}

ValueFunction make_sequence_erase(const ValueNode&) {
  return [](const ValueCall& call) {
    size_t n = call.sequence(0).size();
    TBX_MODEL(n > 0, "no element to erase: the sequence is empty");
    size_t at = call.has(1) ? wrapped(call.integer(1), n, n) : n - 1;
    RuntimeValue s = call.take(0);
    auto& elements = s.own_elements();
    elements.erase(elements.begin() + static_cast<std::ptrdiff_t>(at));
    call.outputs[0] = std::move(s);
  };
}

ValueFunction make_sequence_length(const ValueNode&) {
  return [](const ValueCall& call) {
    set_scalar(call, DType::i64, static_cast<int64_t>(call.sequence(0).size()));
  };
}

ValueFunction make_concat_from_sequence(const ValueNode& node) {
  TBX_MODEL(node.has("axis"), "attribute 'axis' is missing");
  int64_t axis = node.integer("axis", 0);
  bool new_axis = node.integer("new_axis", 0) != 0;
  return [axis, new_axis](const ValueCall& call) {
    std::vector<const Tensor*> parts;
    int64_t bytes = 0;
    for (const RuntimeValue& v : call.sequence(0)) {
      TBX_MODEL(v.is_tensor(), "an element of the sequence is {}", name_of(v.kind));
      bytes += bytes_of_value(v);
      call.need(bytes, 1); // elements may share the memory that the result has for each
      parts.push_back(&v.tensor);
    }
    TBX_MODEL(!parts.empty(), "an empty sequence cannot be concatenated");
    call.outputs[0] = RuntimeValue(concatenate(parts, axis, new_axis));
  };
}

ValueFunction make_split_to_sequence(const ValueNode& node) {
  int64_t axis = node.integer("axis", 0);
  bool keep = node.integer("keepdims", 1) != 0;
  return [axis, keep](const ValueCall& call) {
    const Tensor& x = call.tensor(0);
    auto rank = static_cast<int64_t>(x.dims.size());
    TBX_MODEL(axis >= -rank && axis < rank, "axis {} is out of range for rank {}", axis, rank);
    int64_t d = axis < 0 ? axis + rank : axis, total = x.dims[d];
    std::vector<int64_t> lengths;
    if (call.has(1) && !call.tensor(1).dims.empty()) {
      lengths = to_ints(call.tensor(1));
      int64_t sum = 0;
      for (int64_t n : lengths)
        TBX_MODEL(n >= 0 && !__builtin_add_overflow(sum, n, &sum) && sum <= total,
                  "the lengths of the parts do not add up to {}", total);
      TBX_MODEL(sum == total, "the lengths of the parts add up to {}, not to {}", sum, total);
    } else {
      int64_t step = call.has(1) ? call.integer(1) : 1;
      TBX_MODEL(step > 0, "split is {}", step);
      TBX_MODEL(total / step < kMaxParts,
                "a dimension of {} is split into parts of {}: that is over {} parts", total, step, kMaxParts);
      for (int64_t at = 0; at < total; at += std::min(step, total - at))
        lengths.push_back(std::min(step, total - at));
    }
    call.need(static_cast<int64_t>(lengths.size()), sizeof(RuntimeValue) + x.dims.size() * sizeof(int64_t));
    std::vector<RuntimeValue> parts = split(x, d, lengths);
    if (!keep && !call.has(1))
      for (RuntimeValue& part : parts) part.tensor.dims.erase(part.tensor.dims.begin() + d);
    call.outputs[0] = RuntimeValue::sequence(std::move(parts));
  };
}

// --- optionals

ValueFunction make_optional(const ValueNode&) {
  return [](const ValueCall& call) { call.outputs[0] = call.has(0) ? call.take(0) : RuntimeValue(); };
}

ValueFunction make_optional_get_element(const ValueNode&) {
  return [](const ValueCall& call) {
    TBX_MODEL(call.has(0), "the optional is empty");
    call.outputs[0] = call.take(0);
  };
}

ValueFunction make_optional_has_element(const ValueNode&) {
  return [](const ValueCall& call) { set_scalar(call, DType::boolean, call.has(0)); };
}

// --- shapes of values that are no numeric tensors

ValueFunction make_value_shape(const ValueNode& node) {
  int64_t start = node.integer("start", 0), end = node.integer("end", INT64_MAX);
  return [start, end](const ValueCall& call) {
    const std::vector<int64_t>& dims = call.tensor(0).dims;
    auto rank = static_cast<int64_t>(dims.size());
    auto clip = [&](int64_t v) { return std::clamp<int64_t>(v < 0 ? v + rank : v, 0, rank); };
    int64_t from = clip(start), to = std::max(from, clip(end));
    Tensor& out = call.make(0, DType::i64, {to - from});
    std::copy(dims.begin() + from, dims.begin() + to, out.as_mutable<int64_t>().begin());
  };
}

ValueFunction make_value_size(const ValueNode&) {
  return [](const ValueCall& call) { set_scalar(call, DType::i64, call.tensor(0).numel()); };
}

} // namespace tbx::runtime
