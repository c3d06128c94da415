#include "extern_kernels/cuda/dnn_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/side_by_side.h"
#include "device/cuda/graph_zeros.h"

namespace tbx::extern_kernels::cuda::dnn {

using device::cuda::ContextOwner;
using device::cuda::Current;

std::shared_ptr<Owner> owner_of(const std::shared_ptr<const ContextOwner>& context) {
  // Handles stay to the end of the process: the library may be gone before a destructor of ours runs then.
  static std::mutex mutex;
  static auto* owners = new std::map<device::cuda::Context, std::shared_ptr<Owner>>;
  std::scoped_lock lock(mutex);
  std::shared_ptr<Owner>& owner = (*owners)[context->context()];
  if (!owner) {
    const Current current(*context);
    auto fresh = std::make_shared<Owner>();
    check(library().cudnnCreate(&fresh->handle), "cudnnCreate");
    owner = std::move(fresh);
  }
  return owner;
}

Owner::Lent::Lent(Owner& owner, int most, Wait wait) : owner_(owner) {
  {
    std::unique_lock lock(owner_.of_others_);
    auto is_free = [&] { return !owner_.others_.empty() || owner_.made_ < most; };
    if (wait == Wait::no && !is_free()) return;
    owner_.given_back_.wait(lock, is_free);
    if (!owner_.others_.empty()) {
      handle_ = owner_.others_.back();
      owner_.others_.pop_back();
      return;
    }
    ++owner_.made_;
  }
  const Status status = library().cudnnCreate(&handle_);
  if (status == 0) return;
  {
    std::scoped_lock lock(owner_.of_others_);
    --owner_.made_;
  }
  owner_.given_back_.notify_all(); // not all of them wait for the same number
  check(status, "cudnnCreate");
}

Owner::Lent::~Lent() {
  if (!handle_) return;
  {
    std::scoped_lock lock(owner_.of_others_);
    owner_.others_.push_back(handle_);
  }
  owner_.given_back_.notify_one();
}

Plans::Plans(std::shared_ptr<const ContextOwner> context, std::shared_ptr<Graph> graph, const PlanWish& wish)
    : context_(std::move(context)), owner_(owner_of(context_)), graph_(std::move(graph)), wish_(wish),
      problem_(fmt::format("{}, fills ahead, arithmetic {}, compiled {}, most {}\n{}", version(),
                           static_cast<int>(wish.arithmetic), wish.runtime_compiled, wish.most,
                           graph_->text())) {
  const Current current(*context_);
  recall();
  if (recalled_) return;
  const Owner::Lent lent(*owner_, most_handles());
  collect(lent.get());
}

constexpr std::string_view kOther = "another kernel", kJson = "plan ";

/// An answer is "another kernel", or "plan ENGINE JSON".
void Plans::recall() {
  std::string answer = kept_answer(*context_, problem_);
  if (answer == kOther) {
    measured_ = 0; // of no plans
    recalled_ = true;
  }
  if (!answer.starts_with(kJson)) return;
  const size_t space = answer.find(' ', kJson.size());
  if (space == std::string::npos) return;
  Plan plan;
  plan.engine = std::atoll(answer.c_str() + kJson.size());
  answer.erase(0, space + 1);
  plan.plan = std::make_unique<Object>(kPlan);
  const Library& l = library();
  int64_t count = 0;
  const Owner::Lent lent(*owner_, Owner::kForFoundPlans);
  plan.plan->set(kPlanHandle, kTypeHandle, lent.get());
  if (l.cudnnBackendSetAttribute(plan.plan->get(), kPlanJson, kTypeChar, static_cast<int64_t>(answer.size()),
                                 answer.data()) != 0 ||
      l.cudnnBackendFinalize(plan.plan->get()) != 0 ||
      l.cudnnBackendGetAttribute(plan.plan->get(), kPlanWorkspace, kTypeI64, 1, &count, &plan.workspace) != 0)
    return; // it is made again
  plans_.push_back(std::move(plan));
  measured_ = 0;
  recalled_ = true;
}

void Plans::keep() const {
  if (*measured_ == plans_.size()) return keep_answer(*context_, problem_, std::string(kOther));
  const Plan& plan = plans_[*measured_];
  const Library& l = library();
  int64_t size = 0;
  if (l.cudnnBackendGetAttribute(plan.plan->get(), kPlanJson, kTypeChar, 0, &size, nullptr) != 0 || size <= 0)
    return;
  std::string json(static_cast<size_t>(size), '\0');
  if (l.cudnnBackendGetAttribute(plan.plan->get(), kPlanJson, kTypeChar, size, &size, json.data()) != 0)
    return;
  keep_answer(*context_, problem_, fmt::format("{}{} {}", kJson, plan.engine, json));
}

void Plans::collect(Handle handle) {
  Object& all = graph_->finish(handle);
  collect(all, kHeurA, handle);
  if (plans_.empty()) collect(all, kHeurFallback, handle);
}

void Plans::collect(Object& graph, int mode, Handle handle) {
  constexpr int64_t kConfigs = 64;
  const Library& l = library();
  Object heuristics(kHeuristics);
  heuristics.set(kHeurGraph, graph);
  heuristics.set(kHeurMode, kTypeHeurMode, mode);
  if (l.cudnnBackendFinalize(heuristics.get()) != 0) return; // it knows none
  std::vector<std::shared_ptr<Object>> configs;
  std::vector<Descriptor> raw;
  for (int64_t i = 0; i < kConfigs; ++i) {
    configs.push_back(std::make_shared<Object>(kEngineConfig));
    raw.push_back(configs.back()->get());
  }
  int64_t found = 0;
  if (l.cudnnBackendGetAttribute(heuristics.get(), kHeurResults, kTypeDescriptor, kConfigs, &found,
                                 raw.data()) != 0)
    return;
  std::vector<Plan> candidates;
  for (int64_t i = 0; i < std::min(found, kConfigs); ++i) {
    Plan plan;
    const Object engine(kEngine);
    Descriptor e = engine.get();
    int64_t count = 0;
    if (l.cudnnBackendGetAttribute(raw[i], kConfigEngine, kTypeDescriptor, 1, &count, &e) != 0) continue;
    l.cudnnBackendGetAttribute(e, kEngineIndex, kTypeI64, 1, &count, &plan.engine);
    if (!may_be_taken(e)) continue;
    plan.config = std::move(configs[static_cast<size_t>(i)]);
    candidates.push_back(std::move(plan));
  }
  // Heuristics only guess: some of them cannot be made.
  for (size_t next = 0; next < candidates.size() && plans_.size() < wish_.most;) {
    const size_t count = std::min(candidates.size() - next, wish_.most - plans_.size());
    const std::span<Plan> now(candidates.data() + next, count);
    make(now, handle);
    for (Plan& plan : now)
      if (plan.plan) plans_.push_back(std::move(plan));
    next += count;
  }
}

bool Plans::may_be_taken(Descriptor engine) const {
  auto has = [&](int attribute, int type, int64_t most, std::initializer_list<int> wanted) {
    std::vector<int> notes(static_cast<size_t>(most));
    int64_t n = 0;
    if (library().cudnnBackendGetAttribute(engine, attribute, type, most, &n, notes.data()) != 0) return true;
    notes.resize(static_cast<size_t>(std::min(n, most)));
    return std::any_of(notes.begin(), notes.end(), [&](int note) {
      return std::find(wanted.begin(), wanted.end(), note) != wanted.end();
    });
  };
  if (!wish_.runtime_compiled &&
      has(kEngineBehaviorNote, kTypeBehaviorNote, kBehaviorNotes, {kNoteRuntimeCompiled}))
    return false;
  if (wish_.arithmetic != Arithmetic::free &&
      has(kEngineNumericalNote, kTypeNumericalNote, kNumericalNotes,
          {kNoteDownConvert, kNoteReducedSum, kNoteFft, kNoteWinograd}))
    return false;
  return wish_.arithmetic != Arithmetic::strict ||
         !has(kEngineNumericalNote, kTypeNumericalNote, kNumericalNotes, {kNoteTensorCore});
}

bool Plans::Plan::has_zeros() const {
  return workspace > 0 && workspace <= static_cast<int64_t>(device::cuda::kMostZeros);
}

bool Plans::Plan::make(Handle handle) {
  const Library& l = library();
  int64_t count = 0;
  auto made = std::make_unique<Object>(kPlan);
  made->set(kPlanHandle, kTypeHandle, handle);
  made->set(kPlanConfig, *config);
  if (l.cudnnBackendFinalize(made->get()) != 0) return false;
  l.cudnnBackendGetAttribute(made->get(), kPlanWorkspace, kTypeI64, 1, &count, &workspace);
  plan = std::move(made);
  return true;
}

/// Those that are compiled take up to a second each: every one has a thread.
void Plans::make(std::span<Plan> plans, Handle handle) {
  if (!wish_.runtime_compiled || plans.size() == 1) {
    for (Plan& plan : plans) plan.make(handle);
    return;
  }
  std::vector<char> done(plans.size(), 0); // of a plan's own thread
  rethrow_first(side_by_side(plans.size(), [&](size_t i) {
    const Current current(*context_);
    std::optional<Owner::Lent> lent;
    if (i > 0) lent.emplace(*owner_, most_handles(), Owner::Lent::Wait::no);
    Handle mine = lent ? lent->get() : handle;
    if (!mine) return; // all are lent to those who wait for theirs
    plans[i].make(mine);
    done[i] = 1;
  }));
  for (size_t i = 0; i < plans.size(); ++i)
    if (done[i] == 0) plans[i].make(handle);
}

int64_t Plans::workspace_bytes() const {
  std::scoped_lock lock(mutex_); // a run may have to look for plans
  int64_t most = 0;
  for (const Plan& p : plans_) most = std::max(most, p.workspace);
  return most;
}

void Plans::execute(size_t which, const Addresses& addresses, void* workspace) {
  std::vector<int64_t> ids;
  std::vector<const void*> pointers;
  for (const auto& [id, address] : addresses.of) {
    ids.push_back(id);
    pointers.push_back(address);
  }
  Object pack(kVariantPack);
  pack.set(kPackIds, ids);
  pack.set(kPackPointers, kTypePointer, static_cast<int64_t>(pointers.size()), pointers.data());
  pack.set(kPackWorkspace, kTypePointer, workspace);
  pack.finalize("operands of cuDNN");
  check(library().cudnnBackendExecute(owner_->handle, plans_[which].plan->get(), pack.get()),
        "cudnnBackendExecute");
}

bool Plans::run(const device::Stream& stream, const Addresses& addresses) {
  const Current current(*context_);
  const device::cuda::StreamHandle handle = device::cuda::handle_of(stream);
  std::scoped_lock lock(owner_->mutex, mutex_);
  check(library().cudnnSetStream(owner_->handle, handle), "cudnnSetStream");
  if (addresses.other) other_name_ = addresses.other_name;
  if (plans_.empty() && !addresses.other) { // an earlier process had another kernel
    measured_.reset();
    recalled_ = false;
    collect(owner_->handle);
    if (plans_.empty()) return false;
  }
  const size_t ways = plans_.size() + (addresses.other ? 1 : 0);
  if (!measured_ && measuring() && !device::cuda::is_capturing(stream)) {
    Addresses there = addresses;
    std::optional<Scratch> result;
    if (addresses.in_place >= 0) {
      result.emplace(addresses.in_place_bytes);
      for (auto& [id, address] : there.of)
        if (id == addresses.in_place) address = result->data();
    }
    const auto work = [&](size_t i) {
      if (i < plans_.size() && plans_[i].workspace > addresses.workspace_bytes) return false;
      try {
        if (i == plans_.size())
          addresses.other(there);
        else
          execute(i, there, there.workspace);
      } catch (const Error& e) {
        if (e.kind() == ErrorKind::internal) throw;
        return false; // another one will do
      }
      return true;
    };
    std::vector<Bytes> zeros(ways);
    for (size_t i = 0; i < plans_.size(); ++i)
      if (plans_[i].has_zeros()) zeros[i] = {addresses.workspace, static_cast<size_t>(plans_[i].workspace)};
    measured_ = ways == 1 ? 0 : fastest(handle, ways, addresses.hot, work, zeros);
    if (measured_) keep();
  }
  auto fits = [&](const Plan& p) { return p.workspace <= addresses.workspace_bytes; };
  size_t which = measured_.value_or(0);
  if (which == plans_.size()) {
    if (addresses.other) {
      addresses.other(addresses);
      return true;
    }
    which = 0;
  }
  if (!fits(plans_[which])) {
    const auto other = std::find_if(plans_.begin(), plans_.end(), fits);
    if (other == plans_.end()) return false;
    which = static_cast<size_t>(other - plans_.begin());
  }
  const Plan& plan = plans_[which];
  void* const own =
      plan.has_zeros() ? device::cuda::zeros_of_graph(stream, static_cast<size_t>(plan.workspace)) : nullptr;
  execute(which, addresses, own ? own : addresses.workspace);
  return true;
}

Found find_plans(const std::shared_ptr<const ContextOwner>& context, const PlanWish& wish,
                 const std::function<std::shared_ptr<Graph>()>& describe) {
  try {
    const Current current(*context);
    auto plans = std::make_shared<Plans>(context, describe(), wish);
    if (plans->empty()) return {nullptr, "the library has no plan"};
    return {std::move(plans), ""};
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::internal) throw;
    return {nullptr, e.message()};
  }
}

std::string Plans::description() const {
  std::scoped_lock lock(mutex_);
  const size_t which = measured_.value_or(0);
  const bool other = which == plans_.size();
  if (recalled_ && measured_)
    return fmt::format("{}, measured before",
                       other ? other_name_ : fmt::format("engine {}", plans_[which].engine));
  if (plans_.empty()) return "no plan";
  if (other) return fmt::format("{}, measured beside {} plans", other_name_, which);
  return fmt::format("engine {}, plan {} of {}{}", plans_[which].engine, which + 1, plans_.size(),
                     measured_ ? ", measured" : "");
}

} // namespace tbx::extern_kernels::cuda::dnn
