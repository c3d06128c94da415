#include "runtime/run_checks.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/shown.h"

namespace tbx::runtime {
namespace {

int64_t element_of(const RunTensor& t, int i) {
  int64_t v = t.dtype == DType::i64 ? static_cast<const int64_t*>(host_elements(t))[i]
                                    : static_cast<const int32_t*>(host_elements(t))[i];
  TBX_INTERNAL(v >= 0); // who made the plan looked at it
  return v;
}

int64_t value_of(const SymbolBinding& b, const RunTensor& t) {
  switch (b.of) {
  case SymbolBinding::Of::dim: return t.dims[b.dim];
  case SymbolBinding::Of::element: return element_of(t, b.dim);
  case SymbolBinding::Of::room: return t.room;
  }
  return -1;
}

/// " (batch = 2, seq = 7)": what a message that speaks of symbols is about in this run.
std::string values_in(const Executable& plan, const SizeExpr& e, std::span<const int64_t> symbols) {
  std::vector<std::string> texts;
  for (const SizeExpr::Item& item : e.items) {
    if (item.code != SizeExpr::Code::symbol) continue;
    std::string text = fmt::format("{} = {}", plan.symbol_names[static_cast<size_t>(item.value)],
                                   symbols[static_cast<size_t>(item.value)]);
    if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(std::move(text));
  }
  return texts.empty() ? "" : fmt::format(" ({})", fmt::join(texts, ", "));
}

} // namespace

void bind_symbols(const Executable& plan, std::span<const RunTensor> inputs, std::vector<int64_t>& symbols) {
  TBX_MODEL(inputs.size() == plan.inputs.size(), "{} inputs given, the model has {}", inputs.size(),
            plan.inputs.size());
  symbols.assign(plan.symbol_names.size(), -1);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const SignatureEntry& e = plan.inputs[i];
    TBX_MODEL(inputs[i].dtype == e.dtype, "input {} has type {}, expected {}", shown(e.name),
              name_of(inputs[i].dtype), name_of(e.dtype));
    TBX_MODEL(inputs[i].dims.size() == e.sizes.size(), "input {} has rank {}, expected {} [{}]",
              shown(e.name), inputs[i].dims.size(), e.sizes.size(), fmt::join(e.dims, ", "));
    for (int64_t d : inputs[i].dims) TBX_MODEL(d >= 0, "input {} has a dimension of {}", shown(e.name), d);
    TBX_MODEL(inputs[i].data != nullptr || checked_numel(inputs[i].dims) == 0, "input {} has no data",
              shown(e.name));
  }
  for (const SymbolBinding& b : plan.bindings)
    if (symbols[b.symbol] < 0) symbols[b.symbol] = value_of(b, inputs[b.input]);
}

void check_inputs(const Executable& plan, std::span<const RunTensor> inputs,
                  std::span<const int64_t> symbols) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const SignatureEntry& e = plan.inputs[i];
    for (size_t d = 0; d < e.sizes.size(); ++d) {
      int64_t want = e.sizes[d].evaluate(symbols);
      TBX_MODEL(inputs[i].dims[d] == want, "dimension {} of input {} is {}, expected {}{}", d, shown(e.name),
                inputs[i].dims[d], want,
                e.sizes[d].is_constant() ? "" : " (" + e.dims[d] + ", set by another input)");
    }
  }
  run_checks(plan, symbols, {});
}

void run_checks(const Executable& plan, std::span<const int64_t> symbols, std::span<const int> fresh) {
  for (const PlanCheck& check : plan.checks) {
    bool concerned =
        fresh.empty() ||
        std::any_of(check.value.items.begin(), check.value.items.end(), [&](const SizeExpr::Item& item) {
          return item.code == SizeExpr::Code::symbol &&
                 std::find(fresh.begin(), fresh.end(), item.value) != fresh.end();
        });
    if (!concerned) continue;
    bool known =
        std::all_of(check.value.items.begin(), check.value.items.end(), [&](const SizeExpr::Item& item) {
          return item.code != SizeExpr::Code::symbol || symbols[static_cast<size_t>(item.value)] >= 0;
        });
    if (!known) continue; // on data-dependent sizes: once the step that binds them has run
    int64_t v = 0;
    try {
      v = check.value.evaluate(symbols);
    } catch (Error& e) {
      e.set_where(check.where);
      throw;
    }
    bool holds = check.equal ? v == 0 : v >= 0;
    if (!holds && check.assumption) throw AssumptionError(ErrorKind::model, check.message);
    if (holds) continue;
    Error e(ErrorKind::model, check.message + values_in(plan, check.value, symbols));
    e.set_where(check.where);
    throw e;
  }
}

} // namespace tbx::runtime
