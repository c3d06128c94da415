#include "extern_kernels/cuda/gemm.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>

#include "base/error.h"

namespace tbx::extern_kernels::cuda {

namespace {

using device::cuda::ContextOwner;
using device::cuda::Current;

constexpr size_t kMostWorkspace = size_t{32} << 20;
constexpr int kCandidates = 8; ///< the first is up to a third slower than the best of them

int64_t element_bytes(int type) {
  switch (type) {
  case lt::kF64: return 8;
  case lt::kF32:
  case lt::kI32: return 4;
  case lt::kI8: return 1;
  default: return 2;
  }
}

/// The library counts columns first: it computes the transposed result from transposed operands, b's first.
lt::Layout* make_layout(int type, int64_t rows, int64_t columns, int64_t step, int64_t batch,
                        int64_t offset) {
  lt::Layout* l = nullptr;
  lt::check(lt::library().cublasLtMatrixLayoutCreate(&l, type, static_cast<uint64_t>(rows),
                                                     static_cast<uint64_t>(columns), step),
            "cublasLtMatrixLayoutCreate");
  if (batch > 1) {
    const auto count = static_cast<int32_t>(batch);
    lt::library().cublasLtMatrixLayoutSetAttribute(l, lt::kBatchCount, &count, sizeof count);
    lt::library().cublasLtMatrixLayoutSetAttribute(l, lt::kBatchOffset, &offset, sizeof offset);
  }
  return l;
}

} // namespace

Bytes left_of(const Gemm& g, const GemmAddresses& at) {
  const int64_t elements = g.a_columns ? (g.k - 1) * g.a_step + g.m : (g.m - 1) * g.a_step + g.k;
  return {at.a, static_cast<size_t>(elements * element_bytes(g.type))};
}

int alignment_of(const void* address) {
  const auto value = reinterpret_cast<uintptr_t>(address) | 16; // no kernel wants more
  return static_cast<int>(value & -value);
}

GemmPlan::GemmPlan(std::shared_ptr<const ContextOwner> context, lt::Handle handle, const Gemm& g)
    : context_(std::move(context)), handle_(handle), gemm_(g) {
  const lt::Library& l = lt::library();
  a_ = g.a_columns ? make_layout(g.type, g.m, g.k, g.a_step, g.batch, g.a_batch)
                   : make_layout(g.type, g.k, g.m, g.a_step, g.batch, g.a_batch);
  b_ = g.b_columns ? make_layout(g.type, g.k, g.n, g.b_step, g.batch, g.b_batch)
                   : make_layout(g.type, g.n, g.k, g.b_step, g.batch, g.b_batch);
  c_ = make_layout(g.result, g.n, g.m, g.c_step, g.batch, g.c_batch);
  residual_ = g.residual ? make_layout(g.result, g.n, g.m, g.residual_step, g.batch, g.residual_batch)
                         : make_layout(g.result, g.n, g.m, g.c_step, g.batch, g.c_batch);
  lt::Preference* preference = nullptr;
  lt::check(l.cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  l.cublasLtMatmulPreferenceSetAttribute(preference, lt::kMostWorkspace, &kMostWorkspace,
                                         sizeof kMostWorkspace);
  auto align = [&](int attribute, int bytes) {
    const auto value = static_cast<uint32_t>(bytes);
    l.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value);
  };
  align(lt::kAlignA, g.align_b), align(lt::kAlignB, g.align_a);
  align(lt::kAlignC, g.align_c), align(lt::kAlignD, g.align_c);
  find(preference);
  if (results_.empty() && gemm_.tf32) { // a GPU before sm_80
    gemm_.tf32 = false;
    find(preference);
  }
  l.cublasLtMatmulPreferenceDestroy(preference);
}

void GemmPlan::find(lt::Preference* preference) {
  const lt::Library& l = lt::library();
  lt::Desc* desc = make_desc(nullptr);
  results_.resize(kCandidates);
  int found = 0;
  const lt::Status status = l.cublasLtMatmulAlgoGetHeuristic(handle_, desc, b_, a_, residual_, c_, preference,
                                                             kCandidates, results_.data(), &found);
  results_.resize(status == 0 ? static_cast<size_t>(found) : 0);
  std::erase_if(results_, [](const lt::Result& r) { return r.state != 0; });
  l.cublasLtMatmulDescDestroy(desc);
}

GemmPlan::~GemmPlan() {
  for (lt::Layout* layout : {a_, b_, c_, residual_})
    if (layout) lt::library().cublasLtMatrixLayoutDestroy(layout);
}

size_t GemmPlan::workspace_bytes() const {
  size_t most = 0;
  for (const lt::Result& r : results_) most = std::max(most, r.workspace);
  return most;
}

/// Made for every call: it holds the address of the bias, and calls may come from many threads.
lt::Desc* GemmPlan::make_desc(const void* bias) const {
  const lt::Library& l = lt::library();
  const bool real = gemm_.type != lt::kI8, wide = gemm_.type == lt::kF64;
  const int compute = wide         ? lt::kComputeF64
                      : !real      ? lt::kComputeI32
                      : gemm_.tf32 ? lt::kComputeTf32
                                   : lt::kComputeF32;
  lt::Desc* desc = nullptr;
  lt::check(l.cublasLtMatmulDescCreate(&desc, compute,
                                       wide   ? lt::kF64
                                       : real ? lt::kF32
                                              : lt::kI32),
            "cublasLtMatmulDescCreate");
  auto set = [&](int attribute, auto value) {
    l.cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value);
  };
  if (gemm_.b_columns) set(lt::kTransposeA, int32_t{lt::kTransposed});
  if (gemm_.a_columns) set(lt::kTransposeB, int32_t{lt::kTransposed});
  int32_t epilogue = gemm_.activation == Activation::relu   ? lt::kRelu
                     : gemm_.activation == Activation::gelu ? lt::kGelu
                                                            : 0;
  if (gemm_.bias) {
    epilogue |= lt::kBias;
    set(lt::kBiasPointer, bias);
    set(lt::kBiasType, int32_t{gemm_.result});
  }
  set(lt::kEpilogue, epilogue == 0 ? int32_t{lt::kDefault} : epilogue);
  return desc;
}

