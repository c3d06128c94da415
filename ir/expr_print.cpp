// Text of Expr DAGs.
#include <fmt/format.h>

#include <unordered_map>

#include "ir/context_impl.h"
#include "ir/expr.h"

namespace tbx::ir {
namespace {

/// Longer texts get a name, so that chains of thousands of nodes print in linear time.
constexpr size_t kLongText = 400;

std::string constant_text(Expr e) {
  if (e->dtype == DType::boolean) return e->as_int() ? "true" : "false";
  if (e->dtype == DType::f32) return fmt::format("{}f", static_cast<float>(e->as_double()));
  if (e->dtype == DType::f64) return fmt::format("{}", e->as_double());
  if (e->dtype == DType::u64) return fmt::format("{}u", static_cast<uint64_t>(e->as_int()));
  return fmt::format("{}", e->as_int());
}

class Printer {
public:
  std::string print(Expr root) {
    std::vector<Expr> order;
    visit(root, [&](Expr e) {
      order.push_back(e);
      for (int i = 0; i < e->num_args; ++i) ++uses_[e->args[i]];
      for (SymInt index : e->indices)
        index_to_string(index, [&](const SymNode& n) {
          ++uses_[n.value];
          return std::string();
        });
    });
    for (Expr e : order) {
      std::string s = text_of(e);
      bool leaf = e->op <= Op::index || e->op == Op::accumulator || e->op == Op::local;
      if (e != root && (s.size() > kLongText || (!leaf && uses_[e] > 1))) {
        lines_ += fmt::format("%{} = {}; ", next_, s);
        s = fmt::format("%{}", next_++);
      }
      text_[e] = std::move(s);
    }
    return lines_ + text_.at(root);
  }

private:
  std::string index_text(SymInt e) {
    return index_to_string(e, [&](const SymNode& n) {
      return fmt::format("[{} < {}]", text_.at(n.value), index_text(n.args[0]));
    });
  }

  std::string text_of(Expr e) {
    auto arg = [&](int i) -> const std::string& { return text_.at(e->args[i]); };
    switch (e->op) {
    case Op::constant: return constant_text(e);
    case Op::index: return index_text(e->indices[0]);
    case Op::load: {
      std::string at;
      for (SymInt i : e->indices) at += (at.empty() ? "" : ", ") + index_text(i);
      return fmt::format("load(b{}, [{}]{})", e->buffer, at, e->mask() ? " if " + arg(0) : "");
    }
    case Op::accumulator: return fmt::format("acc{}", e->number);
    case Op::local: return fmt::format("local{}", e->number);
    case Op::cast: return fmt::format("{}({})", name_of(e->dtype), arg(0));
    case Op::bitcast: return fmt::format("bitcast<{}>({})", name_of(e->dtype), arg(0));
    case Op::round_to: return fmt::format("round<{}>({})", name_of(e->format), arg(0));
    default: break;
    }
    std::string s = fmt::format("{}(", name_of(e->op));
    for (int i = 0; i < e->num_args; ++i) s += (i ? ", " : "") + arg(i);
    return s + ")";
  }

  std::unordered_map<Expr, int> uses_;
  std::unordered_map<Expr, std::string> text_;
  std::string lines_;
  int next_ = 0;
};

} // namespace

std::string to_string(Expr root) { return Printer().print(root); }

} // namespace tbx::ir
