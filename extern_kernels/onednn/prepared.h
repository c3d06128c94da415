// Prepared: the library calls that compute a problem for one set of sizes, ready to run.
#pragma once

#include <dnnl.hpp>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "extern_kernels/kernel.h"
#include "extern_kernels/onednn/primitives.h"

namespace tbx::extern_kernels::onednn {

/// An argument of a primitive and where its data comes from: exactly one of the members after `desc`, none
/// for the scratchpad.
struct Argument {
  int id; ///< DNNL_ARG_*
  dnnl::memory::desc desc;
  int input = -1, output = -1; ///< of the problem
  void* fixed = nullptr;       ///< packed weights, or a number
  int own = -1;                ///< number of a buffer between two stages
};

/// One library call.
struct Stage {
  std::shared_ptr<const Primitive> primitive;
  std::vector<Argument> arguments;
};

/// Stages that run one after the other, and idle argument lists for them.
class Prepared {
public:
  /// `buffers`: bytes of those between stages. `owned`: packed weights to keep. `passed_over`: what the
  /// library has for everything in one call, where that is not taken. `first`: a kernel of ours that runs
  /// ahead of the stages, on the operands of the problem.
  Prepared(std::vector<Stage> stages, const std::vector<int64_t>& buffers, std::vector<dnnl::memory> owned,
           std::string passed_over = "", std::shared_ptr<const ExternKernel> first = nullptr);
  void execute(const RunArgs& args);
  /// For explain: what the stages run.
  std::string text() const;

private:
  struct Slot {
    std::vector<std::vector<dnnl::memory>> memories; ///< by stage and argument
    std::vector<std::vector<dnnl_exec_arg_t>> args;
  };
  std::unique_ptr<Slot> take();

  std::vector<Stage> stages_;
  std::vector<int64_t> offsets_; ///< of the buffers in the scratch memory of a call
  int64_t scratchpad_at_ = 0, bytes_ = 0;
  std::vector<dnnl::memory> owned_;
  std::string passed_over_;
  std::shared_ptr<const ExternKernel> first_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Slot>> idle_;
};

/// What is prepared, by operand sizes and threads; least recently used ones dropped.
class PreparedCache {
public:
  using Make = std::function<std::shared_ptr<Prepared>()>;
  std::shared_ptr<Prepared> get(std::span<const TensorRef> inputs, std::span<const TensorRef> outputs,
                                const Make& make);
  /// Of all that were ever made, each once.
  std::vector<std::string> implementations() const;

private:
  static constexpr size_t kLimit = 64; // as many as a session remembers sets of sizes
  struct Entry {
    int threads;
    std::vector<int64_t> key;
    std::shared_ptr<Prepared> prepared;
  };
  mutable std::mutex mutex_;
  std::list<Entry> entries_;
  std::set<std::string> implementations_;
};

} // namespace tbx::extern_kernels::onednn
