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

const char* const kWorkText =
#include "extern_kernels/cuda/row_work.inc"
    ;

constexpr int64_t kMostNormed = 8192;  ///< elements of a row, of which a thread keeps some
constexpr int64_t kColumnsOfBlock = 8; ///< one for each warp
constexpr int64_t kEmulatedBytes = 32 << 10, kMostBytes = 48 << 10; ///< of shared memory, for one row
constexpr int kManyColumns = 4;                                     ///< that a warp has at a time

/// Of shared memory, for the activations of one row.
int64_t row_bytes_of(int64_t k, int64_t block, bool rounded) {
  return (k + block - 1) / block * block / 32 * (rounded ? 40 : 36 * 4);
}
/// Threads share the groups that are rounded by shuffles.
bool shares_groups(int64_t block, bool rounded) {
  return !rounded || (std::has_single_bit(static_cast<uint64_t>(block)) && block <= 256);
}

/// Why the kernel of one row, which is the only one that knows such work, does not do it; empty: it does.
std::string refuse_row_work(const PackedMatMulProblem& p, std::span<const OperandInfo> inputs) {
  if (inputs[0].sizes.empty() || inputs[0].sizes[0] != 1) return "work before or behind more than one row";
  if (row_bytes_of(p.k, p.block, p.rounds) > kEmulatedBytes || !shares_groups(p.block, p.rounds))
    return fmt::format("work around a row of {}", p.k);
  if (p.work.norm != RowWork::as_it_is && p.k > kMostNormed)
    return fmt::format("the norm of {} elements", p.k);
  auto has = [&](size_t i) { return i < inputs.size() && inputs[i].dtype != DType::undefined; };
  auto is_dense = [&](size_t i) {
    return inputs[i].sizes.back() == 1 || inputs[i].strides.empty() || inputs[i].strides.back() == 1;
  };
  for (size_t i : {5, 6, 7})
    if (has(i) && !((inputs[i].dtype == DType::f32 || is_half(inputs[i].dtype)) && is_dense(i)))
      return "scale, shift or what is added lie in an order of their own";
  if (has(7) && inputs[7].dtype != inputs[0].dtype) return "what is added has another type";
  return {};
}

using Load = std::function<std::shared_ptr<device::Module>(const std::string& text)>;

class PackedProduct final : public ExternKernel {
public:
  PackedProduct(device::Device& device, const PackedMatMulProblem& p, std::span<const OperandInfo> inputs,
                Load load)
      : k_(p.k), n_(p.n), block_(p.block), rounded_(p.rounds), work_(p.work), type_(inputs[0].dtype),
        load_(std::move(load)), multiprocessors_(std::max(1, device.properties().multiprocessors)),
        overlaps_(begins_early(device.properties())), emulated_(device::is_fake(device)) {
    if (inputs.size() > 3 && inputs[3].dtype != DType::undefined)
      zeros_ = inputs[3].dtype == DType::u8 ? 1 : 2;
    if (inputs.size() > 5) scale_ = inputs[5].dtype;
    if (inputs.size() > 6) shift_ = inputs[6].dtype;
    if (load_) return;
    load_ = [&device](const std::string& text) { return loaded(device, text); };
    if (!inputs[0].sizes.empty() && inputs[0].sizes[0] > 0)
      compiled_for(inputs[0].sizes[0]); // for the first run
  }

  std::string description() const override {
    return fmt::format("our own MatMulNBits {} x {} in blocks of {}", k_, n_, block_);
  }

  bool can_rehearse() const override { return true; }

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
         *bias = given(4), *to = y.data, *scale = given(5), *shift = given(6), *added = given(7);
    device::LaunchShape shape;
    if (rows == 1 && suits_row()) {
      n = results();
      float epsilon = work_.epsilon;
      void* pointers[] = {&from,  &w,      &scales, &zeros, &bias,  &to,    &k,      &n,
                          &block, &x_step, &y_step, &scale, &shift, &added, &epsilon};
      const int64_t columns = int64_t{8} * columns_of_warp(), parts = (n + columns - 1) / columns;
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
  int64_t row_bytes() const { return row_bytes_of(k_, block_, rounded_); }
  bool suits_row() const {
    return row_bytes() <= (emulated_ ? kEmulatedBytes : kMostBytes) && shares_groups(block_, rounded_);
  }
  int64_t results() const { return work_.gate == RowWork::no_gate ? n_ : n_ / 2; }
  int columns_of_warp() const {
    const int many = work_.gate == RowWork::no_gate ? kManyColumns : kManyColumns / 2;
    // Each block norms and rounds the row for itself, so one on each multiprocessor is enough.
    const int64_t warps = int64_t{8} * multiprocessors_,
                  each = std::max<int64_t>(1, (results() + warps - 1) / warps);
    if (each <= many) return static_cast<int>(each);
    return n_ >= warps * 2 * kManyColumns ? many : 1;
  }

  device::Kernel compiled_for(int64_t rows) const {
    const bool row = rows == 1 && suits_row();
    const int each = row ? 0 : rows == 1 ? 1 : 4;
    std::scoped_lock lock(mutex_);
    auto [it, fresh] = modules_.try_emplace(each);
    if (fresh) {
      const std::string macros = fmt::format("#define TYPE {}\n#define ZEROS {}\n#define ROUNDED {}\n",
                                             static_cast<int>(type_), zeros_, rounded_ ? 1 : 0);
      it->second = load_(row ? row_text(macros) : fmt::format("{}#define ROWS {}\n{}", macros, each, kText));
    }
    return it->second->kernel(row ? "packed_row" : "packed_product");
  }

  std::string row_text(const std::string& macros) const {
    auto number = [](auto value) { return static_cast<int>(value); };
    return fmt::format(
        "#define NORM {}\n#define ROUNDED_ROW {}\n#define ACTIVATION {}\n{}{}#define COLUMNS {}\n"
        "#define SCALE {}\n#define SHIFT {}\n#define TERMS {}\n#define GATE {}\n#define OVERLAP {}\n"
        "#define SHARED {}\n{}",
        number(work_.norm), number(work_.rounded), number(work_.activation), kWorkText, macros,
        columns_of_warp(), number(scale_), number(shift_), work_.norm == RowWork::as_it_is ? 0 : k_,
        number(work_.gate), overlaps_ ? 1 : 0, kEmulatedBytes, kRowText);
  }

  int64_t k_, n_, block_;
  bool rounded_; ///< activations become 8-bit integers, as the model allows
  RowWork work_;
  DType scale_ = DType::undefined, shift_ = DType::undefined; ///< of the norm
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
                                         std::span<const OperandInfo> outputs, const device::Properties&) {
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
  for (size_t i = 1; i < std::min<size_t>(inputs.size(), 7); ++i)
    if (inputs[i].dtype != DType::undefined && !inputs[i].constant) return "weights that are no constants";
  if (inputs.size() > 4 && inputs[4].dtype != DType::undefined && inputs[4].dtype != t)
    return "a bias of another type";
  return p.work != RowWork{} || inputs.size() > 5 ? refuse_row_work(p, inputs) : "";
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