void GemmPlan::launch(size_t which, device::cuda::StreamHandle stream, const GemmAddresses& at, float alpha,
                      void* workspace, size_t workspace_bytes) const {
  // Factors in the type of the sums.
  const double wide[] = {alpha, gemm_.residual ? 1.0 : 0.0};
  const float real[] = {alpha, gemm_.residual ? 1.0f : 0.0f};
  const int32_t whole[] = {static_cast<int32_t>(alpha), gemm_.residual ? 1 : 0};
  const void *one = real, *beta = real + 1;
  if (gemm_.type == lt::kF64) one = wide, beta = wide + 1;
  if (gemm_.type == lt::kI8) one = whole, beta = whole + 1;
  lt::Desc* desc = make_desc(at.bias);
  const lt::Status status = lt::library().cublasLtMatmul(
      handle_, desc, one, at.b, b_, at.a, a_, beta, gemm_.residual ? at.residual : at.c, residual_, at.c, c_,
      &results_[which].algo, workspace, workspace_bytes, stream);
  lt::library().cublasLtMatmulDescDestroy(desc);
  lt::check(status, "cublasLtMatmul");
}

void GemmPlan::measure(device::cuda::StreamHandle stream, const GemmAddresses& at, float alpha,
                       void* workspace, size_t workspace_bytes, const Other& other) {
  GemmAddresses there = at;
  // What a sum in place adds to must not change.
  std::optional<Scratch> result;
  if (gemm_.residual && at.residual == at.c) {
    const int64_t last = (gemm_.batch - 1) * gemm_.c_batch + (gemm_.m - 1) * gemm_.c_step + gemm_.n;
    result.emplace(static_cast<size_t>(last * element_bytes(gemm_.result)));
    there.c = result->data();
  }
  const Bytes hot = left_of(gemm_, at);
  const auto work = [&](size_t i) {
    if (i < results_.size() && results_[i].workspace > workspace_bytes) return false;
    try {
      if (i == results_.size())
        other.run(there);
      else
        launch(i, stream, there, alpha, workspace, workspace_bytes);
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::internal) throw;
      return false; // another one will do
    }
    return true;
  };
  measured_ = fastest(stream, results_.size() + (other ? 1 : 0), {&hot, 1}, work, {}, other.lead);
}

