#include "extern_kernels/cuda/dnn_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

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

Object::Object(int type) {
  check(library().cudnnBackendCreateDescriptor(type, &descriptor_), "making a cuDNN descriptor");
}
Object::~Object() { library().cudnnBackendDestroyDescriptor(descriptor_); }
void Object::set(int attribute, int type, int64_t count, const void* values) {
  check(library().cudnnBackendSetAttribute(descriptor_, attribute, type, count, values),
        "describing an operation to cuDNN");
}
void Object::set(int attribute, const Object& object) { set(attribute, kTypeDescriptor, object.get()); }
void Object::set(int attribute, const std::vector<int64_t>& values) {
  set(attribute, kTypeI64, static_cast<int64_t>(values.size()), values.data());
}
void Object::finalize(const char* what) { check(library().cudnnBackendFinalize(descriptor_), what); }

Object& Graph::add(int type) { return objects_.emplace_back(type); }

Object& Graph::tensor(int64_t id, int type, const std::vector<int64_t>& sizes,
                      const std::vector<int64_t>& strides, int64_t align) {
  Object& t = add(kTensor);
  t.set(kTensorId, kTypeI64, id);
  t.set(kTensorType, kTypeDataType, type);
  t.set(kTensorSizes, sizes);
  t.set(kTensorStrides, strides);
  t.set(kTensorAlign, kTypeI64, align);
  t.finalize("a tensor of cuDNN");
  return t;
}

Object& Graph::inner(int type, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  Object& t = add(kTensor);
  t.set(kTensorId, kTypeI64, next_inner_++);
  t.set(kTensorType, kTypeDataType, type);
  t.set(kTensorSizes, sizes);
  t.set(kTensorStrides, strides);
  t.set(kTensorAlign, kTypeI64, int64_t{16});
  t.set(kTensorVirtual, kTypeBool, true);
  t.finalize("a tensor of cuDNN");
  return t;
}

Object& Graph::scalar(int64_t id) {
  Object& t = add(kTensor);
  t.set(kTensorId, kTypeI64, id);
  t.set(kTensorType, kTypeDataType, kF32);
  t.set(kTensorSizes, std::vector<int64_t>(4, 1));
  t.set(kTensorStrides, std::vector<int64_t>(4, 1));
  t.set(kTensorAlign, kTypeI64, int64_t{4});
  t.set(kTensorByValue, kTypeBool, true);
  t.finalize("a scalar of cuDNN");
  return t;
}

void Graph::convolution(const Convolution& c, const Object& x, const Object& w, const Object& y) {
  Object& d = add(kConvolution);
  d.set(kConvRank, kTypeI64, static_cast<int64_t>(c.strides.size()));
  d.set(kConvCompute, kTypeDataType, kF32);
  d.set(kConvMode, kTypeConvMode, kCrossCorrelation);
  d.set(kConvPre, c.pads_begin);
  d.set(kConvPost, c.pads_end);
  d.set(kConvDilations, c.dilations);
  d.set(kConvStrides, c.strides);
  d.finalize("a convolution of cuDNN");
  Object& o = add(c.backward ? kBackwardData : kForward);
  o.set(c.backward ? kBackwardDy : kForwardX, x);
  o.set(c.backward ? kBackwardW : kForwardW, w);
  o.set(c.backward ? kBackwardDx : kForwardY, y);
  o.set(c.backward ? kBackwardConv : kForwardConv, d);
  o.set(c.backward ? kBackwardAlpha : kForwardAlpha, kTypeF32, 1.0f);
  o.set(c.backward ? kBackwardBeta : kForwardBeta, kTypeF32, 0.0f);
  o.finalize("a convolution of cuDNN");
  operations_.push_back(o.get());
}

