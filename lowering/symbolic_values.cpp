// Known values: chooses the rule of an operator and guards what may enter it.
#include "lowering/symbolic_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "lowering/known_rules.h"

namespace tbx::lowering {
namespace known {

int64_t numel_of(std::span<const int64_t> dims) {
  int64_t n = 1;
  for (int64_t d : dims)
    if (__builtin_mul_overflow(n, d, &n) || n > kMaxElements) return kMaxElements + 1;
  return n;
}

static bool all_constant(const SymInts& values) {
  return std::all_of(values.begin(), values.end(), [](SymInt v) { return v.is_constant(); });
}

bool is_symbolic(const KnownTensor& k) { return !all_constant(k.values); }

std::optional<std::vector<int64_t>> as_constants(const KnownTensor& k) {
  if (!all_constant(k.values) || k.denominator != 1) return std::nullopt;
  std::vector<int64_t> out;
  for (SymInt v : k.values) out.push_back(v.constant());
  return out;
}

int64_t broadcast_position(std::span<const int64_t> index, std::span<const int64_t> dims) {
  int64_t at = 0;
  size_t skip = index.size() - dims.size();
  for (size_t d = 0; d < dims.size(); ++d) at = at * dims[d] + (dims[d] == 1 ? 0 : index[skip + d]);
  return at;
}

std::optional<std::vector<int64_t>> broadcast_dims(const std::vector<int64_t>& a,
                                                   const std::vector<int64_t>& b) {
  std::vector<int64_t> out(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < out.size(); ++i) {
    int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) return std::nullopt;
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  if (numel_of(out) > kMaxElements) return std::nullopt;
  return out;
}

std::optional<int64_t> Args::wrap(int64_t axis, size_t rank) const {
  auto r = static_cast<int64_t>(rank);
  if (axis < -r || axis >= r) return std::nullopt;
  return axis < 0 ? axis + r : axis;
}

std::optional<Dims> Args::axes(int opset_of_input) const {
  if (node.opset() < opset_of_input) return node.attr_ints("axes");
  return has(1) ? ints(1) : Dims{};
}

/// A constant that is held exactly with so many bits of significand.
static bool is_held(int64_t v, int64_t limit) {
  if (v == 0 || v == INT64_MIN) return true;
  return (std::abs(v) >> std::countr_zero(static_cast<uint64_t>(v))) <= limit;
}

bool is_exact(const Args& args, const KnownTensor& out) {
  const std::string& op = args.node.node.op_type;
  const bool takes_quotients = has(Trait::takes_quotients, args.node.node);
  const bool of_quotients =
      std::any_of(args.in.begin(), args.in.end(), [](const auto& k) { return k && is_quotient(*k); });
  if (of_quotients && (!takes_quotients || (is_float(out.dtype) && out.dtype != args[0].dtype))) return false;
  // What comes in is exact, and these make nothing larger.
  if (!is_float(out.dtype) || (takes_quotients && out.dtype == args[0].dtype)) return true;
  const int64_t limit = int64_t{1} << significand_bits(out.dtype);
  if (is_quotient(out) && out.denominator > limit) return false;
  // A sum of many is exact on the way when no term is negative.
  if (op == "ReduceSum" || (op == "Sum" && args.in.size() > 2))
    for (const auto& k : args.in)
      for (SymInt v : k ? k->values : SymInts())
        if (!ir::provably_nonnegative(v)) return false;
  SymInts room;
  for (SymInt v : out.values) {
    if (v.is_constant()) {
      if (is_quotient(out) ? std::abs(v.constant()) > limit : !is_held(v.constant(), limit)) return false;
      continue;
    }
    room.push_back(SymInt(limit) - (ir::provably_nonnegative(v) ? v : ir::max(v, -v)));
  }
  std::erase_if(room, [](SymInt r) { return ir::provably_nonnegative(r); });
  if (room.empty()) return true;
  ir::Program& program = args.node.program;
  if (!program.assume_exact_floats) return false;
  for (SymInt r : room)
    program.add_check(r, false, fmt::format("a size is not exact as {}", name_of(out.dtype)), true);
  return true;
}

static const Rules& rules() {
  static const Rules table = [] {
    Rules r;
    add_arithmetic_rules(r);
    add_movement_rules(r);
    return r;
  }();
  return table;
}

} // namespace known

std::optional<std::vector<LoweredValue>> known_results(const OpContext& node) {
  if (!node.node.domain.empty() || node.num_inputs() == 0) return std::nullopt;
  if (node.node.op_type == "Split") return known::split(node);
  using namespace known;
  auto rule = rules().find(node.node.op_type);
  if (rule == rules().end()) return std::nullopt;
  bool only_type = node.node.op_type == "CastLike";
  Args args{node, {}};
  for (int i = 0; i < node.num_inputs(); ++i) {
    auto k = i == 1 && only_type ? nullptr : node.known_tensor(i);
    if (!k && node.has(i) && !(i == 1 && only_type)) return std::nullopt;
    args.in.push_back(std::move(k));
  }
  if (!args.in[0]) return std::nullopt;
  // Narrow floats round in between; 8- and 16-bit integers wrap: neither occurs in shape computations.
  DType type = args[0].dtype;
  if (is_low_precision_float(type) || (is_integer(type) && bits_of(type) < 32)) return std::nullopt;
  // Floats only on the way from a size to a size; constants alone are ordinary arithmetic, rounded as such.
  if (is_float(type) &&
      std::none_of(args.in.begin(), args.in.end(), [](const auto& k) { return k && is_symbolic(*k); }))
    return std::nullopt;
  if (node.opset() < 7 && node.has_attr("broadcast")) return std::nullopt;
  Known out = rule->second(args);
  if (!out || !is_exact(args, *out)) return std::nullopt;
  return std::vector<LoweredValue>{LoweredValue(std::move(*out))};
}

} // namespace tbx::lowering
