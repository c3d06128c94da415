#include "extern_kernels/cuda/packed_product.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>

#include "base/error.h"
#include "device/fake/fake_device.h"
#include "extern_kernels/cuda/loops.h"

namespace tbx::extern_kernels {

using namespace cuda;

namespace {

const char* const kText =
#include "extern_kernels/cuda/packed_product.inc"
    ;

const char* const kRowText =
#include "extern_kernels/cuda/packed_row.inc"
    ;

constexpr int64_t kColumnsOfBlock = 8;                              ///< one for each warp
constexpr int64_t kEmulatedBytes = 32 << 10, kMostBytes = 48 << 10; ///< of shared memory, for one row
constexpr int kManyColumns = 4; ///< that a warp has at a time, of matrices that fill the device many times

using Load = std::function<std::shared_ptr<device::Module>(const std::string& text)>;

class PackedProduct final : public ExternKernel {
public:
  PackedProduct(device::Device& device, const PackedMatMulProblem& p, std::span<const OperandInfo> inputs,
                Load load)
      : k_(p.k), n_(p.n), block_(p.block), rounded_(p.rounds), type_(inputs[0].dtype), load_(std::move(load)),
        multiprocessors_(std::max(1, device.properties().multiprocessors)),
        overlaps_(architecture_number(device.properties()) >= 90), emulated_(device::is_fake(device)) {
    if (inputs.size() > 3 && inputs[3].dtype != DType::undefined)
      zeros_ = inputs[3].dtype == DType::u8 ? 1 : 2;
    if (load_) return;
    load_ = [&device](const std::string& text) { return loaded(device, text); };
    if (!inputs[0].sizes.empty() && inputs[0].sizes[0] > 0)
      compiled_for(inputs[0].sizes[0]); // for the first run
  }

  std::string description() const override {
    return fmt::format("our own MatMulNBits {} x {} in blocks of {}", k_, n_, block_);
  }

  void run(const RunArgs& args) const override {
    const TensorRef &x = args.inputs[0], &y = args.outputs[0];
    if (y.numel() == 0) return;
    const int64_t blocks = blocks_of_column();
    auto given = [&](size_t i) { return args.inputs.size() > i ? args.inputs[i].data : nullptr; };
    TBX_MODEL(args.inputs[1].numel() == n_ * blocks * block_ / 2 && args.inputs[2].numel() == n_ * blocks,
              "{} bytes of integers and {} scales for {} x {} in blocks of {}", args.inputs[1].numel(),
              args.inputs[2].numel(), n_, k_, block_);
    int64_t rows = x.sizes[0], k = k_, n = n_, block = block_, x_row = x.strides[0], x_step = x.strides[1],
            y_row = y.strides[0], y_step = y.strides[1];
    void *from = x.data, *w = args.inputs[1].data, *scales = args.inputs[2].data, *zeros = given(3),
         *bias = given(4), *to = y.data;
    device::LaunchShape shape;
    if (rows == 1 && suits_row()) {
      void* pointers[] = {&from, &w, &scales, &zeros, &bias, &to, &k, &n, &block, &x_step, &y_step};
      const int64_t columns = int64_t{8} * columns_of_warp(), parts = (n_ + columns - 1) / columns;
      shape.blocks = static_cast<uint32_t>(std::min<int64_t>(parts, int64_t{4} * multiprocessors_));
      shape.threads = 256;
      shape.shared_bytes = static_cast<uint32_t>(row_bytes());
      shape.overlap = overlaps_;
      args.stream->launch(compiled_for(rows), shape, pointers);
      return;
    }
    void* pointers[] = {&from, &w, &scales, &zeros, &bias,   &to,    &rows,
                        &k,    &n, &block,  &x_row, &x_step, &y_row, &y_step};
    shape.blocks = static_cast<uint32_t>((n_ + kColumnsOfBlock - 1) / kColumnsOfBlock);
    shape.threads = 256;
    args.stream->launch(compiled_for(rows), shape, pointers);
  }

private:
  int64_t blocks_of_column() const { return (k_ + block_ - 1) / block_; }
  /// Of shared memory, for the activations of one row.
  int64_t row_bytes() const { return blocks_of_column() * block_ / 32 * (rounded_ ? 40 : 36 * 4); }
  /// Threads share the groups that are rounded by shuffles.
  bool suits_row() const {
    return row_bytes() <= (emulated_ ? kEmulatedBytes : kMostBytes) &&
           (!rounded_ || (std::has_single_bit(static_cast<uint64_t>(block_)) && block_ <= 256));
  }
  int columns_of_warp() const {
    return n_ >= int64_t{8} * 2 * kManyColumns * multiprocessors_ ? kManyColumns : 1;
  }

