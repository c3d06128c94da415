// Text of Expr DAGs.
#include <fmt/format.h>

#include <unordered_map>

#include "ir/expr.h"

namespace tbx::ir {
namespace {

std::string constant_text(Expr e) {
  if (e->dtype == DType::boolean) return e->as_int() ? "true" : "false";
  if (e->dtype == DType::f32) return fmt::format("{}f", static_cast<float>(e->as_double()));
  if (e->dtype == DType::f64) return fmt::format("{}", e->as_double());
  if (e->dtype == DType::u64) return fmt::format("{}u", static_cast<uint64_t>(e->as_int()));
  return fmt::format("{}", e->as_int());
}

}  // namespace

std::string to_string(Expr root) {
  std::unordered_map<Expr, int> uses;
  std::vector<Expr> order;
  visit(root, [&](Expr e) {
    order.push_back(e);
    for (int i = 0; i < e->num_args; ++i) ++uses[e->args[i]];
  });
  std::unordered_map<Expr, std::string> text;
  std::string lines;
  int next = 0;
  for (Expr e : order) {
    std::string s;
    auto arg = [&](int i) -> const std::string& { return text.at(e->args[i]); };
    switch (e->op) {
      case Op::constant: s = constant_text(e); break;
      case Op::index: s = to_string(e->indices[0]); break;
      case Op::load:
        s = fmt::format("load(b{}, {}{})", e->buffer, to_string(std::span<const SymInt>(e->indices)),
                        e->mask() ? " if " + arg(0) : "");
        break;
      case Op::accumulator: s = fmt::format("acc{}", e->number); break;
      case Op::local: s = fmt::format("local{}", e->number); break;
      case Op::cast: s = fmt::format("{}({})", name_of(e->dtype), arg(0)); break;
      case Op::bitcast: s = fmt::format("bitcast<{}>({})", name_of(e->dtype), arg(0)); break;
      case Op::round_to: s = fmt::format("round<{}>({})", name_of(e->format), arg(0)); break;
      default: {
        s = fmt::format("{}(", name_of(e->op));
        for (int i = 0; i < e->num_args; ++i) s += (i ? ", " : "") + arg(i);
        s += ")";
      }
    }
    bool leaf = e->op <= Op::index || e->op == Op::accumulator || e->op == Op::local;
    if (!leaf && e != root && uses[e] > 1) {
      lines += fmt::format("%{} = {}; ", next, s);
      s = fmt::format("%{}", next++);
    }
    text[e] = std::move(s);
  }
  return lines + text.at(root);
}

}  // namespace tbx::ir
