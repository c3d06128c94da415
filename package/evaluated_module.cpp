#include "package/evaluated_module.h"

#include <map>

#include "base/memory.h"
#include "ir/evaluate.h"
#include "ir/lane_ops.h"

namespace tbx::package {
namespace {

/// Prepared once, run many times.
class Evaluated : public runtime::EvaluatedKernel {
public:
  Evaluated(ir::KernelProgram program, KernelsFrom from)
      : program_(std::move(program)), evaluator_(program_), from_(from) {}

  void check(std::span<const runtime::KernelRoom> rooms, std::span<const int64_t> symbols) const override {
    require(rooms.size() == program_.buffers.size(), "as many buffers as its step has");
    for (size_t b = 0; b < rooms.size(); ++b) {
      const ir::KernelBuffer& takes = program_.buffers[b];
      const int64_t size = std::max<int64_t>(1, size_of(takes.dtype));
      const std::optional<int64_t> numel = ir::evaluate(takes.numel, symbols);
      require(numel.has_value(), "buffers of sizes that can be");
      // It counts from the first element that is read: of an empty buffer there are fewer than none.
      const int64_t n = std::max<int64_t>(*numel, 0);
      if (takes.access == ir::Access::row_local) {
        require(n <= memory_limit() / size / ir::kLanes, "memory of its own that there is");
        continue;
      }
      require(rooms[b].bytes >= 0 && rooms[b].dtype == takes.dtype, "buffers of the types of its step");
      require(rooms[b].writes || takes.access == ir::Access::read, "buffers that its step writes");
      require(n <= rooms[b].bytes / size, "buffers as large as those of its step");
    }
  }

  void run(std::span<void* const> buffers, std::span<const int64_t> symbols, int64_t begin,
           int64_t end) const override {
    try {
      evaluator_.run(buffers, symbols, begin, end);
    } catch (const ir::IndexError& e) {
      throw runtime::OriginError(e, e.origin);
    } catch (const Error& e) {
      // What the evaluator takes for granted of kernels that were made here, nobody vouches for in a file.
      if (from_ == KernelsFrom::here || e.kind() != ErrorKind::internal) throw;
      throw_model_error("a kernel for the evaluator cannot run ({}): the package is damaged", e.message());
    }
  }

private:
  static void require(bool fits, const char* what) {
    if (!fits) throw_model_error("a kernel for the evaluator does not take {}: the package is damaged", what);
  }

  const ir::KernelProgram program_;
  const ir::KernelEvaluator evaluator_;
  const KernelsFrom from_;
};

class EvaluatedModule : public runtime::Module {
public:
  EvaluatedModule(std::vector<ir::NamedKernel> kernels, KernelsFrom from) {
    for (ir::NamedKernel& kernel : kernels)
      kernels_.emplace(std::move(kernel.first),
                       std::make_shared<const Evaluated>(std::move(kernel.second), from));
  }
  runtime::Kernel kernel(const std::string& name) const override {
    auto it = kernels_.find(name);
    return it == kernels_.end() ? runtime::Kernel{} : runtime::Kernel{nullptr, it->second};
  }

private:
  std::map<std::string, std::shared_ptr<const Evaluated>> kernels_;
};

} // namespace

std::shared_ptr<const runtime::Module> evaluated_module(std::vector<ir::NamedKernel> kernels,
                                                        KernelsFrom from) {
  return std::make_shared<const EvaluatedModule>(std::move(kernels), from);
}

} // namespace tbx::package
