// Few rows times a constant matrix in float16 or bfloat16 by a kernel of ours. It asks for its weights before
// the kernel before it ends, has them in registers as tensor cores take them, and reads each of them once for
// 16 to 32 rows: of more rows a library is faster. The blocks of a cluster share long sums.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "device/device.h"
#include "extern_kernels/cuda/gemm.h"
#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels::cuda {

/// How the blocks of a product share its work.
struct FewRowsShape {
  int blocks = 1;    ///< of a cluster, which share the terms
  int warps = 4;     ///< of a block that share its terms
  int row_warps = 1; ///< for each of these shares
  int rows = 1;      ///< of a warp, in units of 16
  int columns = 4;   ///< of a block, in units of 8
  int64_t tile_rows() const { return int64_t{16} * rows * row_warps; }
  int64_t tile_columns() const { return int64_t{8} * columns; }
};
/// The shape of which least time is to be expected, and that time, in cycles of a multiprocessor behind those
/// that each kernel takes.
struct FewRowsExpected {
  FewRowsShape shape;
  double cycles = 0;
};
/// Of halves; without clusters a block has all terms.
FewRowsExpected expect_few_rows(int64_t m, int64_t n, int64_t k, int multiprocessors, bool clusters);

class FewRowsProduct {
public:
  using Load = std::function<std::shared_ptr<device::Module>(const std::string& text)>;
  using Weights = std::shared_ptr<device::Memory>;
  /// `b`: [1..., terms, columns]. `load` makes a module of the text; empty: by NVRTC. `multiprocessors`: work
  /// is spread over so many; 0: as many as the device has.
  FewRowsProduct(device::Device& device, const OperandInfo& b, Load load = {}, int multiprocessors = 0);

  /// The kernel computes the product.
  bool takes(const Gemm& gemm, const GemmAddresses& at) const;
  /// It takes it, and may be faster than a library: the rows are few, and the device has clusters.
  bool suits(const Gemm& gemm, const GemmAddresses& at) const;
  /// Compiles what run() needs, ahead of it.
  void prepare(const Gemm& gemm) const { kernels_for(gemm); }

  /// The matrix as the kernel reads it, kept by an earlier call of keep(); nullptr: not yet.
  Weights kept() const;
  /// Makes it out of the operand in device memory. Waits for the stream.
  Weights packed(device::Stream& stream, const Gemm& gemm, const GemmAddresses& at) const;
  /// Of several that were made at the same time one is kept: false for the others.
  bool keep(const Weights& weights) const;
  int64_t bytes() const; ///< of what is kept

  void run(device::Stream& stream, const Gemm& gemm, const GemmAddresses& at, float alpha,
           const device::Memory& weights) const;
  /// What stands ahead of a way to compute it that is measured: a kernel that lets the next one start early,
  /// as kernels of ours do.
  void lead(device::Stream& stream, const Gemm& gemm) const;

private:
  struct Kernels {
    std::shared_ptr<device::Module> module;
    device::Kernel product, pack, lead;
  };
  const Kernels& kernels_for(const Gemm& gemm) const;
  FewRowsShape shape_of(const Gemm& gemm) const;

  device::Device& device_;
  Load load_;
  bool has_clusters_, overlaps_;
  int multiprocessors_;
  int64_t terms_ = 0, columns_ = 0; ///< of the constant matrix; 0: it is none
  mutable std::mutex mutex_;
  mutable Weights kept_;
  mutable std::map<std::string, Kernels> kernels_; ///< by the macros in front of the text
};

} // namespace tbx::extern_kernels::cuda
