#include "extern_kernels/onednn/common.h"

#include <fmt/format.h>
#include <tbb/task_arena.h>

#include <algorithm>

#include "base/byte_sums.h"
#include "base/error.h"
#include "base/pages.h"
#include "base/spare_memory.h"
#include "base/weight_memory.h"
#include "extern_kernels/onednn/byte_layout.h"
#include "extern_kernels/widen.h"

namespace tbx::extern_kernels::onednn {

using dnnl::algorithm;
using dnnl::memory;

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine = [] {
    require_spare_memory();
    dnnl::set_primitive_cache_capacity(0);
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return engine;
}

dnnl::stream& this_thread_stream() {
  thread_local dnnl::stream stream(cpu_engine());
  return stream;
}

memory::data_type data_type(DType type) {
  switch (type) {
  case DType::u8: return memory::data_type::u8;
  case DType::i8: return memory::data_type::s8;
  case DType::i32: return memory::data_type::s32;
  case DType::f16: return memory::data_type::f16;
  case DType::bf16: return memory::data_type::bf16;
  default: return memory::data_type::f32;
  }
}

memory::desc one_integer() { return memory::desc({1}, memory::data_type::s32, memory::format_tag::x); }

namespace {

/// The CPU, as far as the library may use it, has what this ISA has.
bool runs(dnnl::cpu_isa isa) {
  const auto has = static_cast<unsigned>(dnnl::get_effective_cpu_isa()), wants = static_cast<unsigned>(isa);
  return (has & wants) == wants;
}

} // namespace

bool multiplies(DType half) {
  static const bool bf16 = runs(dnnl::cpu_isa::avx512_core_bf16), f16 = runs(dnnl::cpu_isa::avx512_core_fp16);
  return (half == DType::bf16 && bf16) || (half == DType::f16 && f16);
}

bool has_tiles(DType type) {
  static const bool has = runs(dnnl::cpu_isa::avx512_core_amx),
                    f16 = runs(dnnl::cpu_isa::avx512_core_amx_fp16);
  return type == DType::f16 ? f16 : has && (type == DType::bf16 || is_byte(type));
}

std::string identity() {
  const dnnl_version_t* v = dnnl_version();
  return fmt::format("oneDNN {}.{}.{} {} {:x}", v->major, v->minor, v->patch, v->hash,
                     static_cast<unsigned>(dnnl::get_effective_cpu_isa()));
}

std::string inexact_bytes() {
  // Older instructions add pairs of products in 16 bits, which saturate, and some kernels halve the weights
  // instead. The flag is what ISAs with AVX512-VNNI have in common.
  static const bool exact = runs(dnnl::cpu_isa::avx512_core_vnni);
  return exact ? "" : "products of bytes saturate in 16 bits without AVX512-VNNI";
}

namespace {

/// The largest sum of positive weights, or of negative ones, that belongs to one element of the result: no
/// more of either side adds up, since the left-hand side less its zero point spans 255.
int64_t largest_sum(const OperandInfo& weights, size_t columns) {
  const ByteSums sums = byte_sums(weights.constant->data, DType::i8, weights.sizes, weights.strides, columns);
  int64_t most = 0;
  for (const std::vector<int64_t>* side : {&sums.above, &sums.below})
    for (int64_t sum : *side) most = std::max(most, sum);
  return most;
}

} // namespace

std::string inexact_sums(const OperandInfo& weights, size_t columns, int64_t terms, bool has_right_zero) {
  constexpr int64_t kExact = int64_t{1} << 24;
  constexpr int64_t kLeft = 255, kRight = 128; // the largest magnitudes
  const int64_t shifts = has_right_zero ? kLeft * kRight : 0;
  if (terms >= 0 && terms < kExact / (kLeft * kRight + shifts)) return "";
  if (terms >= 0 && weights.constant && !weights.strides.empty() && terms < kExact / kLeft &&
      kLeft * largest_sum(weights, columns) + shifts * terms < kExact)
    return "";
  return terms < 0 ? "sums of bytes of a length known at run time: above 2^24 the library rounds them"
                   : "sums of bytes above 2^24, which the library rounds";
}

bool large_sums_on_tiles(const OperandInfo& weights, size_t columns, int64_t terms, bool has_right_zero) {
  return has_tiles(DType::i8) && !inexact_sums(weights, columns, terms, has_right_zero).empty();
}

std::string unfit_floats(std::span<const OperandInfo> inputs, DType result) {
  const DType left = inputs[0].dtype, right = inputs[1].dtype;
  if (is_half(left)) {
    if (!multiplies(left)) return fmt::format("{} products on this CPU", name_of(left));
    if (right != left) return fmt::format("{} times {}", name_of(left), name_of(right));
    if (result != left && result != DType::f32) return fmt::format("a {} result", name_of(result));
  } else {
    if (left != DType::f32) return fmt::format("{} operands", name_of(left));
    // Weights of a narrower type are widened when they are packed.
    if (right != DType::f32 && !(inputs[1].constant && is_half(right)))
      return fmt::format("{} operands", name_of(right));
    if (result != DType::f32) return fmt::format("a {} result", name_of(result));
  }
  for (const OperandInfo& t : inputs.subspan(2))
    if (t.dtype != DType::f32 && t.dtype != DType::undefined && t.dtype != left)
      return fmt::format("{} operands", name_of(t.dtype));
  return {};
}

std::string unfit_result(bool bytes, DType result, bool has_post_ops) {
  const bool fits =
      !bytes || result == DType::f32 || is_byte(result) || (result == DType::i32 && !has_post_ops);
  return fits ? "" : fmt::format("a {} result{}", name_of(result), bytes ? " of bytes" : "");
}

void require_countable(std::span<const int64_t> sizes) {
  constexpr int64_t kMost = int64_t{1} << 30;
  if (std::any_of(sizes.begin(), sizes.end(), [](int64_t n) { return n > kMost; }))
    throw dnnl::error(dnnl_unimplemented, "a dimension of more than 2^30 elements");
}

memory::desc describe(std::span<const int64_t> sizes, std::span<const int64_t> strides, DType type) {
  require_countable(sizes);
  memory::dims dims(sizes.begin(), sizes.end()), steps(strides.begin(), strides.end());
  for (size_t d = dims.size(); d-- > 0;)
    if (dims[d] == 1) {
      // As if dense over the dimensions that are stepped through inside this one.
      int64_t inner = 1;
      for (size_t k = 0; k < dims.size(); ++k)
        if (dims[k] > 1 && (k > d)) inner = std::max(inner, steps[k] * dims[k]);
      steps[d] = inner;
    }
  return memory::desc(dims, data_type(type), steps);
}

dnnl::primitive_attr attributes(Precision precision) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  // `any` is asked for as bfloat16, the coarsest that it allows: the library's own "any" rounds nothing on
  // CPUs where products of bfloat16 take a third of the time.
  attr.set_fpmath_mode(precision == Precision::strict ? dnnl::fpmath_mode::strict : dnnl::fpmath_mode::bf16);
  return attr;
}

