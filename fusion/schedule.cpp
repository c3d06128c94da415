#include "fusion/schedule.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/budget.h"
#include "base/error.h"
#include "fusion/build_kernel.h"
#include "fusion/dependencies.h"
#include "fusion/fold_operations.h"
#include "fusion/grouping.h"
#include "fusion/in_place.h"
#include "fusion/layout.h"
#include "fusion/natural_order.h"
#include "fusion/post_ops.h"

namespace tbx::fusion {

using namespace ir;

namespace {

Group make_group(const Program& program, const Dependencies& deps, Draft& draft) {
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
    KernelProgram kernel = build_kernel(program, deps, draft);
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

Schedule schedule(Program program, const Target& target, const ScheduleOptions& options) {
  remove_dead_operations(program);
  if (options.fold_constants && fold_operations(program) > 0) remove_dead_operations(program);
  if (options.fuse_extern) {
    keep_natural_order(program);
    fuse_post_ops(program, target.cuda);
  }
  assign_layouts(program, options);
  Dependencies deps = analyse(program);
  std::vector<Draft> drafts = group_operations(program, deps, target, options);
  if (options.fuse_extern) add_in_place(program, deps, drafts, target.cuda);
  Schedule result;
  result.groups.reserve(drafts.size());
  for (Draft& draft : drafts) {
    check_stop_often();
    result.groups.push_back(make_group(program, deps, draft));
  }
  program.operations.clear();
  result.program = std::move(program);
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

void verify(const Schedule& schedule) {
  const Program& p = schedule.program;
  std::vector<bool> written(p.buffers.size(), false);
  for (const Buffer& b : p.buffers) {
    if (b.kind != BufferKind::computed) written[b.id] = true;
    TBX_INTERNAL(!b.is_flexible());
  }
  for (const Group& group : schedule.groups) {
    for (BufferId b : group.reads)
      TBX_INTERNAL(written[b] ||
                   std::find(group.writes.begin(), group.writes.end(), b) != group.writes.end());
    for (BufferId b : group.writes) written[b] = true;
    if (const auto* kernel = std::get_if<KernelProgram>(&group.what)) verify(*kernel);
  }
  for (const ProgramOutput& out : p.outputs) TBX_INTERNAL(written[owner_of(p, out.buffer)]);
}

} // namespace tbx::fusion
