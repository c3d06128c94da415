#include "extern_kernels/cuda/row_product.h"

#include <fmt/format.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <optional>

#include "base/dtype.h"
#include "extern_kernels/cuda/loops.h"

namespace tbx::extern_kernels::cuda {

namespace {

const char* const kWorkText =
#include "extern_kernels/cuda/row_work.inc"
    ;

const char* const kText =
#include "extern_kernels/cuda/row_product.inc"
    ;

constexpr int64_t kMostWarps = 8; ///< of a block

/// Of a library's type; undefined: the kernel has none of it.
DType type_of(int type) {
  switch (type) {
  case lt::kF32: return DType::f32;
  case lt::kF16: return DType::f16;
  case lt::kBf16: return DType::bf16;
  default: return DType::undefined;
  }
}

/// What warps have of the results.
struct Share {
  int64_t block = kMostWarps; ///< warps of a block
  int64_t warps = 1;          ///< of these that share the terms of a result
  int64_t results = 1;        ///< that they have at a time
  int64_t held = 1;           ///< vectors of a column that a thread has on their way
  int64_t of_block() const { return block / warps * results; }
};

/// One block for each multiprocessor, whose threads have all of their columns on their way: so few blocks
/// read the row, and norm it, and those of the next kernel have room beside them. `columns` of the matrix for
/// each result, of `vectors` of 16 bytes for each thread of a warp.
std::optional<Share> all_at_once(int64_t results, int64_t columns, int64_t vectors, int64_t multiprocessors) {
  constexpr int64_t kMostHeld = 18, kLeastWarps = 4;
  std::optional<Share> best;
  int64_t least = 0;
  const int64_t share = (results + multiprocessors - 1) / multiprocessors;
  for (int64_t block = kMostWarps; block >= kLeastWarps; --block)
    for (int64_t warps = 1; warps <= block; warps *= 2) {
      if (block % warps != 0) continue;
      const Share s{block, warps, (share * warps + block - 1) / block, (vectors + warps - 1) / warps};
      const int64_t sums = s.results * columns;
      if (s.held * sums > kMostHeld) continue;
      // What a block reads, what a thread adds, and sums that meet in five steps, and once more among warps.
      const int64_t cost =
          s.of_block() * columns * vectors + 2 * s.held * sums + 4 * sums + (warps > 1 ? 8 : 0);
      if (!best || cost < least) least = cost, best = s;
    }
  return best;
}

/// As many blocks as it takes: a warp has a column whose vectors a thread can have on their way, or several
/// share it, more of them where columns are few. Two columns of a gate are on their way together.
Share one_by_one(int64_t results, int64_t columns, int64_t vectors, DType type, int64_t multiprocessors) {
  const int64_t most = (type == DType::f32 ? 6 : 4) / columns;
  int64_t warps = 1;
  auto too_few = [&] {
    return vectors > most * warps ||
           (vectors >= 2 * warps && results * warps * 10 < int64_t{7} * kMostWarps * multiprocessors);
  };
  while (warps < kMostWarps && too_few()) warps *= 2;
  return {kMostWarps, warps, 1, std::min(most, (vectors + warps - 1) / warps)};
}

/// [columns, terms] of a matrix with these strides, some columns at a time, which lie beside each other.
template <class T>
void turn(const T* from, T* to, int64_t terms, int64_t columns, int64_t term_stride, int64_t column_stride) {
  constexpr int64_t kTogether = 32;
  tbb::parallel_for(int64_t{0}, (columns + kTogether - 1) / kTogether, [&](int64_t part) {
    const int64_t begin = part * kTogether, end = std::min(columns, begin + kTogether);
    for (int64_t k = 0; k < terms; ++k)
      for (int64_t n = begin; n < end; ++n) to[n * terms + k] = from[k * term_stride + n * column_stride];
  });
}

} // namespace

RowProduct::RowProduct(device::Device& device, const OperandInfo& a, const OperandInfo& b, Load load)
    : device_(device), load_(std::move(load)), type_(b.dtype) {
  if (!load_) load_ = [&device](const std::string& text) { return loaded(device, text); };
  const auto is_one = [](int64_t size) { return size == 1; };
  if (!b.constant || (type_ != DType::f32 && !is_half(type_))) return;
  if (a.sizes.empty() || b.sizes.size() < 2 || b.strides.size() != b.sizes.size()) return;
  if (!std::all_of(a.sizes.begin(), a.sizes.end() - 1, is_one)) return;
  if (!std::all_of(b.sizes.begin(), b.sizes.end() - 2, is_one)) return;
  terms_ = b.sizes.end()[-2], columns_ = b.sizes.back();
  term_stride_ = b.strides.end()[-2], column_stride_ = b.strides.back();
  if (terms_ > 0 && columns_ > 0 && terms_ * size_of(type_) % 16 == 0) constant_ = b.constant;
}

bool RowProduct::suits(const Gemm& g, const GemmAddresses& at) const {
  return constant_ && g.m == 1 && g.batch == 1 && g.k == terms_ && g.n == columns_ &&
         type_of(g.result) != DType::undefined && (!g.a_columns || g.a_step == 1) &&
         reinterpret_cast<uintptr_t>(at.a) % 16 == 0;
}

bool RowProduct::is_as_read(const Gemm& g) const { return g.b_columns && g.b_step == terms_; }

void RowProduct::prepare(const Gemm& g) const {
  if (constant_ && !is_as_read(g)) weights();
}

const void* RowProduct::weights() const {
  std::scoped_lock lock(mutex_);
  if (memory_) return memory_->data();
  std::vector<std::byte> all(static_cast<size_t>(terms_ * columns_ * size_of(type_)));
  // Work of others may wait for the lock.
  tbb::this_task_arena::isolate([&] {
    auto turned = [&]<class T>(T* to) {
      turn(reinterpret_cast<const T*>(constant_->data), to, terms_, columns_, term_stride_, column_stride_);
    };
    if (type_ == DType::f32)
      turned(reinterpret_cast<uint32_t*>(all.data()));
    else
      turned(reinterpret_cast<uint16_t*>(all.data()));
  });
  auto memory = device_.allocate(all.size());
  const auto stream = device_.make_stream();
  stream->upload(memory->data(), all.data(), memory->bytes());
  stream->synchronize();
  memory_ = std::move(memory);
  return memory_->data();
}

int64_t RowProduct::bytes() const {
  std::scoped_lock lock(mutex_);
  return memory_ ? static_cast<int64_t>(memory_->bytes()) : 0;
}

/// A kernel with the shape of its launch, and its results.
struct RowProduct::Work {
  device::Kernel kernel;
  device::LaunchShape shape;
  int64_t results = 0;
};

RowEnds RowProduct::ends_of(const Gemm& g) const {
  RowEnds ends;
  ends.x = type_;
  ends.work.activation = g.activation == Activation::relu   ? RowWork::relu
                         : g.activation == Activation::gelu ? RowWork::gelu_tanh
                                                            : RowWork::none;
  return ends;
}

void RowProduct::compile(const Gemm& g) const {
  const GemmAddresses unknown; // as if they lay at the best addresses
  if (suits(g, unknown)) work_of(g, ends_of(g), false);
}

void RowProduct::run(device::Stream& stream, const Gemm& g, const GemmAddresses& at, float alpha) const {
  launch(stream, g, at, alpha, ends_of(g), false);
}

void RowProduct::run(device::Stream& stream, const Gemm& g, const GemmAddresses& at,
                     const RowEnds& ends) const {
  const bool as_it_lies =
      ends.work.norm == RowWork::as_it_is && ends.x == type_ && reinterpret_cast<uintptr_t>(at.a) % 16 == 0;
  launch(stream, g, at, 1, ends, !as_it_lies);
}

RowProduct::Work RowProduct::work_of(const Gemm& g, const RowEnds& ends, bool staged) const {
  const device::Properties properties = device_.properties();
  const bool gated = ends.work.gate != RowWork::no_gate;
  const int64_t results = gated ? columns_ / 2 : columns_;
  const int64_t columns = gated ? 2 : 1, vectors = (terms_ * size_of(type_) / 16 + 31) / 32;
  const Share share = all_at_once(results, columns, vectors, properties.multiprocessors)
                          .value_or(one_by_one(results, columns, vectors, type_, properties.multiprocessors));
  Work work;
  work.results = results;
  device::LaunchShape& shape = work.shape;
  shape.overlap = begins_early(properties);
  shape.blocks = static_cast<uint32_t>((results + share.of_block() - 1) / share.of_block());
  shape.threads = static_cast<uint32_t>(share.block * 32);
  auto number = [](auto value) { return static_cast<int>(value); };
  const std::string text = fmt::format(
      "#define NORM {}\n#define ROUNDED_ROW {}\n#define ACTIVATION {}\n{}#define TYPE {}\n#define SOURCE {}\n"
      "#define RESULT {}\n#define BLOCK {}\n#define WARPS {}\n#define RESULTS {}\n#define HELD {}\n#define "
      "BIAS {}\n"
      "#define RESIDUAL {}\n#define SCALE {}\n#define SHIFT {}\n#define GATE {}\n#define STAGED {}\n#define "
      "TERMS {}\n"
      "#define OVERLAP {}\n{}",
      number(ends.work.norm), number(ends.work.rounded), number(ends.work.activation), kWorkText,
      number(type_), number(ends.x), number(type_of(g.result)), share.block, share.warps, share.results,
      share.held, g.bias ? 1 : 0, g.residual ? 1 : 0, number(ends.scale), number(ends.shift),
      number(ends.work.gate), staged ? 1 : 0, staged ? terms_ : 0, shape.overlap ? 1 : 0, kText);
  std::scoped_lock lock(mutex_);
  std::shared_ptr<device::Module>& module = modules_[text];
  if (!module) module = load_(text);
  work.kernel = module->kernel("row_product");
  return work;
}

void RowProduct::launch(device::Stream& stream, const Gemm& g, const GemmAddresses& at, float alpha,
                        const RowEnds& ends, bool staged) const {
  const Work work = work_of(g, ends, staged);
  int64_t k = g.k, n = work.results;
  const void *x = at.a, *w = is_as_read(g) ? at.b : weights(), *bias = at.bias, *residual = at.residual,
             *scale = ends.scale_data, *shift = ends.shift_data;
  void* y = at.c;
  float epsilon = ends.work.epsilon;
  void* pointers[] = {&x, &w, &bias, &residual, &y, &alpha, &k, &n, &scale, &shift, &epsilon};
  stream.launch(work.kernel, work.shape, pointers);
}

} // namespace tbx::extern_kernels::cuda
