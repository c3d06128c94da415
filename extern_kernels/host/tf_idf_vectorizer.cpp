// TfIdfVectorizer over integers: counts of n-grams per row, weighted.
#include <algorithm>

#include "base/error.h"
#include "extern_kernels/host/host_kernel.h"
#include "extern_kernels/host/tasks.h"
#include "extern_kernels/host/tf_idf.h"
#include "extern_kernels/reference/dense.h"

namespace tbx::extern_kernels {
namespace {

/// Lowering has read them, too: what does not fit here is a package's fault.
TfIdf<int64_t> attributes_of_call(const HostProblem& p) {
  try {
    return read_tf_idf<int64_t>(p.attributes);
  } catch (const Error& e) {
    throw Error(ErrorKind::model,
                fmt::format("a call of TfIdfVectorizer: {}: the package is damaged", e.message()));
  }
}

class TfIdfVectorizer : public ExternKernel {
public:
  explicit TfIdfVectorizer(const HostProblem& p) : counter_(attributes_of_call(p)) {}

  std::string description() const override { return "host TfIdfVectorizer"; }

  void run(const RunArgs& args) const override {
    const TensorRef &x = args.inputs[0], &y = args.outputs[0];
    const size_t rank = x.sizes.size();
    const bool fits = rank <= 2 && y.sizes.size() == std::max<size_t>(rank, 1) && y.dtype == DType::f32 &&
                      y.sizes.back() == counter_.width() && (rank < 2 || y.sizes[0] == x.sizes[0]);
    TBX_MODEL(fits, "operands of a call of TfIdfVectorizer do not fit: the package is damaged");
    const std::vector<int64_t> tokens = to_dense<int64_t>(x);
    const int64_t rows = rank == 2 ? x.sizes[0] : 1;
    const auto length = static_cast<size_t>(rows == 0 ? 0 : x.numel() / rows),
               columns = static_cast<size_t>(y.sizes.back());
    auto* out = static_cast<float*>(y.data);
    // Rows enough for a task to take longer than to hand it to another thread.
    constexpr size_t kTokens = 1 << 10, kColumns = 1 << 14;
    const size_t grain = std::min(kTokens / (length + 1), kColumns / columns) + 1;
    share(rows, static_cast<int64_t>(grain), [&](int64_t begin, int64_t end) {
      for (auto r = static_cast<size_t>(begin); r < static_cast<size_t>(end); ++r)
        counter_.count(std::span(tokens).subspan(r * length, length), {out + r * columns, columns});
    });
  }

private:
  TfIdfCounter<int64_t> counter_;
};

} // namespace

/// x [C] or [N, C] -> f32 [columns] or [N, columns]; attributes as in the file.
std::unique_ptr<ExternKernel> make_tf_idf(const HostProblem& p) {
  return std::make_unique<TfIdfVectorizer>(p);
}

} // namespace tbx::extern_kernels