void append(dnnl::post_ops& ops, const PostOp& op, const std::function<memory::desc(int)>& operand) {
  auto eltwise = [&](algorithm a, float alpha = 0, float beta = 0) { ops.append_eltwise(a, alpha, beta); };
  auto binary = [&](algorithm a) { ops.append_binary(a, operand(op.operand)); };
  switch (op.kind) {
  case PostOp::relu: return eltwise(algorithm::eltwise_relu);
  case PostOp::leaky_relu: return eltwise(algorithm::eltwise_relu, op.alpha);
  case PostOp::clip: return eltwise(algorithm::eltwise_clip_v2, op.alpha, op.beta);
  case PostOp::gelu_erf: return eltwise(algorithm::eltwise_gelu_erf);
  case PostOp::gelu_tanh: return eltwise(algorithm::eltwise_gelu_tanh);
  case PostOp::silu: return eltwise(algorithm::eltwise_swish, op.alpha);
  case PostOp::sigmoid: return eltwise(algorithm::eltwise_logistic);
  case PostOp::tanh: return eltwise(algorithm::eltwise_tanh);
  case PostOp::hard_sigmoid: return eltwise(algorithm::eltwise_hardsigmoid, op.alpha, op.beta);
  case PostOp::hard_swish: return eltwise(algorithm::eltwise_hardswish, 1.0f / 6, 0.5f);
  case PostOp::linear: return eltwise(algorithm::eltwise_linear, op.alpha, op.beta);
  case PostOp::round: return eltwise(algorithm::eltwise_round);
  case PostOp::add: return binary(algorithm::binary_add);
  case PostOp::sub: return binary(algorithm::binary_sub);
  case PostOp::mul: return binary(algorithm::binary_mul);
  case PostOp::div: return binary(algorithm::binary_div);
  case PostOp::sum: ops.append_sum(1.0f); return;
  }
}

void append_all(std::span<const PostOp> list, DType result,
                const std::function<void(const PostOp&)>& append_one) {
  size_t count = list.size();
  const float low = result == DType::u8 ? 0 : -128;
  if (is_byte(result) && count > 0 && list[count - 1].kind == PostOp::clip && list[count - 1].alpha == low &&
      list[count - 1].beta == low + 255) {
    --count;
    // Integers that are stored are rounded to even.
    if (count > 0 && list[count - 1].kind == PostOp::round) --count;
  }
  for (size_t i = 0; i < count; ++i) append_one(list[i]);
}

