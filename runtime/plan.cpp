#include "runtime/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace tbx::runtime {

int64_t SizeExpr::evaluate(std::span<const int64_t> symbols) const {
  // Expressions are short: a fixed stack keeps evaluation free of allocation.
  constexpr int kDepth = 64;
  int64_t stack[kDepth];
  int top = 0;
  auto overflow = [] { throw_model_error("a size overflows 64 bits"); };
  for (const Item& item : items) {
    if (item.code == Code::push || item.code == Code::symbol) {
      TBX_INTERNAL(top < kDepth);
      stack[top++] = item.code == Code::push ? item.value : symbols[static_cast<size_t>(item.value)];
      continue;
    }
    TBX_INTERNAL(top >= 2);
    int64_t b = stack[--top], a = stack[--top], r = 0;
    switch (item.code) {
    case Code::add:
      if (__builtin_add_overflow(a, b, &r)) overflow();
      break;
    case Code::mul:
      if (__builtin_mul_overflow(a, b, &r)) overflow();
      break;
    case Code::min: r = std::min(a, b); break;
    case Code::max: r = std::max(a, b); break;
    default: {
      TBX_MODEL(b > 0, "a size is divided by {}", b);
      int64_t q = a / b - (a % b != 0 && a < 0);
      r = item.code == Code::floordiv ? q : a - q * b;
    }
    }
    stack[top++] = r;
  }
  TBX_INTERNAL(top == 1);
  return stack[0];
}

namespace {

std::string text(const SizeExpr& e, const std::vector<std::string>& names) {
  std::string s;
  for (const SizeExpr::Item& item : e.items) {
    static constexpr const char* kOps[] = {"", "", "+", "*", "//", "%", "min", "max"};
    if (!s.empty()) s += " ";
    if (item.code == SizeExpr::Code::push) {
      s += fmt::format("{}", item.value);
    } else if (item.code == SizeExpr::Code::symbol) {
      s += names[static_cast<size_t>(item.value)];
    } else {
      s += kOps[static_cast<size_t>(item.code)];
    }
  }
  return s;
}

std::string text(const SizeExprs& es, const std::vector<std::string>& names) {
  std::vector<std::string> parts;
  for (const SizeExpr& e : es) parts.push_back(text(e, names));
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

const char* name_of(StorageKind kind) {
  switch (kind) {
  case StorageKind::arena: return "arena";
  case StorageKind::input: return "input";
  case StorageKind::output: return "output";
  case StorageKind::constant: return "constant";
  case StorageKind::dynamic: return "dynamic";
  }
  return "?";
}

} // namespace

std::string nodes_of(const Plan& plan, std::span<const int> origins) {
  std::vector<std::string> names;
  for (int o : origins) {
    if (o < 0 || o >= static_cast<int>(plan.origin_names.size())) continue;
    const std::string& text = plan.origin_names[o]; // "name (Op)"
    const size_t end = std::min(text.rfind(" ("), text.size());
    names.push_back("'" + text.substr(0, end) + "'" + text.substr(end));
  }
  if (names.empty()) return "";
  return fmt::format("{} {}", names.size() == 1 ? "node" : "one of the nodes", fmt::join(names, ", "));
}

std::string to_string(const Plan& plan) {
  std::string out = fmt::format("symbols: {}\n", fmt::join(plan.symbol_names, ", "));
  for (size_t b = 0; b < plan.buffers.size(); ++b) {
    const BufferPlan& p = plan.buffers[b];
    out +=
        fmt::format("b{}: {} {} {} strides {} steps {}..{}{}\n", b, name_of(p.storage), tbx::name_of(p.dtype),
                    text(p.sizes, plan.symbol_names), text(p.strides, plan.symbol_names), p.first_step,
                    p.last_step, p.name.empty() ? "" : "  # " + p.name);
  }
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    if (const auto* k = std::get_if<KernelStep>(&plan.steps[s].what)) {
      std::string buffers;
      for (size_t b = 0; b < k->buffers.size(); ++b)
        buffers += fmt::format("{}{}{}", b ? ", " : "", k->buffers[b],
                               k->offset_bytes[b] ? fmt::format("+{}", k->offset_bytes[b]) : "");
      out += fmt::format("{}: kernel {} buffers [{}] tasks {}\n", s, k->name, buffers,
                         text(k->tasks, plan.symbol_names));
    } else {
      const auto& e = std::get<ExternStep>(plan.steps[s].what);
      std::vector<int> in, outs;
      for (const OperandView& v : e.inputs) in.push_back(v.buffer);
      for (const OperandView& v : e.outputs) outs.push_back(v.buffer);
      out += fmt::format("{}: extern {} [{}] -> [{}]\n", s, extern_kernels::to_string(e.problem),
                         fmt::join(in, ", "), fmt::join(outs, ", "));
    }
  }
  return out;
}

} // namespace tbx::runtime
