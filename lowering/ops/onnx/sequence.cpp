// Sequences of static length and optionals: lists of values while lowering, nothing of them runs.
#include <algorithm>

#include "base/budget.h"
#include "lowering/op_helpers.h"
#include "lowering/ops/families.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

constexpr int64_t kMaxParts = 16384;

/// Every sequence is a list of its own, so a chain of n insertions takes n^2 / 2 elements: they count.
LoweredValue sequence(Values elements) {
  if (const auto& budget = current_budget())
    budget->take(static_cast<int64_t>(elements.size() * sizeof(LoweredValue)));
  LoweredValue v;
  v.sequence = std::make_shared<Values>(std::move(elements));
  return v;
}

const Values& elements(OpContext& ctx, int i) {
  TBX_MODEL(i < ctx.num_inputs() && ctx.value(i).sequence, "input {} is no sequence", i);
  return *ctx.value(i).sequence;
}

/// A position given by input `i`, negative from the end; `size` when it is left out.
size_t position(OpContext& ctx, int i, size_t count, size_t otherwise) {
  if (!ctx.has(i)) return otherwise;
  int64_t p = ctx.int_or_run(i, "position"), n = static_cast<int64_t>(count);
  TBX_MODEL(p >= -n && p < n, "position {} is out of range for a sequence of {}", p, n);
  return static_cast<size_t>(p < 0 ? p + n : p);
}

Values lower_sequence_construct(OpContext& ctx) {
  Values all;
  for (int i = 0; i < ctx.num_inputs(); ++i) {
    TBX_MODEL(ctx.has(i), "input {} is missing", i);
    all.push_back(ctx.value(i));
  }
  return {sequence(std::move(all))};
}

Values lower_sequence_at(OpContext& ctx) {
  const Values& s = elements(ctx, 0);
  TBX_MODEL(ctx.has(1) && !s.empty(), "no element to take");
  return {s[position(ctx, 1, s.size(), 0)]};
}

Values lower_sequence_insert(OpContext& ctx) {
  Values s = elements(ctx, 0);
  size_t at = s.size();
  if (ctx.has(2)) { // the end is a position, too
    int64_t p = ctx.int_or_run(2, "position"), n = static_cast<int64_t>(s.size());
    TBX_MODEL(p >= -n && p <= n, "position {} is out of range for a sequence of {}", p, n);
    at = static_cast<size_t>(p < 0 ? p + n : p);
  }
  s.insert(s.begin() + static_cast<std::ptrdiff_t>(at), ctx.value(1));
  return {sequence(std::move(s))};
}

Values lower_sequence_erase(OpContext& ctx) {
  Values s = elements(ctx, 0);
  TBX_MODEL(!s.empty(), "no element to erase");
  s.erase(s.begin() + static_cast<std::ptrdiff_t>(position(ctx, 1, s.size(), s.size() - 1)));
  return {sequence(std::move(s))};
}

Values lower_sequence_length(OpContext& ctx) {
  return {KnownTensor{DType::i64, {}, {static_cast<int64_t>(elements(ctx, 0).size())}, 1}};
}

Values lower_concat_from_sequence(OpContext& ctx) {
  Values parts = elements(ctx, 0);
  TBX_MODEL(!parts.empty(), "an empty sequence");
  int64_t axis = ctx.required_int("axis");
  if (ctx.attr_int("new_axis", 0) != 0) {
    int rank = static_cast<int>(parts[0].sizes().size()) + 1;
    const int at[] = {ctx.axis(axis, rank)};
    for (LoweredValue& part : parts) {
      const TensorBox& box = ctx.box(part);
      TBX_MODEL(box.rank() + 1 == rank, "elements of rank {} and {}", rank - 1, box.rank());
      part = ir::unsqueeze(ctx.program, box, at);
    }
  }
  return lower_as(ctx, "Concat", 13, std::move(parts), {{"axis", axis}});
}

/// Parts of equal length (a scalar `split`, or 1 with the axis dropped unless keepdims), or of given lengths.
Values lower_split_to_sequence(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  int axis = ctx.axis(ctx.attr_int("axis", 0), x.rank());
  auto total = x.sizes()[axis].as_constant();
  if (!total) ask_for_run("the length of a dimension that becomes a sequence is not known");
  std::vector<int64_t> lengths;
  bool keep = true;
  if (!ctx.has(1) || ctx.rank(1) == 0) {
    int64_t step = ctx.has(1) ? ctx.int_or_run(1, "split") : 1;
    keep = ctx.has(1) || ctx.attr_int("keepdims", 1) != 0;
    TBX_MODEL(step > 0 && *total / step <= kMaxParts, "split is {}", step);
    for (int64_t at = 0; at < *total; at += step) lengths.push_back(std::min(step, *total - at));
  } else {
    lengths = ctx.ints_or_run(1, "split");
  }
  Values parts;
  int64_t start = 0;
  for (int64_t n : lengths) {
    TBX_MODEL(n >= 0 && n <= *total - start, "the lengths do not add up to {}", *total);
    TensorBox part = ir::slice(ctx.program, x, axis, start, 1, n);
    const int axes[] = {axis};
    parts.emplace_back(keep ? part : ir::squeeze(ctx.program, part, axes));
    start += n;
  }
  TBX_MODEL(start == *total, "the lengths add up to {}, not to {}", start, *total);
  return {sequence(std::move(parts))};
}

// --- optionals

Values lower_optional(OpContext& ctx) {
  if (ctx.num_inputs() > 0) return {ctx.value(0)};
  LoweredValue none;
  none.is_none = true;
  return {none};
}

Values lower_optional_get(OpContext& ctx) {
  TBX_MODEL(ctx.has(0), "the optional is empty");
  return {ctx.value(0)};
}

} // namespace

void register_sequence(Registry& r) {
  r.add("SequenceConstruct", since(11), lower_sequence_construct);
  r.add("SequenceEmpty", since(11), [](OpContext&) { return Values{sequence({})}; });
  r.add("SequenceAt", since(11), lower_sequence_at);
  r.add("SequenceInsert", since(11), lower_sequence_insert);
  r.add("SequenceErase", since(11), lower_sequence_erase);
  r.add("SequenceLength", since(11), lower_sequence_length);
  r.add("ConcatFromSequence", since(11), lower_concat_from_sequence);
  r.add("SplitToSequence", since(11), lower_split_to_sequence);
  r.add("Optional", since(15), lower_optional);
  r.add("OptionalGetElement", since(15), lower_optional_get);
  r.add("OptionalHasElement", since(15), [](OpContext& ctx) {
    return Values{KnownTensor{DType::boolean, {}, {ctx.has(0) ? 1 : 0}, 1}};
  });
  r.mark(Trait::any_values, {"Optional", "OptionalGetElement", "OptionalHasElement", "SequenceAt",
                             "SequenceConstruct", "SequenceErase", "SequenceInsert"});
  for (const char* op : {"SequenceAt", "SequenceErase"}) r.need(op, 1, between(0, 1));
  r.need("SequenceInsert", 2, between(0, 1));
}

} // namespace tbx::lowering
