// Reference run: executes a lowered program operation by operation with the evaluator, without fusion or
// compiler. The oracle of tests, and what folds constants.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "ir/tensor_box.h"

namespace tbx::lowering {

/// A view of memory with strides in elements; `data` null: operand left out.
struct ExternArgument {
  void* data = nullptr;
  DType dtype = DType::undefined;
  std::vector<int64_t> sizes, strides;
};
/// Executes an extern call into `outputs`, or, when the call binds symbols (`outputs` is empty then), returns
/// the outputs it made.
using ExternFn =
    std::function<std::vector<Tensor>(const ir::ExternCall& call, std::span<const ExternArgument> inputs,
                                      std::span<const ExternArgument> outputs)>;

/// Needs inputs in the order of `program.inputs`. Random operators draw what they draw in the first run of a
/// session with the seed 0, unless a RandomScope says otherwise. ModelError when shapes, checks or indices
/// are violated; UnsupportedError for extern calls when `run_extern` is empty.
std::vector<Tensor> run_program(const ir::Program& program, std::vector<Tensor> inputs,
                                const ExternFn& run_extern = {});

} // namespace tbx::lowering
