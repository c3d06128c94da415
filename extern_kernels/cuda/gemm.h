// One matrix product as cuBLASLt takes it: which algorithms there are for it, and which is the fastest.
#pragma once

#include <compare>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "device/cuda/stream.h"
#include "device/device.h"
#include "extern_kernels/cuda/cublas_lt.h"
#include "extern_kernels/cuda/measure.h"

namespace tbx::extern_kernels::cuda {

enum class Activation : uint8_t {
  none,
  relu,
  gelu,     ///< its approximation by tanh, which cuBLASLt has
  gelu_erf, ///< the exact one, which it has not (gelu_product.h)
};

/// c = activation(alpha * a*b + residual + bias): rows of c and of the residual are dense, a and b have rows
/// or columns that are. Steps of batches are 0 where an operand repeats.
struct Gemm {
  int type = lt::kF32;                       ///< of a and b (cudaDataType)
  int result = lt::kF32;                     ///< of c, the residual and the bias
  bool tf32 = false;                         ///< float32 may be rounded to TF32
  bool a_columns = false, b_columns = false; ///< the columns are dense, not the rows
  bool bias = false, residual = false;
  Activation activation = Activation::none;
  int64_t m = 0, n = 0, k = 0, batch = 1;
  int64_t a_step = 0, b_step = 0, c_step = 0, residual_step = 0; ///< from one dense row or column to the next
  int64_t a_batch = 0, b_batch = 0, c_batch = 0, residual_batch = 0;
  int align_a = 16, align_b = 16, align_c = 16; ///< bytes; c: of the residual, too

  /// All that a product is known by, here and in later processes.
  auto fields() const {
    return std::tie(type, result, tf32, a_columns, b_columns, bias, residual, activation, m, n, k, batch,
                    a_step, b_step, c_step, residual_step, a_batch, b_batch, c_batch, residual_batch, align_a,
                    align_b, align_c);
  }
  bool operator==(const Gemm& other) const { return fields() == other.fields(); }
  auto operator<=>(const Gemm& other) const { return fields() <=> other.fields(); }
};

/// The fields as text: what answers are kept for, with the version of the library.
std::string text_of(const Gemm& gemm);

/// Where the operands of one product lie. `residual` may be `c`.
struct GemmAddresses {
  const void *a = nullptr, *b = nullptr, *bias = nullptr, *residual = nullptr;
  void* c = nullptr;
};

/// The type of a and b where they are halves.
inline DType half_type(const Gemm& g) { return g.type == lt::kF16 ? DType::f16 : DType::bf16; }
/// The memory of the first operand, of one product of a batch.
Bytes left_of(const Gemm& gemm, const GemmAddresses& at);

/// The algorithms for a Gemm on one GPU, best first as the library sees it. Found once per process.
class GemmPlan {
public:
  GemmPlan(std::shared_ptr<const device::cuda::ContextOwner> context, lt::Handle handle, const Gemm& gemm);
  ~GemmPlan();
  GemmPlan(const GemmPlan&) = delete;
  GemmPlan& operator=(const GemmPlan&) = delete;

  /// The library has no algorithm: somebody else must compute.
  bool empty() const { return results_.empty(); }
  size_t workspace_bytes() const; ///< enough for every algorithm
  /// The same product by a kernel of ours.
  struct Other {
    std::function<void(const GemmAddresses&)> run; ///< queues it
    std::function<void()> lead;                    ///< queues what stands ahead of each way that is measured
    explicit operator bool() const { return static_cast<bool>(run); }
  };
  /// Queues the product. The first time, outside of a graph that is recorded, the algorithms are measured
  /// with operands b that are not in the cache (as weights are), and the host waits for that; `other` is
  /// measured beside them, and taken where it is faster. False, and nothing queued, where every algorithm
  /// needs a larger workspace.
  bool run(const device::Stream& stream, const GemmAddresses& at, float alpha, void* workspace,
           size_t workspace_bytes, const Other& other = {});
  bool takes_other() const; ///< it was measured to be faster
  /// "algorithm 2 of 8, in TF32, measured"; "our own, measured beside 8 algorithms".
  std::string description() const;

private:
  void find(lt::Preference* preference);
  void launch(size_t which, device::cuda::StreamHandle stream, const GemmAddresses& at, float alpha,
              void* workspace, size_t workspace_bytes) const;
  void measure(device::cuda::StreamHandle stream, const GemmAddresses& at, float alpha, void* workspace,
               size_t workspace_bytes, const Other& other);
  lt::Desc* make_desc(const void* bias) const;
  std::string problem(bool other) const;
  void remember(bool other);
  void recall(bool other);

  std::shared_ptr<const device::cuda::ContextOwner> context_;
  lt::Handle handle_;
  Gemm gemm_;
  lt::Layout *a_ = nullptr, *b_ = nullptr, *c_ = nullptr, *residual_ = nullptr;
  std::vector<lt::Result> results_;
  mutable std::mutex mutex_;
  std::optional<size_t> measured_; ///< as many as there are algorithms: the other kernel
  bool recalled_ = false;          ///< it was asked for what an earlier process measured
};

/// The plan of a product on the GPU of the context, made once per process.
std::shared_ptr<GemmPlan> plan_of(const std::shared_ptr<const device::cuda::ContextOwner>& context,
                                  const Gemm& gemm);

/// Largest power of two, up to 16, that divides the address; 16 for nullptr (an address that is not known
/// yet).
int alignment_of(const void* address);

} // namespace tbx::extern_kernels::cuda
