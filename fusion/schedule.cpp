#include "fusion/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "base/budget.h"
#include "base/error.h"
#include "base/stop.h"
#include "fusion/append_caches.h"
#include "fusion/build_kernel.h"
#include "fusion/carry_caches.h"
#include "fusion/dependencies.h"
#include "fusion/fold_operations.h"
#include "fusion/grouping.h"
#include "fusion/in_place.h"
#include "fusion/layout.h"
#include "fusion/natural_order.h"
#include "fusion/post_ops.h"
#include "fusion/rotate_heads.h"
#include "fusion/row_work.h"
#include "fusion/share_kernels.h"
#include "fusion/write_in_place.h"

namespace tbx::fusion {

using namespace ir;

namespace {

Group make_group(const Program& program, const Dependencies& deps, const SizeFacts& facts, Draft& draft) {
  Group group;
  std::vector<int> origins;
  for (const Member& m : draft.members) {
    const Operation& op = program.operations[m.op];
    origins.insert(origins.end(), op.origins.begin(), op.origins.end());
    if (!op.reason.empty()) draft.decisions.push_back(fmt::format("operation {}: {}", m.op, op.reason));
  }
  std::sort(origins.begin(), origins.end());
  origins.erase(std::unique(origins.begin(), origins.end()), origins.end());
  group.origins = std::move(origins);
  const Operation& first = program.operations[draft.members.front().op];
  if (const auto* call = std::get_if<ExternCall>(&first.what)) {
    group.what = *call;
    group.reads = deps.access[draft.first_op].reads;
    group.writes = deps.access[draft.first_op].writes;
  } else {
    KernelProgram kernel = build_kernel(program, deps, facts, draft);
    for (const KernelBuffer& b : kernel.buffers) {
      if (b.id < 0) continue;
      if (b.access != Access::write) group.reads.push_back(b.id);
      if (b.access != Access::read) group.writes.push_back(b.id);
    }
    group.what = std::move(kernel);
  }
  group.decisions = std::move(draft.decisions);
  return group;
}

} // namespace

/// What the steps work on.
struct ScheduleWork {
  Program program;
  const Target& target;
  const ScheduleOptions& options;
  Dependencies deps{};         ///< from group_operations on
  std::vector<Draft> drafts{}; ///< the same
  std::vector<Group> groups{}; ///< from build_kernels on
};

namespace {

bool wants_folding(const ScheduleOptions& options) { return options.fold_constants; }
bool wants_fusion(const ScheduleOptions& options) { return options.fuse; }
bool wants_extern_fusion(const ScheduleOptions& options) { return options.fuse_extern; }

/// What the checks say of sizes that are known before the first kernel. Another one may run before the checks
/// of sizes that are found while running.
SizeFacts facts_of(const Program& program) {
  SizeFacts facts;
  for (const Check& check : program.checks) {
    bool known = true;
    visit(check.value, [&](const SymNode& n) { known &= !n.unbacked; });
    if (known) facts.add(check);
  }
  return facts;
}

void build_groups(ScheduleWork& w) {
  const SizeFacts facts = facts_of(w.program);
  w.groups.reserve(w.drafts.size());
  for (Draft& draft : w.drafts) {
    check_stop_often();
    w.groups.push_back(make_group(w.program, w.deps, facts, draft));
  }
  w.program.operations.clear();
}

/// Every buffer is written before it is read, in an order that is fixed, by kernels that are sound.
void verify_groups(const Program& p, std::span<const Group> groups) {
  std::vector<bool> written(p.buffers.size(), false);
  for (const Buffer& b : p.buffers) {
    if (b.kind != BufferKind::computed) written[b.id] = true;
    TBX_INTERNAL(!b.is_flexible());
  }
  for (const Group& group : groups) {
    for (BufferId b : group.reads)
      TBX_INTERNAL(written[b] ||
                   std::find(group.writes.begin(), group.writes.end(), b) != group.writes.end());
    for (BufferId b : group.writes) written[b] = true;
    if (const auto* kernel = std::get_if<KernelProgram>(&group.what)) verify(*kernel);
  }
  for (const ProgramOutput& out : p.outputs) TBX_INTERNAL(written[owner_of(p, out.buffer)]);
}

} // namespace

std::span<const ScheduleStep> schedule_steps() {
  static constexpr std::array kSteps = {
      // First: nothing is decided for what nobody reads.
      ScheduleStep{"remove_dead_operations", "operations whose results nobody needs -> nothing",
                   [](ScheduleWork& w) { remove_dead_operations(w.program); }},
      ScheduleStep{"fold_operations", "operations over constants alone -> constants",
                   [](ScheduleWork& w) {
                     if (fold_operations(w.program) > 0) remove_dead_operations(w.program);
                   },
                   wants_folding},
      // Before fuse_post_ops: what is left of a nest that permutes may become work of the product before it.
      ScheduleStep{"keep_natural_order", "operands of products keep the order they were computed in",
                   [](ScheduleWork& w) { keep_natural_order(w.program); }, wants_extern_fusion},
      // Before assign_layouts: which order a buffer gets depends on who reads it.
      ScheduleStep{"fuse_post_ops", "f(product) -> product that computes f, where the library can",
                   [](ScheduleWork& w) { fuse_post_ops(w.program, w.target); }, wants_extern_fusion},
      // Behind fuse_post_ops: what a library does of it, it does for any number of rows.
      ScheduleStep{"fuse_row_work", "norm, product of one row, gate -> one product, for a GPU",
                   [](ScheduleWork& w) { fuse_row_work(w.program, w.target); }, wants_extern_fusion},
      ScheduleStep{"assign_layouts", "fixes the memory order of every buffer",
                   [](ScheduleWork& w) { assign_layouts(w.program); }},
      // Behind assign_layouts: what attention takes over needs no other order any more.
      ScheduleStep{"carry_caches", "cache copied to be longer, then read by attention -> attention copies it",
                   [](ScheduleWork& w) {
                     if (!w.target.cuda) carry_caches(w.program);
                   },
                   wants_extern_fusion},
      // The same.
      ScheduleStep{"append_caches", "token appended to a state, then attention -> attention, for a GPU",
                   [](ScheduleWork& w) {
                     if (w.target.cuda) append_caches(w.program);
                   },
                   wants_extern_fusion},
      // Behind append_caches: the attention that stores the new key rotates it.
      ScheduleStep{"rotate_heads", "rotation of query and new key -> the attention that appends, for a GPU",
                   [](ScheduleWork& w) {
                     if (w.target.cuda) rotate_heads(w.program);
                   },
                   wants_extern_fusion},
      // Behind assign_layouts, which adds copies: they may join a kernel.
      ScheduleStep{"group_operations", "decides which loop nests become one kernel, and their order",
                   [](ScheduleWork& w) {
                     w.deps = analyse(w.program);
                     w.drafts = group_operations(w.program, w.deps, w.target, w.options);
                   }},
      // Behind what fixes layouts and order: both say whether a tensor dies there.
      ScheduleStep{
          "add_in_place", "product + x -> product added in the memory of x, which nobody reads later",
          [](ScheduleWork& w) { add_in_place(w.program, w.deps, w.drafts, w.target); }, wants_extern_fusion},
      ScheduleStep{"build_kernels", "each group -> one kernel of rows and phases, or one library call",
                   build_groups},
      // Behind build_kernels, which leaves the same numbers to equal kernels.
      ScheduleStep{"share_kernels", "kernels that differ in factors alone -> one, which loads them, on a GPU",
                   [](ScheduleWork& w) {
                     if (w.target.cuda) share_kernels(w.program, w.groups);
                   },
                   wants_fusion},
      // Last: it looks at the addresses of kernels.
      ScheduleStep{"write_in_place", "kernel that reads x for the last time -> its result in the memory of x",
                   [](ScheduleWork& w) {
                     if (!w.target.cuda) write_in_place(w.program, w.target, w.deps, w.groups);
                   },
                   wants_fusion},
  };
  return kSteps;
}

Schedule schedule(Program program, const Target& target, const ScheduleOptions& options,
                  std::vector<std::pair<std::string, double>>* times) {
  ScheduleWork work{std::move(program), target, options};
  for (const ScheduleStep& step : schedule_steps()) {
    const bool disabled = std::count(options.disabled.begin(), options.disabled.end(), step.name) > 0;
    if (step.wanted && (disabled || !step.wanted(options))) continue;
    check_stop();
    const auto start = std::chrono::steady_clock::now();
    step.run(work);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    if (times) times->emplace_back(step.name, took.count());
    if (!options.verify_steps) continue;
    try {
      if (work.groups.empty())
        verify(work.program);
      else
        verify_groups(work.program, work.groups);
    } catch (Error& e) {
      e.set_where(fmt::format("after step '{}' of the schedule", step.name));
      throw;
    }
  }
  Schedule result{std::move(work.program), std::move(work.groups)};
  verify(result);
  return result;
}

std::string to_string(const Schedule& schedule) {
  std::string out;
  for (size_t g = 0; g < schedule.groups.size(); ++g) {
    const Group& group = schedule.groups[g];
    out += fmt::format("group {} reads [{}] writes [{}]\n", g, fmt::join(group.reads, ", "),
                       fmt::join(group.writes, ", "));
    if (const auto* kernel = std::get_if<KernelProgram>(&group.what)) {
      out += to_string(*kernel);
    } else {
      out += "  " + extern_kernels::to_string(std::get<ExternCall>(group.what).problem) + "\n";
    }
  }
  return out;
}

void verify(const Schedule& schedule) { verify_groups(schedule.program, schedule.groups); }

} // namespace tbx::fusion
