#include "extern_kernels/host/host_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/strides.h"
#include "extern_kernels/custom_operator.h"
#include "extern_kernels/reference/dense.h"

namespace tbx::extern_kernels {

#define TBX_HOST(domain, op, function) void function(const HostCall&);
#define TBX_HOST_MADE(domain, op, maker) std::unique_ptr<ExternKernel> maker(const HostProblem&);
#include "extern_kernels/host/host_kernels.inc"
#undef TBX_HOST
#undef TBX_HOST_MADE

namespace {

struct Entry {
  std::string_view domain, op;
  HostFunction function; ///< one of the two
  HostMaker maker;
};

constexpr std::array kEntries = {
#define TBX_HOST(domain, op, function) Entry{domain, op, function, nullptr},
#define TBX_HOST_MADE(domain, op, maker) Entry{domain, op, nullptr, maker},
#include "extern_kernels/host/host_kernels.inc"
#undef TBX_HOST
#undef TBX_HOST_MADE
};

const Entry* find(std::string_view domain, std::string_view op) {
  for (const Entry& e : kEntries)
    if (e.domain == domain && e.op == op) return &e;
  return nullptr;
}

/// A row-major stand-in for a view.
struct DenseCopy {
  std::vector<std::byte> data;
  std::vector<int64_t> strides;

  TensorRef make(const TensorRef& t) {
    strides = row_major_strides(t.sizes);
    data.resize(static_cast<size_t>(t.numel() * size_of(t.dtype)));
    return {data.data(), t.dtype, t.sizes, strides};
  }
  void gather(const TensorRef& from) {
    const int64_t w = size_of(from.dtype);
    for_each_element(from, [&](int64_t i, int64_t at) {
      std::memcpy(data.data() + i * w, static_cast<const std::byte*>(from.data) + at * w,
                  static_cast<size_t>(w));
    });
  }
  void scatter(const TensorRef& to) const {
    const int64_t w = size_of(to.dtype);
    for_each_element(to, [&](int64_t i, int64_t at) {
      std::memcpy(static_cast<std::byte*>(to.data) + at * w, data.data() + i * w, static_cast<size_t>(w));
    });
  }
};

class HostKernel : public ExternKernel {
public:
  HostKernel(const HostProblem& p, HostFunction function) : p_(p), function_(function) {}
  explicit HostKernel(std::unique_ptr<ExternKernel> made) : made_(std::move(made)) {}
  std::string description() const override {
    return made_ ? made_->description() : "host " + to_string(Problem(p_));
  }
  int64_t packed_bytes() const override { return made_ ? made_->packed_bytes() : 0; }
  bool is_serial(std::span<const TensorRef> inputs, std::span<const TensorRef> outputs) const override {
    return made_ && made_->is_serial(inputs, outputs);
  }

  /// Host functions see row-major tensors: views and parts of larger tensors go through copies.
  void run(const RunArgs& args) const override {
    auto dense = [](const TensorRef& t) { return !t.data || is_row_major(t.sizes, t.strides); };
    if (std::all_of(args.inputs.begin(), args.inputs.end(), dense) &&
        std::all_of(args.outputs.begin(), args.outputs.end(), dense))
      return compute(args);
    std::vector<TensorRef> inputs(args.inputs.begin(), args.inputs.end()),
        outputs(args.outputs.begin(), args.outputs.end());
    std::vector<DenseCopy> in(inputs.size()), out(outputs.size());
    for (size_t i = 0; i < inputs.size(); ++i)
      if (!dense(inputs[i])) {
        TensorRef view = inputs[i];
        inputs[i] = in[i].make(view);
        in[i].gather(view);
      }
    for (size_t i = 0; i < outputs.size(); ++i)
      if (!dense(outputs[i])) outputs[i] = out[i].make(outputs[i]);
    RunArgs local = args;
    local.inputs = inputs;
    local.outputs = outputs;
    compute(local);
    for (size_t i = 0; i < outputs.size(); ++i)
      if (!dense(args.outputs[i])) out[i].scatter(args.outputs[i]);
  }

private:
  void compute(const RunArgs& args) const { made_ ? made_->run(args) : function_({p_, args}); }

  HostProblem p_;
  HostFunction function_ = nullptr;
  std::unique_ptr<ExternKernel> made_;
};

} // namespace

bool find_host_kernel(std::string_view domain, std::string_view op) { return find(domain, op) != nullptr; }

std::string supports_host_kernel(const Problem& problem, std::span<const OperandInfo>,
                                 std::span<const OperandInfo>, const Target&) {
  const auto& p = std::get<HostProblem>(problem);
  return p.custom || find_host_kernel(p.domain, p.op) ? "" : fmt::format("no host kernel for {}", p.op);
}

std::unique_ptr<ExternKernel> make_host_kernel(const Problem& problem, std::span<const OperandInfo> inputs,
                                               std::span<const OperandInfo>) {
  const auto& p = std::get<HostProblem>(problem);
  if (p.custom) return std::make_unique<HostKernel>(make_custom_kernel(p.custom, inputs));
  const Entry* entry = find(p.domain, p.op);
  if (entry->maker) return std::make_unique<HostKernel>(entry->maker(p));
  return std::make_unique<HostKernel>(p, entry->function);
}

} // namespace tbx::extern_kernels
