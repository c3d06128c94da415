// Custom operators: operators that a user's shared libraries bring along (include/tensorbox/custom_op.h).
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels {

/// One operator of a loaded library, as of one version of its domain.
class CustomOperator;

/// The operators of some libraries.
class CustomOperators {
public:
  /// The newest form not newer than `opset`, or nullptr.
  std::shared_ptr<const CustomOperator> find(std::string_view domain, std::string_view op, int opset) const;
  /// Error (backend) naming both libraries when there is one of this domain, name and version.
  void add(std::shared_ptr<const CustomOperator> op);

private:
  std::map<std::pair<std::string, std::string>, std::map<int, std::shared_ptr<const CustomOperator>>,
           std::less<>>
      forms_;
};

/// Loads the libraries, each once per process; they stay loaded. Null without files. Throws Error (backend)
/// that names the file and what is wrong: it is missing, is no library, does not export
/// tensorbox_register_operators, was built for another interface, or registers what cannot be.
std::shared_ptr<const CustomOperators> load_custom_operators(std::span<const std::string> files);

/// What is known of an input. A negative size is unknown; equal negative numbers are equal sizes.
struct CustomInput {
  DType dtype = DType::undefined; ///< undefined: left out
  std::span<const int64_t> dims;
  const void* data = nullptr; ///< elements, where they are known
};

struct CustomOutput {
  DType dtype = DType::undefined;
  std::vector<int64_t> dims; ///< negative: one of the inputs' unknown sizes, or kUnknownSize
};

inline constexpr int64_t kUnknownSize = -1;
/// What stands for the `i`-th different unknown size: far from anything that is calculated from it by
/// mistake.
constexpr int64_t unknown_size(int64_t i) { return -(int64_t{1} << 40) - 7919 * i; }

/// A node that a custom operator computes: checked counts, attributes in the form operators read.
class CustomNode {
public:
  struct Shape {
    std::string name;
    int opset = 0;
    int num_inputs = 0, num_outputs = 0;
    std::vector<bool> inputs_given;
    std::map<std::string, Attribute> attributes;
  };
  /// ModelError when the operator does not take as many inputs or outputs.
  CustomNode(std::shared_ptr<const CustomOperator> op, Shape shape);
  ~CustomNode();

  /// Types and shapes of the outputs. Error of the operator, or BackendError when what it gives cannot be.
  std::vector<CustomOutput> infer(std::span<const CustomInput> inputs) const;
  /// Equal inputs give equal outputs.
  bool is_function() const;
  /// "custom operator my.domain.Twice of /home/me/libtwice.so"
  std::string description() const;

private:
  friend class CustomKernel;
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

/// A call in a plan: the node, and the output shapes that the compiled code relies on.
struct CustomCall {
  std::shared_ptr<const CustomNode> node;
  std::vector<CustomOutput> outputs;             ///< negative sizes: unknown_size(i), or kUnknownSize
  std::vector<std::pair<int, int>> unknown_dims; ///< input and dimension that is unknown_size(i)
};

/// The kernel of a call. `inputs`: what is known while compiling.
std::unique_ptr<ExternKernel> make_custom_kernel(std::shared_ptr<const CustomCall> call,
                                                 std::span<const OperandInfo> inputs);

} // namespace tbx::extern_kernels
