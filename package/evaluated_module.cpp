#include "package/evaluated_module.h"

#include <map>

#include "ir/evaluate.h"

namespace tbx::package {
namespace {

/// Prepared once, run many times.
class Evaluated : public runtime::EvaluatedKernel {
public:
  explicit Evaluated(ir::KernelProgram program) : program_(std::move(program)), evaluator_(program_) {}

  void run(std::span<void* const> buffers, std::span<const int64_t> symbols, int64_t begin,
           int64_t end) const override {
    try {
      evaluator_.run(buffers, symbols, begin, end);
    } catch (const ir::IndexError& e) {
      throw runtime::OriginError(e, e.origin);
    }
  }

private:
  const ir::KernelProgram program_;
  const ir::KernelEvaluator evaluator_;
};

class EvaluatedModule : public runtime::Module {
public:
  explicit EvaluatedModule(std::vector<ir::NamedKernel> kernels) {
    for (ir::NamedKernel& kernel : kernels)
      kernels_.emplace(std::move(kernel.first), std::make_shared<const Evaluated>(std::move(kernel.second)));
  }
  runtime::Kernel kernel(const std::string& name) const override {
    auto it = kernels_.find(name);
    return it == kernels_.end() ? runtime::Kernel{} : runtime::Kernel{nullptr, it->second};
  }

private:
  std::map<std::string, std::shared_ptr<const Evaluated>> kernels_;
};

} // namespace

std::shared_ptr<const runtime::Module> evaluated_module(std::vector<ir::NamedKernel> kernels) {
  return std::make_shared<const EvaluatedModule>(std::move(kernels));
}

} // namespace tbx::package
