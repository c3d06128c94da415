// Few rows of 8-bit integers times constant weights by a kernel of ours, which asks for its weights before
// the kernel before it ends. Of more rows byte_product's tiles are faster.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "extern_kernels/cuda/few_rows_product.h"
#include "extern_kernels/cuda/loops.h"

namespace tbx::extern_kernels::cuda {

class ByteRows {
public:
  using Load = std::function<std::shared_ptr<device::Module>(const std::string& text)>;
  /// What does not change from call to call. Types of `operands` are those of the post-operations' operands,
  /// in their order; undefined where one has none.
  struct Ends {
    DType a = DType::u8, w = DType::i8, result = DType::i32;
    std::vector<PostOp> post_ops;
    std::vector<DType> operands;
    bool known_rows = true; ///< else one text serves many numbers of rows, up to a power of two
  };
  /// `multiprocessors`: work is spread over so many.
  ByteRows(device::Device& device, Ends ends, Load load, int multiprocessors, bool clusters);

  /// A call as the kernel takes it.
  struct Work {
    ByteRowsArguments arguments;
    std::string macros; ///< in front of the text
    device::LaunchShape shape;
  };
  static constexpr int64_t kChunk = 64; ///< terms that a warp multiplies at a time
  /// Less time is to be expected than tiles take.
  bool pays(int64_t rows, int64_t columns, int64_t terms) const;
  /// Empty where it does not take the call, or tiles are faster. `windows`: rows are places of a window.
  std::optional<Work> work_of(const ByteArguments& call, bool windows) const;
  void compile(const Work& work) const { kernel_of(work.macros); }
  void run(device::Stream& stream, const Work& work) const;

private:
  struct Kernel {
    std::shared_ptr<device::Module> module;
    device::Kernel kernel;
  };
  const Kernel& kernel_of(const std::string& macros) const;
  FewRowsExpected expect(int64_t rows, int64_t columns, int64_t terms) const;
  /// What reads an operand of a post-operation; false: it lies otherwise than the kernel reads.
  bool add_operand(int i, const View& v, const ByteArguments& call, Work& work) const;

  Ends ends_;
  Load load_;
  int multiprocessors_;
  bool clusters_, overlaps_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, Kernel> kernels_; ///< by the macros in front of the text
};

} // namespace tbx::extern_kernels::cuda