std::string text_of(const Gemm& gemm) {
  auto number = []<class T>(const T& field) {
    if constexpr (std::is_same_v<T, Activation>)
      return static_cast<int>(field);
    else
      return field;
  };
  return std::apply(
      [&](const auto&... field) { return fmt::format("{}", fmt::join(std::tuple(number(field)...), " ")); },
      gemm.fields());
}

std::string GemmPlan::problem(bool other) const {
  return fmt::format("{} {}{}", lt::version(), text_of(gemm_), other ? ", beside packed columns" : "");
}

// The algorithm itself is kept, not its place in the list: that may differ with the memory that is free.
void GemmPlan::remember(bool other) {
  if (!measured_) return;
  const std::string what = problem(other);
  if (*measured_ == results_.size())
    keep_answer(*context_, what, "our own");
  else
    keep_answer(
        *context_, what,
        {reinterpret_cast<const char*>(&results_[*measured_].algo), sizeof results_[*measured_].algo});
}

void GemmPlan::recall(bool other) {
  recalled_ = true;
  const std::string answer = kept_answer(*context_, problem(other));
  if (other && answer == "our own") measured_ = results_.size();
  for (size_t i = 0; i < results_.size() && answer.size() == sizeof results_[i].algo; ++i)
    if (std::memcmp(answer.data(), &results_[i].algo, answer.size()) == 0) measured_ = i;
}

bool GemmPlan::run(const device::Stream& stream, const GemmAddresses& at, float alpha, void* workspace,
                   size_t workspace_bytes, const Other& other) {
  const Current current(*context_);
  const device::cuda::StreamHandle handle = device::cuda::handle_of(stream);
  size_t which = 0;
  {
    std::scoped_lock lock(mutex_);
    if (!measured_ && !recalled_) recall(static_cast<bool>(other));
    if (!measured_ && results_.size() + (other ? 1 : 0) > 1 && measuring() &&
        !device::cuda::is_capturing(stream))
      measure(handle, at, alpha, workspace, workspace_bytes, other), remember(static_cast<bool>(other));
    if (measured_) which = *measured_;
  }
  if (which == results_.size()) {
    if (other) {
      other.run(at);
      return true;
    }
    which = 0; // measured by a caller that has one
  }
  if (results_[which].workspace > workspace_bytes) {
    const auto fits = std::find_if(results_.begin(), results_.end(),
                                   [&](const lt::Result& r) { return r.workspace <= workspace_bytes; });
    if (fits == results_.end()) return false;
    which = static_cast<size_t>(fits - results_.begin());
  }
  launch(which, handle, at, alpha, workspace, workspace_bytes);
  return true;
}

bool GemmPlan::takes_other() const {
  std::scoped_lock lock(mutex_);
  return measured_ == results_.size();
}

std::string GemmPlan::description() const {
  std::scoped_lock lock(mutex_);
  if (measured_ == results_.size())
    return fmt::format("our own, measured beside {} algorithms", results_.size());
  return fmt::format("algorithm {} of {}{}{}", measured_.value_or(0) + 1, results_.size(),
                     gemm_.tf32 ? ", in TF32" : "", measured_ ? ", measured" : "");
}

std::shared_ptr<GemmPlan> plan_of(const std::shared_ptr<const ContextOwner>& context, const Gemm& gemm) {
  // Handles stay to the end of the process: the library may be gone before a destructor of ours runs then.
  static std::mutex mutex;
  static auto* handles = new std::map<device::cuda::Context, lt::Handle>;
  static auto* plans = new std::map<std::pair<device::cuda::Context, Gemm>, std::shared_ptr<GemmPlan>>;
  std::scoped_lock lock(mutex);
  std::shared_ptr<GemmPlan>& plan = (*plans)[{context->context(), gemm}];
  if (plan) return plan;
  const Current current(*context);
  lt::Handle& handle = (*handles)[context->context()];
  if (!handle) lt::check(lt::library().cublasLtCreate(&handle), "cublasLtCreate");
  plan = std::make_shared<GemmPlan>(context, handle, gemm);
  return plan;
}

} // namespace tbx::extern_kernels::cuda
