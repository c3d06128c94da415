#include "runtime/executable.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/printable.h"

namespace tbx::runtime {

int64_t SizeExpr::evaluate(std::span<const int64_t> symbols) const {
  // Expressions are short: a fixed stack keeps evaluation free of allocation.
  int64_t stack[kMaxSizeDepth];
  int top = 0;
  auto overflow = [] { throw_model_error("a size overflows 64 bits"); };
  for (const Item& item : items) {
    if (item.code == Code::push || item.code == Code::symbol) {
      TBX_INTERNAL(top < kMaxSizeDepth);
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

const char* name_of(SymbolBinding::Of of) {
  switch (of) {
  case SymbolBinding::Of::dim: return "dimension";
  case SymbolBinding::Of::element: return "element";
  case SymbolBinding::Of::room: return "room along dimension";
  }
  return "?";
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

const char* name_of(DeviceKind device) {
  switch (device) {
  case DeviceKind::cpu: return "cpu";
  case DeviceKind::cuda: return "cuda";
  }
  return "?";
}

std::string nodes_of(const Executable& executable, std::span<const int> origins) {
  std::vector<std::string> names;
  for (int o : origins) {
    if (o < 0 || o >= static_cast<int>(executable.origin_names.size())) continue;
    const std::string& text = executable.origin_names[o]; // "name (Op)"
    const size_t end = std::min(text.rfind(" ("), text.size());
    names.push_back("'" + text.substr(0, end) + "'" + text.substr(end));
  }
  if (names.empty()) return "";
  return fmt::format("{} {}", names.size() == 1 ? "node" : "one of the nodes", fmt::join(names, ", "));
}

namespace {

std::string text(const OperandView& v, const std::vector<std::string>& names) {
  if (v.buffer < 0) return "-";
  const bool at_start = v.offset.is_constant() && v.offset.items[0].value == 0;
  return fmt::format("b{}{} {}:{}", v.buffer, at_start ? "" : "+" + text(v.offset, names),
                     text(v.sizes, names), text(v.strides, names));
}

std::string text(const std::vector<OperandView>& views, const std::vector<std::string>& names) {
  std::vector<std::string> parts;
  parts.reserve(views.size());
  for (const OperandView& v : views) parts.push_back(text(v, names));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string text(const SignatureEntry& e) {
  return fmt::format("{} {}[{}]", printable(e.name, Lines::escaped), tbx::name_of(e.dtype),
                     e.ranked ? fmt::format("{}", fmt::join(e.dims, ", ")) : "?");
}

std::string text(const KernelStep& k, const std::vector<std::string>& names) {
  std::string buffers;
  for (size_t b = 0; b < k.buffers.size(); ++b)
    buffers += fmt::format(
        "{}{}{}{}", b ? ", " : "", k.buffers[b] < 0 ? "-" : fmt::format("b{}", k.buffers[b]),
        k.offset_bytes[b] ? fmt::format("+{}", k.offset_bytes[b]) : "", k.writes[b] ? " written" : "");
  auto memory = [&](const char* what, const SizeExpr& bytes) {
    const bool none = bytes.is_constant() && bytes.items[0].value == 0;
    return none ? "" : fmt::format(" {} {}", what, text(bytes, names));
  };
  const std::string launch =
      k.launch.threads == 0
          ? ""
          : fmt::format(" blocks {} of {} threads", text(k.launch.blocks, names), k.launch.threads);
  return fmt::format("kernel {} ({}) sizes {} tasks {}{}{}{}{}", k.name, buffers, text(k.size_args, names),
                     text(k.tasks, names), memory("scratch", k.scratch_bytes), memory("state", k.state_bytes),
                     k.sequential ? " sequential" : "", launch);
}

std::string text(const CopyStep& c, const std::vector<std::string>&) {
  return fmt::format("copy b{} to b{}", c.from, c.to);
}

std::string text(const ExternStep& e, const std::vector<std::string>& names) {
  std::string s = fmt::format("extern {} ({}) -> ({})", extern_kernels::to_string(e.problem),
                              text(e.inputs, names), text(e.outputs, names));
  if (e.bound_symbols.empty()) return s;
  std::vector<std::string> bound;
  for (int symbol : e.bound_symbols) bound.push_back(names[static_cast<size_t>(symbol)]);
  return s + fmt::format(" binds {}", fmt::join(bound, ", "));
}

} // namespace

std::string to_string(const Executable& executable) {
  const std::vector<std::string>& names = executable.symbol_names;
  std::string out = fmt::format("symbols: {}\n", fmt::join(names, ", "));
  for (const SignatureEntry& e : executable.inputs)
    out += fmt::format("input: {} in b{}\n", text(e), e.buffer);
  for (const SignatureEntry& e : executable.outputs)
    out += fmt::format("output: {} in b{}\n", text(e), e.buffer);
  for (const SymbolBinding& b : executable.bindings)
    out += fmt::format("bind: {} = {} {} of input {}\n", names[static_cast<size_t>(b.symbol)], name_of(b.of),
                       b.dim, b.input);
  for (const PlanCheck& c : executable.checks)
    out += fmt::format("check: {} {} 0{}  # {}\n", text(c.value, names),
                       c.equal ? "=" : ">=", c.assumption ? " assumed" : "",
                       printable(c.message, Lines::escaped));
  for (size_t b = 0; b < executable.buffers.size(); ++b) {
    const BufferPlan& p = executable.buffers[b];
    out += fmt::format("b{}: {} {} {} strides {} on {} steps {}..{}{}\n", b, name_of(p.storage),
                       tbx::name_of(p.dtype), text(p.sizes, names), text(p.strides, names), name_of(p.device),
                       p.first_step, p.last_step,
                       p.name.empty() ? "" : "  # " + printable(p.name, Lines::escaped));
  }
  for (size_t s = 0; s < executable.steps.size(); ++s)
    out += fmt::format(
        "{}: {}{}\n", s, executable.steps[s].device == DeviceKind::cpu ? "" : "on cuda: ",
        std::visit([&](const auto& step) { return text(step, names); }, executable.steps[s].what));
  return out;
}

} // namespace tbx::runtime
