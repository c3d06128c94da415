#include "runtime/value_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/printable.h"

namespace tbx::runtime {

Failure Failure::of(const Error& e) { return {e.kind(), e.message(), e.hint(), e.where()}; }

Error Failure::error() const {
  Error e(kind, message, hint);
  if (!where.empty()) e.set_where(where);
  return e;
}

namespace {

class Printer {
public:
  std::string text;

  void print(const ValuePlan& plan, const std::string& indent) {
    for (const ValueEntry& e : plan.inputs)
      line(indent, "s{} = input {} '{}'", e.slot, e.type, printable(e.name, Lines::escaped));
    for (const auto& [slot, value] : plan.constants) line(indent, "s{} = constant", slot);
    for (const ValueStep& step : plan.steps) print(step, indent);
    for (const ValueEntry& e : plan.outputs)
      line(indent, "output s{} {} '{}'", e.slot, e.type, printable(e.name, Lines::escaped));
  }

private:
  template <class... A> void line(const std::string& indent, fmt::format_string<A...> f, A&&... a) {
    text += indent + fmt::format(f, std::forward<A>(a)...) + "\n";
  }

  static std::string slots(const std::vector<int>& list) {
    std::vector<std::string> names;
    names.reserve(list.size());
    for (int s : list) names.push_back(s < 0 ? "-" : fmt::format("s{}", s));
    return fmt::format("{}", fmt::join(names, ", "));
  }

  void print(const ValueStep& step, const std::string& indent) {
    std::string what = step.where;
    if (const auto* s = std::get_if<StageStep>(&step.what)) what = fmt::format("segment {}", s->stage);
    line(indent, "[{}] = {} [{}]", slots(step.outputs), what, slots(step.inputs));
    if (const auto* s = std::get_if<IfStep>(&step.what)) {
      body("then", s->then_branch, indent);
      body("else", s->else_branch, indent);
    } else if (const auto* s = std::get_if<LoopStep>(&step.what)) {
      body("body", s->body, indent);
    } else if (const auto* s = std::get_if<ScanStep>(&step.what)) {
      body("body", s->body, indent);
    } else if (const auto* s = std::get_if<SequenceMapStep>(&step.what)) {
      body("body", s->body, indent);
    } else if (const auto* s = std::get_if<GenerationStep>(&step.what)) {
      if (s->first.plan) body("first", s->first, indent);
      body("decoder", s->decoder, indent);
    }
  }

  void body(const char* what, const BodyCall& call, const std::string& indent) {
    if (call.failure) return line(indent, "  {} cannot run: {}", what, call.failure->message);
    line(indent, "  {} with [{}]", what, slots(call.captures));
    print(*call.plan, indent + "    ");
  }
};

} // namespace

std::string to_string(const ValuePlan& plan) {
  Printer printer;
  printer.print(plan, "");
  return std::move(printer.text);
}

} // namespace tbx::runtime