void Graph::pointwise(int mode, const Object& x, const Object* b, const Object& y, const Object* condition,
                      int precision, int64_t axis) {
  Object& d = add(kPointwise);
  d.set(kPointwiseMode, kTypePointwiseMode, mode);
  d.set(kPointwisePrecision, kTypeDataType, precision);
  if (axis >= 0) d.set(kPointwiseAxis, kTypeI64, axis);
  d.finalize("an elementwise operation of cuDNN");
  Object& o = add(kPointwiseOperation);
  o.set(kPointwiseOp, d);
  o.set(kPointwiseX, x);
  if (b) o.set(kPointwiseB, *b);
  if (condition) o.set(kPointwiseT, *condition);
  o.set(kPointwiseY, y);
  o.finalize("an elementwise operation of cuDNN");
  operations_.push_back(o.get());
}

void Graph::reduction(int operation, const Object& x, const Object& y) {
  Object& d = add(kReduction);
  d.set(kReductionOperator, kTypeReduction, operation);
  d.set(kReductionCompute, kTypeDataType, kF32);
  d.finalize("a reduction of cuDNN");
  Object& o = add(kReductionOperation);
  o.set(kReductionX, x);
  o.set(kReductionY, y);
  o.set(kReductionDesc, d);
  o.finalize("a reduction of cuDNN");
  operations_.push_back(o.get());
}

void Graph::product(const Object& a, const Object& b, const Object& c) {
  Object& d = add(kMatmul);
  d.set(kMatmulCompute, kTypeDataType, kF32);
  d.finalize("a product of cuDNN");
  Object& o = add(kMatmulOperation);
  o.set(kMatmulA, a);
  o.set(kMatmulB, b);
  o.set(kMatmulC, c);
  o.set(kMatmulDesc, d);
  o.finalize("a product of cuDNN");
  operations_.push_back(o.get());
}

Object& Graph::finish(Handle handle) {
  Object& g = add(kGraph);
  g.set(kGraphHandle, kTypeHandle, handle);
  g.set(kGraphOps, kTypeDescriptor, static_cast<int64_t>(operations_.size()), operations_.data());
  g.finalize("a graph of cuDNN");
  return g;
}

Plans::Plans(std::shared_ptr<const ContextOwner> context, std::shared_ptr<Graph> graph, const PlanWish& wish)
    : context_(std::move(context)), owner_(owner_of(context_)), graph_(std::move(graph)) {
  const Current current(*context_);
  std::scoped_lock lock(owner_->mutex);
  Object& all = graph_->finish(owner_->handle);
  collect(all, kHeurA, wish);
  if (plans_.empty()) collect(all, kHeurFallback, wish);
}

void Plans::collect(Object& graph, int mode, const PlanWish& wish) {
  constexpr int64_t kConfigs = 64;
  const Library& l = library();
  Object heuristics(kHeuristics);
  heuristics.set(kHeurGraph, graph);
  heuristics.set(kHeurMode, kTypeHeurMode, mode);
  if (l.cudnnBackendFinalize(heuristics.get()) != 0) return; // it knows none
  std::vector<std::unique_ptr<Object>> configs;
  std::vector<Descriptor> raw;
  for (int64_t i = 0; i < kConfigs; ++i) {
    configs.push_back(std::make_unique<Object>(kEngineConfig));
    raw.push_back(configs.back()->get());
  }
  int64_t found = 0;
  if (l.cudnnBackendGetAttribute(heuristics.get(), kHeurResults, kTypeDescriptor, kConfigs, &found,
                                 raw.data()) != 0)
    return;
  for (int64_t i = 0; i < std::min(found, kConfigs) && plans_.size() < wish.most; ++i) {
    Plan plan;
    const Object engine(kEngine);
    Descriptor e = engine.get();
    int64_t count = 0;
    if (l.cudnnBackendGetAttribute(raw[i], kConfigEngine, kTypeDescriptor, 1, &count, &e) != 0) continue;
    l.cudnnBackendGetAttribute(e, kEngineIndex, kTypeI64, 1, &count, &plan.engine);
    auto has = [&](int attribute, int type, int64_t most, std::initializer_list<int> wanted) {
      std::vector<int> notes(static_cast<size_t>(most));
      int64_t n = 0;
      if (l.cudnnBackendGetAttribute(e, attribute, type, most, &n, notes.data()) != 0) return true;
      notes.resize(static_cast<size_t>(std::min(n, most)));
      return std::any_of(notes.begin(), notes.end(), [&](int note) {
        return std::find(wanted.begin(), wanted.end(), note) != wanted.end();
      });
    };
    if (!wish.runtime_compiled &&
        has(kEngineBehaviorNote, kTypeBehaviorNote, kBehaviorNotes, {kNoteRuntimeCompiled}))
      continue;
    if (wish.arithmetic != Arithmetic::free &&
        has(kEngineNumericalNote, kTypeNumericalNote, kNumericalNotes,
            {kNoteDownConvert, kNoteReducedSum, kNoteFft, kNoteWinograd}))
      continue;
    if (wish.arithmetic == Arithmetic::strict &&
        has(kEngineNumericalNote, kTypeNumericalNote, kNumericalNotes, {kNoteTensorCore}))
      continue;
    plan.config = std::move(configs[static_cast<size_t>(i)]);
    plan.plan = std::make_unique<Object>(kPlan);
    plan.plan->set(kPlanHandle, kTypeHandle, owner_->handle);
    plan.plan->set(kPlanConfig, *plan.config);
    if (l.cudnnBackendFinalize(plan.plan->get()) != 0) continue; // heuristics only guess
    l.cudnnBackendGetAttribute(plan.plan->get(), kPlanWorkspace, kTypeI64, 1, &count, &plan.workspace);
    plans_.push_back(std::move(plan));
  }
}