namespace {

constexpr int64_t kPieceBytes = 16 << 20;
constexpr int64_t kPieceRows = 64; ///< of which pieces are multiples: blocks of layouts have so many at most

/// Large weights in a mapped file, whose pages are given back piece by piece: the file's and the packed ones
/// are not in memory together. False where that is not worth it, or the layout has no pieces.
bool reorder_in_pieces(const Tensor& weights, const memory& from, const memory& to) {
  const memory::desc source = from.get_desc(), wanted = to.get_desc();
  const memory::dims dims = source.get_dims(), strides = source.get_strides();
  size_t outer = 0; // the dimension of the largest step
  for (size_t d = 1; d < dims.size(); ++d)
    if (dims[outer] == 1 || (dims[d] > 1 && strides[d] > strides[outer])) outer = d;
  const int64_t row = strides[outer] * size_of(weights.dtype);
  const int64_t rows =
      std::max(kPieceRows, kPieceBytes / std::max<int64_t>(row, 1) / kPieceRows * kPieceRows);
  if (!weights.file_mapped || dims[outer] < 2 * rows) return false;
  for (int64_t begin = 0; begin < dims[outer]; begin += rows) {
    memory::dims size = dims, start(dims.size(), 0);
    start[outer] = begin;
    size[outer] = std::min(rows, dims[outer] - begin);
    const memory::desc part = source.submemory_desc(size, start, true),
                       place = wanted.submemory_desc(size, start, true);
    if (part.is_zero() || place.is_zero()) return false;
    memory piece(part, cpu_engine(), from.get_data_handle()), put(place, cpu_engine(), to.get_data_handle());
    dnnl::reorder(piece, put).execute(this_thread_stream(), piece, put);
    this_thread_stream().wait();
    drop_pages(weights, weights.data + begin * row, size[outer] * row);
  }
  return true;
}

} // namespace

// Whoever waits for the loops of a reorder takes no other task: one that asks for these weights would wait
// for the lock that its own thread holds.
memory PackedWeights::get(const memory::desc& wanted) {
  std::lock_guard lock(mutex_);
  if (wanted == plain_) {
    tbb::this_task_arena::isolate([&] { restore(); });
    lent_ = true;
    // oneDNN knows no constant memory.
    return memory(plain_, cpu_engine(), const_cast<std::byte*>(weights_->data));
  }
  for (const Packed& p : packed_)
    if (p.memory.get_desc() == wanted) return p.memory;
  tbb::this_task_arena::isolate([&] { pack(wanted); });
  return packed_.back().memory;
}

std::shared_ptr<const Tensor> PackedWeights::original() {
  std::lock_guard lock(mutex_);
  tbb::this_task_arena::isolate([&] { restore(); });
  return weights_;
}

void PackedWeights::restore() {
  if (weights_) return;
  require_spare_memory();
  Tensor made = Tensor::make(type_, dims_);
  memory from = packed_.front().memory, to(plain_, cpu_engine(), made.mutable_data());
  if (is_byte(type_)) {
    ByteLayout::of(plain_, from.get_desc(), has_left_zero_)
        ->unpack(static_cast<const std::byte*>(from.get_data_handle()), made.mutable_data());
  } else {
    dnnl::reorder(from, to).execute(this_thread_stream(), from, to);
    this_thread_stream().wait();
  }
  weights_ = std::make_shared<const Tensor>(std::move(made));
}

void PackedWeights::pack(const memory::desc& wanted) {
  restore();
  // The library has no fast way from halves to f32 everywhere: we widen.
  require_spare_memory();
  const bool widens = is_half(weights_->dtype) && wanted.get_data_type() == memory::data_type::f32;
  std::shared_ptr<const Tensor> source = widens ? widened(weights_) : weights_;
  const memory::desc plain =
      widens ? memory::desc(plain_.get_dims(), memory::data_type::f32, plain_.get_strides()) : plain_;
  std::shared_ptr<void> owner = allocate_weights(static_cast<int64_t>(wanted.get_size()));
  memory from(plain, cpu_engine(), const_cast<std::byte*>(source->data)),
      to(wanted, cpu_engine(), owner.get());
  const auto bytes = is_byte(type_) ? ByteLayout::of(plain_, wanted, has_left_zero_) : std::nullopt;
  if (widens || !reorder_in_pieces(*weights_, from, to)) {
    if (bytes && bytes->packs()) {
      bytes->pack(weights_->data, static_cast<std::byte*>(owner.get()));
    } else {
      dnnl::reorder(from, to).execute(this_thread_stream(), from, to);
      this_thread_stream().wait();
    }
  }
  drop_pages(*weights_);
  packed_.push_back({to, std::move(owner)});
  // What is rounded is not what it was.
  const memory::desc first = packed_.front().memory.get_desc();
  const bool reversible = is_byte(type_)
                              ? ByteLayout::of(plain_, first, has_left_zero_).has_value()
                              : first.get_format_kind() == memory::format_kind::blocked &&
                                    first.get_data_type() == memory::data_type::f32 && type_ == DType::f32;
  if (reversible && !lent_) weights_.reset();
}

int64_t PackedWeights::bytes() const {
  std::lock_guard lock(mutex_);
  int64_t n = 0;
  for (const Packed& p : packed_) n += static_cast<int64_t>(p.memory.get_desc().get_size());
  return n;
}

void raise(const char* what, const dnnl::error& e) {
  throw_backend_error("oneDNN: {}: {} (status {})", what, e.message, static_cast<int>(e.status));
}

} // namespace tbx::extern_kernels::onednn