  device::Kernel compiled_for(int64_t rows) const {
    const bool row = rows == 1 && suits_row();
    const int each = row ? 0 : rows == 1 ? 1 : 4;
    std::scoped_lock lock(mutex_);
    auto [it, fresh] = modules_.try_emplace(each);
    if (fresh) {
      const std::string macros = fmt::format("#define TYPE {}\n#define ZEROS {}\n#define ROUNDED {}\n",
                                             static_cast<int>(type_), zeros_, rounded_ ? 1 : 0);
      it->second =
          load_(row ? fmt::format("{}#define COLUMNS {}\n#define OVERLAP {}\n#define SHARED {}\n{}", macros,
                                  columns_of_warp(), overlaps_ ? 1 : 0, kEmulatedBytes, kRowText)
                    : fmt::format("{}#define ROWS {}\n{}", macros, each, kText));
    }
    return it->second->kernel(row ? "packed_row" : "packed_product");
  }

  int64_t k_, n_, block_;
  bool rounded_; ///< activations become 8-bit integers, as the model allows
  DType type_;
  int zeros_ = 0; ///< as the macro
  Load load_;
  int multiprocessors_;
  bool overlaps_, emulated_;
  mutable std::mutex mutex_;
  mutable std::map<int, std::shared_ptr<device::Module>> modules_; ///< by rows of activations; 0: packed_row
};

} // namespace

std::string supports_cuda_packed_product(const Problem& problem, std::span<const OperandInfo> inputs,
                                         std::span<const OperandInfo> outputs) {
  const auto& p = std::get<PackedMatMulProblem>(problem);
  const DType t = inputs[0].dtype;
  if (t != DType::f32 && t != DType::f16) return fmt::format("{} activations", name_of(t));
  if (outputs[0].dtype != t || inputs[2].dtype != t)
    return "activations, scales and result of different types";
  if (p.bits != 4 || p.block % 32 != 0 || p.block == 0)
    return fmt::format("{} bits in blocks of {}", p.bits, p.block);
  constexpr int64_t kDepth = 2048; // as in packed_product.inc
  if (p.rounds && kDepth % p.block != 0)
    return fmt::format("activations that are rounded by blocks of {}", p.block);
  if (inputs.size() > 3 && inputs[3].dtype != DType::undefined && inputs[3].dtype != DType::u8 &&
      inputs[3].dtype != t)
    return fmt::format("zero points of {}", name_of(inputs[3].dtype));
  for (size_t i = 1; i < inputs.size(); ++i)
    if (inputs[i].dtype != DType::undefined && !inputs[i].constant) return "weights that are no constants";
  if (inputs.size() > 4 && inputs[4].dtype != DType::undefined && inputs[4].dtype != t)
    return "a bias of another type";
  return {};
}

std::unique_ptr<ExternKernel> make_packed_product(device::Device& device, const Problem& problem,
                                                  std::span<const OperandInfo> inputs, Load load) {
  return std::make_unique<PackedProduct>(device, std::get<PackedMatMulProblem>(problem), inputs,
                                         std::move(load));
}

std::unique_ptr<ExternKernel> make_cuda_packed_product(device::Device& device, const Problem& problem,
                                                       std::span<const OperandInfo> inputs,
                                                       std::span<const OperandInfo>) {
  return make_packed_product(device, problem, inputs);
}

} // namespace tbx::extern_kernels