int64_t Plans::workspace_bytes() const {
  int64_t most = 0;
  for (const Plan& p : plans_) most = std::max(most, p.workspace);
  return most;
}

void Plans::execute(size_t which, const Addresses& addresses) {
  std::vector<int64_t> ids;
  std::vector<const void*> pointers;
  for (const auto& [id, address] : addresses.of) {
    ids.push_back(id);
    pointers.push_back(address);
  }
  Object pack(kVariantPack);
  pack.set(kPackIds, ids);
  pack.set(kPackPointers, kTypePointer, static_cast<int64_t>(pointers.size()), pointers.data());
  pack.set(kPackWorkspace, kTypePointer, addresses.workspace);
  pack.finalize("operands of cuDNN");
  check(library().cudnnBackendExecute(owner_->handle, plans_[which].plan->get(), pack.get()),
        "cudnnBackendExecute");
}

bool Plans::run(const device::Stream& stream, const Addresses& addresses) {
  const Current current(*context_);
  const device::cuda::StreamHandle handle = device::cuda::handle_of(stream);
  std::scoped_lock lock(owner_->mutex, mutex_);
  check(library().cudnnSetStream(owner_->handle, handle), "cudnnSetStream");
  const size_t ways = plans_.size() + (addresses.other ? 1 : 0);
  if (addresses.other) other_name_ = addresses.other_name;
  if (!measured_ && ways > 1 && measuring() && !device::cuda::is_capturing(stream)) {
    Addresses there = addresses;
    std::optional<Scratch> result;
    if (addresses.in_place >= 0) {
      result.emplace(addresses.in_place_bytes);
      for (auto& [id, address] : there.of)
        if (id == addresses.in_place) address = result->data();
    }
    measured_ = fastest(handle, ways, addresses.hot, [&](size_t i) {
      if (i < plans_.size() && plans_[i].workspace > addresses.workspace_bytes) return false;
      try {
        if (i == plans_.size())
          addresses.other(there);
        else
          execute(i, there);
      } catch (const Error& e) {
        if (e.kind() == ErrorKind::internal) throw;
        return false; // another one will do
      }
      return true;
    });
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
  execute(which, addresses);
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
  if (plans_.empty()) return "no plan";
  if (which == plans_.size()) return fmt::format("{}, measured beside {} plans", other_name_, which);
  return fmt::format("engine {}, plan {} of {}{}", plans_[which].engine, which + 1, plans_.size(),
                     measured_ ? ", measured" : "");
}

} // namespace tbx::extern_kernels::cuda::dnn
