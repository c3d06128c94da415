// TfIdfVectorizer of strings.
#include "extern_kernels/host/tf_idf.h"

#include "runtime/value_op.h"

namespace tbx::runtime {

/// Strings [C] or [N, C] -> weighted counts of n-grams, f32 [columns] or [N, columns].
ValueFunction make_value_tf_idf(const ValueNode& node) {
  extern_kernels::TfIdfCounter counter(extern_kernels::read_tf_idf<std::string>(node.attributes));
  return [counter](const ValueCall& call) {
    const Tensor& x = call.tensor(0, DType::string);
    TBX_MODEL(x.dims.size() <= 2, "the input has rank {}, expected 1 or 2", x.dims.size());
    std::vector<int64_t> dims = x.dims;
    if (dims.empty()) dims.push_back(0);
    dims.back() = counter.width();
    const auto rows = static_cast<size_t>(dims.size() == 2 ? dims[0] : 1),
               length = rows == 0 ? 0 : x.strings->size() / rows,
               width = static_cast<size_t>(counter.width());
    const std::span<float> counts = call.make(0, DType::f32, std::move(dims)).as_mutable<float>();
    for (size_t r = 0; r < rows; ++r)
      counter.count(std::span<const std::string>(*x.strings).subspan(r * length, length),
                    counts.subspan(r * width, width));
  };
}

} // namespace tbx::runtime
