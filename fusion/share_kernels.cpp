#include "fusion/share_kernels.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

namespace tbx::fusion {

using namespace ir;

namespace {

constexpr size_t kFewest = 3; ///< kernels that are worth a load of what is in the text of one

bool takes_factors(Op op) { return op == Op::add || op == Op::sub || op == Op::mul || op == Op::div; }

/// Constants of a kernel that may be loaded instead, in the order of their first use: no other operation
/// reads them.
std::vector<Expr> factors_of(const KernelProgram& kernel) {
  std::vector<Expr> found;
  std::unordered_map<Expr, bool> fits;
  auto is_factor = [](Expr e) {
    return e->op == Op::constant && e->dtype == DType::f32 && std::isfinite(e->as_double());
  };
  for (const Phase& phase : kernel.phases)
    for (const Stmt& s : phase.stmts) {
      const std::vector<Expr> values = values_of(s);
      for (Expr e : values) fits[e] = false;
      visit(values, [&](Expr e) {
        for (Expr arg : e->args) {
          if (!arg || !is_factor(arg)) continue;
          const auto [it, is_new] = fits.emplace(arg, true);
          if (is_new) found.push_back(arg);
          it->second = it->second && takes_factors(e->op);
        }
      });
    }
  std::erase_if(found, [&](Expr e) { return !fits[e]; });
  return found;
}

/// The kernel with loads of elements 0, 1, ... of one more buffer in place of `factors`.
KernelProgram with_loads(const KernelProgram& kernel, std::span<const Expr> factors, BufferId id) {
  KernelProgram shared = kernel;
  const int buffer = static_cast<int>(shared.buffers.size());
  shared.buffers.push_back({.id = id, .dtype = DType::f32, .numel = static_cast<int64_t>(factors.size())});
  std::unordered_map<Expr, Expr> loads;
  for (size_t i = 0; i < factors.size(); ++i)
    loads[factors[i]] = kernel.context->load(buffer, DType::f32, {static_cast<int64_t>(i)});
  auto loaded = [&](Expr e) {
    if (!e) return e;
    return rewrite(e, [&](Expr n) {
      const auto it = loads.find(n);
      return it == loads.end() ? n : it->second;
    });
  };
  for (Phase& phase : shared.phases)
    for (Stmt& s : phase.stmts) s.value = loaded(s.value), s.mask = loaded(s.mask);
  return shared;
}

/// What kernels have in common that differ in their factors alone.
std::string form_of(const KernelProgram& kernel, std::span<const Expr> factors) {
  KernelProgram form = with_loads(kernel, factors, 0);
  for (KernelBuffer& b : form.buffers) b.id = b.access == Access::row_local ? -1 : 0;
  return to_string(form);
}

struct Candidate {
  Group* group;
  std::vector<Expr> factors;
};

BufferId constant_of(Program& program, std::span<const Expr> factors) {
  Tensor t = Tensor::make(DType::f32, {static_cast<int64_t>(factors.size())});
  for (size_t i = 0; i < factors.size(); ++i)
    t.as_mutable<float>()[i] = static_cast<float>(factors[i]->as_double());
  return program.add_constant(std::make_shared<const Tensor>(std::move(t)), "");
}

} // namespace

void share_kernels(Program& program, std::span<Group> groups) {
  std::map<std::string, std::vector<Candidate>> alike;
  for (Group& group : groups) {
    const auto* kernel = std::get_if<KernelProgram>(&group.what);
    if (!kernel) continue;
    std::vector<Expr> factors = factors_of(*kernel);
    if (factors.empty()) continue;
    const std::string form = form_of(*kernel, factors);
    alike[form].push_back({&group, std::move(factors)});
  }
  for (auto& [form, candidates] : alike) {
    const std::vector<Expr>& first = candidates.front().factors;
    std::vector<size_t> differ;
    for (size_t i = 0; i < first.size(); ++i)
      if (std::any_of(candidates.begin(), candidates.end(),
                      [&](const Candidate& c) { return c.factors[i]->bits != first[i]->bits; }))
        differ.push_back(i);
    if (candidates.size() < kFewest || differ.empty()) continue;
    for (const Candidate& c : candidates) {
      std::vector<Expr> factors;
      factors.reserve(differ.size());
      for (size_t i : differ) factors.push_back(c.factors[i]);
      const BufferId id = constant_of(program, factors);
      auto& kernel = std::get<KernelProgram>(c.group->what);
      kernel = with_loads(kernel, factors, id);
      c.group->reads.push_back(id);
    }
  }
}

} // namespace tbx::fusion
