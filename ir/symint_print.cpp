// Text of SymInt expressions.
#include <fmt/format.h>

#include "ir/symint_impl.h"

namespace tbx::ir {
namespace {

// Shared parts are printed in full each time, so the text of a DAG has no useful bound of its own.
constexpr size_t kMaxText = 64 << 10;

class Printer {
public:
  using IndirectText = std::function<std::string(const SymNode&)>;
  explicit Printer(const IndirectText& indirect) : indirect_(indirect) {}

  std::string text;

  void print(SymInt e) {
    if (text.size() > kMaxText) return;
    if (e.is_constant()) {
      fmt::format_to(std::back_inserter(text), "{}", e.constant());
    } else {
      print(*e.node());
    }
  }

private:
  void print(const SymNode& n) {
    switch (n.kind) {
    case SymKind::symbol: text += n.name; return;
    case SymKind::var: text += fmt::format("i{}", n.number); return;
    case SymKind::rvar: text += fmt::format("r{}", n.number); return;
    case SymKind::indirect: text += indirect_(n); return;
    case SymKind::add: print_sum(n); return;
    case SymKind::mul: print_product(n); return;
    case SymKind::floordiv: print_operands(n, "//"); return;
    case SymKind::mod: print_operands(n, "%"); return;
    case SymKind::min: print_call(n, "min("); return;
    case SymKind::max: print_call(n, "max("); return;
    }
  }

  void print_sum(const SymNode& n) {
    bool first = true;
    for (auto [coefficient, term] : n.terms) {
      if (!first) text += coefficient < 0 ? " - " : " + ";
      if (first && coefficient < 0) text += "-";
      auto size = static_cast<uint64_t>(coefficient);
      if (coefficient < 0) size = 0 - size;
      bool is_division = term->kind == SymKind::floordiv || term->kind == SymKind::mod;
      if (size != 1) {
        fmt::format_to(std::back_inserter(text), "{}*", size);
        print_wrapped(SymInt(term), is_division);
      } else {
        print_wrapped(SymInt(term), is_division && first && coefficient < 0);
      }
      first = false;
    }
    if (n.constant != 0) text += n.constant < 0 ? " - " : " + ";
    auto size = static_cast<uint64_t>(n.constant);
    if (n.constant < 0) size = 0 - size;
    if (n.constant != 0) fmt::format_to(std::back_inserter(text), "{}", size);
  }

  void print_product(const SymNode& n) {
    for (size_t i = 0; i < n.args.size(); ++i) {
      if (i) text += "*";
      SymKind kind = n.args[i].node()->kind;
      print_wrapped(n.args[i], kind == SymKind::add || kind == SymKind::floordiv || kind == SymKind::mod);
    }
  }

  void print_operands(const SymNode& n, const char* op) {
    for (int i = 0; i < 2; ++i) {
      if (i) text += op;
      SymInt x = n.args[i];
      bool wrap = x.is_constant() ? x.constant() < 0
                                  : x.node()->kind == SymKind::add || x.node()->kind == SymKind::mul ||
                                        x.node()->kind == SymKind::floordiv || x.node()->kind == SymKind::mod;
      print_wrapped(x, wrap);
    }
  }

  void print_call(const SymNode& n, const char* name) {
    text += name;
    print(n.args[0]);
    text += ", ";
    print(n.args[1]);
    text += ")";
  }

  void print_wrapped(SymInt x, bool wrap) {
    if (wrap) text += "(";
    print(x);
    if (wrap) text += ")";
  }

  const IndirectText& indirect_;
};

} // namespace

std::string index_to_string(SymInt e, const std::function<std::string(const SymNode&)>& indirect) {
  Printer p(indirect);
  p.print(e);
  if (p.text.size() > kMaxText) p.text.replace(kMaxText, std::string::npos, "...");
  return p.text;
}

std::string to_string(SymInt e) {
  return index_to_string(
      e, [](const SymNode& n) { return fmt::format("[{} < {}]", to_string(n.value), to_string(n.args[0])); });
}

std::string to_string(std::span<const SymInt> xs) {
  std::string s = "[";
  for (size_t i = 0; i < xs.size(); ++i) s += (i ? ", " : "") + to_string(xs[i]);
  return s + "]";
}

} // namespace tbx::ir
