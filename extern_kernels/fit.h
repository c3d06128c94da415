// What the operands of a call have to be for each other. Kernels compute addresses from this: that what an
// operand has less than another one says is read behind its end. Lowering makes no other calls; a package's
// file may say anything.
#pragma once

#include <fmt/format.h>

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels {

/// ModelError that names the operand where the operands of a call do not fit each other. Sizes of -1 are not
/// known yet and fit. `allocates`: the kernel makes its outputs. Asked for before a kernel is chosen (what is
/// known while compiling: ranks, weights, which are packed then), and before each run of other sizes.
void check_fit(const Problem& problem, std::span<const TensorRef> inputs, std::span<const TensorRef> outputs,
               bool allocates = false);
void check_fit(const Problem& problem, std::span<const OperandInfo> inputs,
               std::span<const OperandInfo> outputs, bool allocates = false);

/// The operands of one call, held against patterns of their sizes. A letter is one size in all operands of
/// the call, a capital one is that size or 1, a digit itself, '.' any size; '*' in front stands for any
/// number of dimensions.
class Fit {
public:
  Fit(const Problem& problem, std::span<const TensorRef> inputs, std::span<const TensorRef> outputs)
      : problem_(problem), inputs_(inputs), outputs_(outputs) {
    sizes_.fill(-1);
  }

  bool has(size_t i) const { return i < inputs_.size() && inputs_[i].dtype != DType::undefined; }
  const TensorRef& in(size_t i) const { return inputs_[i]; }
  const TensorRef& out(size_t i) const { return outputs_[i]; }
  size_t count_in() const { return inputs_.size(); }
  size_t count_out() const { return outputs_.size(); }

  /// An operand that has to be there.
  void input(size_t i, std::string_view sizes);
  void optional(size_t i, std::string_view sizes) {
    if (has(i)) input(i, sizes);
  }
  void output(size_t i, std::string_view sizes);

  /// The size that a letter stands for; -1: not known.
  int64_t size(char letter) const { return sizes_[static_cast<size_t>(letter - 'a')]; }
  /// A size that follows from others is what a letter stands for.
  void derived(char letter, int64_t size);

  /// What no pattern says.
  template <class... A> void require(bool fits, fmt::format_string<A...> what, A&&... args) const {
    if (!fits) fail(fmt::format(what, std::forward<A>(args)...));
  }

private:
  [[noreturn]] void fail(const std::string& what) const;
  void match(std::string_view which, size_t i, const TensorRef& t, std::string_view pattern);
  bool matches(char c, int64_t size);

  const Problem& problem_;
  std::span<const TensorRef> inputs_, outputs_;
  std::array<int64_t, 26> sizes_;
};

/// Both are the same where both are known.
inline bool same_size(int64_t a, int64_t b) { return a < 0 || b < 0 || a == b; }
/// a * b; -1 where one of them is not known, or where the product is no size.
int64_t times(int64_t a, int64_t b);
/// -1 where a size is not known.
int64_t known_numel(std::span<const int64_t> sizes);

void check_layer_fit(const RecurrentProblem& problem, Fit& fit); // extern_kernels/layer_fit.cpp
void check_layer_fit(const PackedMatMulProblem& problem, Fit& fit);
void check_layer_fit(const RowProductProblem& problem, Fit& fit);
void check_layer_fit(const ExpertsProblem& problem, Fit& fit);
void check_host_fit(const HostProblem& problem, Fit& fit, bool allocates); // extern_kernels/host_fit.cpp

} // namespace tbx::extern_kernels
