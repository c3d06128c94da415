// Attention in one kernel: blocks of queries against blocks of keys, with a running softmax, so that the
// scores of a block stay in cache and are never stored whole. Keys and values are packed once per head; for
// single queries (decoding) they are read where they are. Where all operands are bfloat16 and the CPU
// multiplies it, so do both products; scores, softmax and sums are float32 all the same.
#include <fmt/format.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/float_formats.h"
#include "base/rounding.h"
#include "base/task_work.h"
#include "extern_kernels/attention/blocks.h"
#include "extern_kernels/attention/carried.h"
#include "extern_kernels/kernel.h"
#include "extern_kernels/library_kernel.h"
#include "extern_kernels/scratch.h"

namespace tbx::extern_kernels {
namespace {

using attention::Blocks;
using attention::Carried;
using attention::RowState;

constexpr int64_t kQueries = 48; ///< rows of a block: a multiple of every tile's height, which registers give
/// Columns of a block: its scores stay in any second-level cache. No cache is asked for its size, for the
/// order of the sums depends on it.
constexpr int64_t kKeys = 512;
constexpr int64_t kPartKeys = kKeys; ///< keys of a part at least, where heads do not fill the threads

/// Of `n` elements along a sum, with those of zeros behind them.
int64_t words(int64_t n, const Blocks& b) { return round_up(ceil_div(n, b.per_word), b.step); }

/// Inputs of a call that carries caches over.
constexpr size_t kPastKeys = AttentionProblem::kCacheKeys, kPastValues = AttentionProblem::kCacheValues;

/// Sizes of one call.
struct Sizes {
  int64_t batch, heads, kv_heads, queries, keys, depth, width; ///< depth: of a key, width: of a value

  Sizes(std::span<const TensorRef> in)
      : batch(in[0].sizes[0]), heads(in[0].sizes[1]), kv_heads(in[1].sizes[1]), queries(in[0].sizes[2]),
        keys(in[1].sizes[2]), depth(in[0].sizes[3]), width(in[2].sizes[3]) {}
  int64_t group() const { return heads / kv_heads; }
  /// Keys and values as they lie: rows without gaps inside, few queries.
  bool direct(std::span<const TensorRef> in) const {
    if (queries > kFewQueries) return false;
    auto are_rows = [&](size_t i, int64_t n) { return in[i].strides[3] == 1 || n == 1; };
    const bool now = are_rows(1, depth) && are_rows(2, width);
    return now && (in.size() <= kPastValues || (are_rows(kPastKeys, depth) && are_rows(kPastValues, width)));
  }
  int64_t depth_words(const Blocks& b) const { return words(depth, b); }
  int64_t key_words(const Blocks& b) const { return words(keys, b); }
  int64_t packed_keys(const Blocks& b) const { return round_up(keys, b.lanes) * depth_words(b); }
  int64_t packed_values(const Blocks& b) const { return key_words(b) * round_up(width, b.lanes); }
};

const float* data_of(const TensorRef& t) { return static_cast<const float*>(t.data); }

/// A matrix of an operand as f32: where it lies, or of halves as a dense copy in `memory`.
struct Matrix {
  const float* data;
  int64_t row_stride, column_stride;

  /// Rows and columns are dimensions 2 and 3 from element `at` on.
  Matrix(const TensorRef& t, int64_t at, int64_t rows, int64_t columns, std::vector<float>& memory)
      : data(data_of(t) + at), row_stride(t.strides[2]), column_stride(t.strides[3]) {
    if (!is_half(t.dtype)) return;
    memory.resize(static_cast<size_t>(rows * columns));
    const auto* bits = static_cast<const uint16_t*>(t.data) + at;
    for (int64_t i = 0; i < rows; ++i) {
      float* to = memory.data() + i * columns;
      if (column_stride == 1)
        decode_halves(t.dtype, bits + i * row_stride, columns, to);
      else
        for (int64_t j = 0; j < columns; ++j)
          decode_halves(t.dtype, bits + i * row_stride + j * column_stride, 1, to + j);
    }
    data = memory.data();
    row_stride = columns;
    column_stride = 1;
  }
};

/// Rows of bfloat16 as `words` words of two neighbours; what is behind the last one is 0.
void pair_along_row(const uint16_t* row, int64_t stride, int64_t n, int64_t words, float* to) {
  if (n == 0) return; // there may be no memory
  auto* bits = reinterpret_cast<char*>(to);
  if (stride == 1) {
    std::memcpy(bits, row, static_cast<size_t>(n) * 2);
  } else {
    for (int64_t i = 0; i < n; ++i) std::memcpy(bits + 2 * i, row + i * stride, 2);
  }
  std::memset(bits + 2 * n, 0, static_cast<size_t>(4 * words - 2 * n));
}

/// Two rows of bfloat16 as words of an element of each; no second row: 0.
void pair_rows(const uint16_t* first, const uint16_t* second, int64_t stride, int64_t n, float* to) {
  auto* bits = reinterpret_cast<char*>(to);
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t word = first[i * stride] | (second ? uint32_t{second[i * stride]} << 16 : 0);
    std::memcpy(bits + 4 * i, &word, 4);
  }
}

/// Memory of this thread, kept for the next block.
float* scratch(size_t floats) {
  static thread_local std::vector<float> memory;
  if (memory.size() < floats + 16) memory.resize(floats + 16);
  auto at = reinterpret_cast<uintptr_t>(memory.data());
  return reinterpret_cast<float*>((at + 63) / 64 * 64);
}

/// What multiplies operands of this type.
const Blocks& blocks_for(bool bf16) {
  const Blocks* const narrow = attention::tile_blocks() ? attention::tile_blocks() : attention::bf16_blocks();
  return bf16 && narrow ? *narrow : attention::blocks();
}

/// A task in which multiply() may be called.
class Products {
public:
  explicit Products(const Blocks& b) : b_(b) {
    if (b_.begin) b_.begin();
  }
  ~Products() {
    if (b_.end) b_.end();
  }
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

private:
  const Blocks& b_;
};

class FusedAttention : public LibraryKernel {
public:
  FusedAttention(const AttentionProblem& p, bool bf16) : p_(p), b_(blocks_for(bf16)) {}

  std::string description() const override { return "fused " + to_string(Problem(p_)); }
  /// Those of more than a few queries.
  std::vector<std::string> implementations() const override { return {b_.name}; }

  int64_t workspace_bytes(std::span<const TensorRef> in, std::span<const TensorRef> out) const override {
    Sizes s(in);
    if (out[0].numel() == 0 || s.direct(in)) return 0;
    return s.batch * s.kv_heads * (s.packed_keys(b_) + s.packed_values(b_)) * 4;
  }

  void run(const RunArgs& args) const override {
    Sizes s(args.inputs);
    if (p_.carries && (args.outputs[0].numel() == 0 || !s.direct(args.inputs))) {
      Carried(args.inputs[kPastKeys], args.outputs[1]).copy_all();
      Carried(args.inputs[kPastValues], args.outputs[2]).copy_all();
    }
    if (args.outputs[0].numel() == 0) return;
    TBX_MODEL(s.kv_heads > 0 && s.heads % s.kv_heads == 0, "{} heads of queries over {} of keys", s.heads,
              s.kv_heads);
    if (s.direct(args.inputs)) return run_direct(args, s);
    pack(args, s);
    int64_t per_head = (s.queries + kQueries - 1) / kQueries;
    tbb::parallel_for(int64_t{0}, s.batch * s.heads * per_head, [&](int64_t i) {
      run_block(args, s, i / per_head / s.heads, i / per_head % s.heads, i % per_head * kQueries);
    });
  }

private:
  float* packed(const RunArgs& args, const Sizes& s, int64_t batch, int64_t kv_head) const {
    return static_cast<float*>(args.workspace) +
           (batch * s.kv_heads + kv_head) * (s.packed_keys(b_) + s.packed_values(b_));
  }

  bool in_pairs() const { return b_.per_word == 2; }

  void pack(const RunArgs& args, const Sizes& s) const {
    const TensorRef &k = args.inputs[1], &v = args.inputs[2];
    tbb::parallel_for(int64_t{0}, s.batch * s.kv_heads, [&](int64_t i) {
      int64_t b = i / s.kv_heads, h = i % s.kv_heads;
      float* to = packed(args, s, b, h);
      static thread_local std::vector<float> memory;
      if (in_pairs()) return pack_pairs(k, v, s, b, h, to, memory);
      const Matrix keys(k, b * k.strides[0] + h * k.strides[1], s.keys, s.depth, memory);
      b_.pack(keys.data, keys.column_stride, keys.row_stride, s.depth, s.keys, to);
      const Matrix values(v, b * v.strides[0] + h * v.strides[1], s.keys, s.width, memory);
      b_.pack(values.data, values.row_stride, values.column_stride, s.keys, s.width, to + s.packed_keys(b_));
    });
  }

  void pack_pairs(const TensorRef& k, const TensorRef& v, const Sizes& s, int64_t b, int64_t h, float* to,
                  std::vector<float>& memory) const {
    const int64_t depth = s.depth_words(b_), pairs = s.key_words(b_);
    memory.resize(static_cast<size_t>(std::max(s.keys * depth, pairs * s.width)));
    const auto* key = static_cast<const uint16_t*>(k.data) + b * k.strides[0] + h * k.strides[1];
    const bool are_words = k.strides[3] == 1 && k.strides[2] % 2 == 0 && s.depth == 2 * depth &&
                           reinterpret_cast<uintptr_t>(key) % 4 == 0;
    if (are_words) {
      b_.pack(reinterpret_cast<const float*>(key), 1, k.strides[2] / 2, depth, s.keys, to);
    } else {
      for (int64_t j = 0; j < s.keys; ++j)
        pair_along_row(key + j * k.strides[2], k.strides[3], s.depth, depth, memory.data() + j * depth);
      b_.pack(memory.data(), 1, depth, depth, s.keys, to);
    }
    const auto* value = static_cast<const uint16_t*>(v.data) + b * v.strides[0] + h * v.strides[1];
    for (int64_t j = 0; j < s.keys; j += 2) {
      const uint16_t* row = value + j * v.strides[2];
      const bool two = j + 1 < s.keys;
      float* pairs_of = memory.data() + j / 2 * s.width;
      if (two && v.strides[3] == 1)
        b_.pair(row, row + v.strides[2], s.width, pairs_of);
      else
        pair_rows(row, two ? row + v.strides[2] : nullptr, v.strides[3], s.width, pairs_of);
    }
    const int64_t used = (s.keys + 1) / 2;
    std::fill_n(memory.data() + used * s.width, (pairs - used) * s.width, 0.0f);
    b_.pack(memory.data(), s.width, 1, pairs, s.width, to + s.packed_keys(b_));
  }

  /// The mask of one query from `key` on; nullptr: none. Its stride along keys goes to `stride`.
  const float* mask_at(const RunArgs& args, int64_t b, int64_t h, int64_t query, int64_t key,
                       int64_t& stride) const {
    if (!p_.has_mask) return nullptr;
    const TensorRef& m = args.inputs[3];
    auto step = [&](int d) { return m.sizes[d] == 1 ? 0 : m.strides[d]; };
    stride = step(3);
    return data_of(m) + b * step(0) + h * step(1) + query * step(2) + key * stride;
  }

  void load_query(const TensorRef& q, const Sizes& s, int64_t b, int64_t h, int64_t i, float* to) const {
    const int64_t at = b * q.strides[0] + h * q.strides[1] + i * q.strides[2];
    if (is_half(q.dtype)) {
      const auto* bits = static_cast<const uint16_t*>(q.data) + at;
      if (q.strides[3] == 1)
        decode_halves(q.dtype, bits, s.depth, to);
      else
        for (int64_t d = 0; d < s.depth; ++d) decode_halves(q.dtype, bits + d * q.strides[3], 1, to + d);
      return b_.scale(to, s.depth, p_.scale, to);
    }
    const float* from = data_of(q) + at;
    if (q.strides[3] == 1) return b_.scale(from, s.depth, p_.scale, to);
    for (int64_t d = 0; d < s.depth; ++d) to[d] = from[d * q.strides[3]] * p_.scale;
  }

  void finish(const TensorRef& y, const Sizes& s, int64_t b, int64_t h, int64_t i, const RowState& row,
              float* sums) const {
    int head = p_.tokens_first ? 2 : 1;
    const int64_t at = b * y.strides[0] + h * y.strides[head] + i * y.strides[3 - head];
    const bool nothing = (p_.zero_undefined_rows && !(row.sum > 0)) || // also NaN
                         ((p_.zero_hidden_rows || s.keys == 0) && row.sum == 0);
    if (is_half(y.dtype)) {
      auto* bits = static_cast<uint16_t*>(y.data) + at;
      if (y.dtype == DType::bf16 && y.strides[3] == 1 && !nothing && b_.divide_to_bf16)
        return b_.divide_to_bf16(sums, s.width, row.sum, bits);
      if (nothing)
        std::fill_n(sums, s.width, 0.0f);
      else
        b_.divide(sums, s.width, row.sum, sums);
      if (y.strides[3] == 1)
        encode_halves(y.dtype, sums, s.width, bits);
      else
        for (int64_t d = 0; d < s.width; ++d) encode_halves(y.dtype, sums + d, 1, bits + d * y.strides[3]);
      return;
    }
    float* to = static_cast<float*>(y.data) + at;
    if (y.strides[3] == 1 && !nothing) return b_.divide(sums, s.width, row.sum, to);
    for (int64_t d = 0; d < s.width; ++d) to[d * y.strides[3]] = nothing ? 0 : sums[d] / row.sum;
  }

  /// The keys that query `i` of batch entry `b` sees: those in [first, end).
  struct Keys {
    int64_t first, end;
  };
  Keys visible(const RunArgs& args, const Sizes& s, int64_t b, int64_t i) const {
    if (!p_.causal) return {0, s.keys};
    int64_t end = i + 1;
    if (p_.has_starts) {
      const TensorRef& starts = args.inputs[4];
      end += static_cast<const int32_t*>(starts.data)[b * starts.strides[0]];
    } else if (p_.from_end) {
      end += s.keys - s.queries;
    }
    int64_t first = p_.window > 0 ? std::clamp<int64_t>(end - p_.window, 0, s.keys) : 0;
    return {first, std::clamp<int64_t>(end, first, s.keys)};
  }

  /// Before the first key. A sink is a score whose value is 0.
  RowState initial(const RunArgs& args, int64_t h) const {
    if (!p_.has_sinks) return {-std::numeric_limits<float>::infinity(), 0};
    return {data_of(args.inputs[5])[h * args.inputs[5].strides[0]], 1};
  }

  /// The keys as places in the block of the `n` keys from `block` on.
  static Keys within(Keys keys, int64_t block, int64_t n) {
    int64_t first = std::clamp<int64_t>(keys.first - block, 0, n);
    return {first, std::clamp<int64_t>(keys.end - block, first, n)};
  }

  /// The `n` scores of one query from key `key` on become what the softmax takes; gives the greatest.
  float prepare(const Blocks& by, const RunArgs& args, int64_t b, int64_t h, int64_t query, int64_t key,
                float* scores, int64_t n, float& scale) const {
    int64_t stride = 0;
    const float* mask = mask_at(args, b, h, query, key, stride);
    if (p_.softcap > 0) {
      for (int64_t j = 0; scale != 1 && j < n; ++j) scores[j] *= scale;
      scale = 1;
      by.softcap(scores, n, p_.softcap);
    }
    return by.prepare(scores, n, scale, mask, stride);
  }

  void run_block(const RunArgs& args, const Sizes& s, int64_t b, int64_t h, int64_t first) const {
    int64_t rows = std::min(kQueries, s.queries - first), width = round_up(s.width, b_.lanes);
    // A vector more: rows of a softmax may begin anywhere where there is a window, and rows whose distance is
    // a power of two take turns in a few places of a cache.
    int64_t room = std::min(kKeys, round_up(s.keys, b_.lanes)) + b_.lanes, depth = s.depth_words(b_);
    const int64_t whole = round_up(rows, b_.rows);
    float* q = scratch(static_cast<size_t>(whole * (depth + room + width)));
    // Vectors are whole only from aligned starts: scores and sums come first.
    float *scores = q, *sums = scores + whole * room;
    q = sums + whole * width;
    const Products products(b_);
    RowState state[kQueries];
    float greatest[kQueries], scales[kQueries];
    for (int64_t r = 0; r < rows; ++r) {
      const TensorRef& from = args.inputs[0];
      if (in_pairs())
        pair_along_row(static_cast<const uint16_t*>(from.data) + b * from.strides[0] + h * from.strides[1] +
                           (first + r) * from.strides[2],
                       from.strides[3], s.depth, depth, q + r * depth);
      else
        load_query(from, s, b, h, first + r, q + r * depth);
      state[r] = initial(args, h);
    }
    std::fill_n(sums, rows * width, 0.0f);
    const float* keys = packed(args, s, b, h / s.group());
    const float* values = keys + s.packed_keys(b_);
    const int64_t end = visible(args, s, b, first + rows - 1).end, share = 4 / b_.per_word;
    for (int64_t k = visible(args, s, b, first).first / kKeys * kKeys; k < end; k += kKeys) {
      // Whole panels of keys, which lie one after the other.
      const int64_t n = std::min({kKeys, s.keys - k, round_up(end - k, b_.panel)});
      b_.multiply(q, depth, rows, depth, keys + k * depth, depth, 0, n, scores, room, false);
      // The greatest of all rows first: no row waits for its own.
      for (int64_t r = 0; r < rows; ++r) {
        auto [from, to] = within(visible(args, s, b, first + r), k, n);
        scales[r] = in_pairs() ? p_.scale : 1; // queries of bfloat16 stay what they are
        greatest[r] =
            prepare(b_, args, b, h, first + r, k + from, scores + r * room + from, to - from, scales[r]);
      }
      for (int64_t r = 0; r < rows; ++r) {
        float* row = scores + r * room;
        auto* shares = reinterpret_cast<char*>(row);
        auto [from, to] = within(visible(args, s, b, first + r), k, n);
        b_.softmax(row + from, to - from, scales[r], greatest[r], state[r], sums + r * width, width,
                   shares + from * share);
        std::memset(shares, 0, static_cast<size_t>(from * share));
        std::memset(shares + to * share, 0, static_cast<size_t>((words(n, b_) * b_.per_word - to) * share));
      }
      b_.multiply(scores, room, rows, words(n, b_), values, s.key_words(b_), k / b_.per_word, s.width, sums,
                  width, true);
    }
    for (int64_t r = 0; r < rows; ++r)
      finish(args.outputs[0], s, b, h, first + r, state[r], sums + r * width);
  }

  /// Where the rows of some heads are on their way through some of the keys: numbers of one task.
  struct Rows {
    RowState* state;
    float* sums; ///< [rows, width]
  };

  /// In how many parts the keys of a head are read, for the threads: few heads would leave some of them idle.
  static int64_t parts_of(const Sizes& s) {
    const int64_t heads = s.batch * s.kv_heads, threads = tbb::this_task_arena::max_concurrency();
    if (heads % threads == 0 || heads >= kTaskWork.tasks_of_thread * threads) return 1;
    const int64_t wanted = (kTaskWork.tasks_of_thread * threads + heads - 1) / heads;
    return std::clamp<int64_t>(s.keys / kPartKeys, 1, wanted);
  }

  /// Few queries: keys and values are read where they are.
  void run_direct(const RunArgs& args, const Sizes& s) const {
    const int64_t parts = parts_of(s), heads = s.batch * s.kv_heads, rows = s.group() * s.queries;
    const int64_t floats = rows * (s.width + 2);
    const Scratch memory(heads * parts * floats * 4);
    static_assert(sizeof(RowState) == 2 * sizeof(float));
    auto rows_of = [&](int64_t item) {
      float* at = reinterpret_cast<float*>(memory.data()) + item * floats;
      return Rows{reinterpret_cast<RowState*>(at), at + 2 * rows};
    };
    tbb::parallel_for(int64_t{0}, heads * parts, [&](int64_t item) {
      const int64_t head = item / parts;
      run_part(args, s, head / s.kv_heads, head % s.kv_heads, item % parts, parts, rows_of(item));
      if (parts == 1) finish_rows(args, s, head, rows_of(item));
    });
    for (int64_t head = 0; parts > 1 && head < heads; ++head) {
      const Rows all = rows_of(head * parts);
      for (int64_t part = 1; part < parts; ++part)
        for (int64_t r = 0; r < rows; ++r)
          join(all.state[r], all.sums + r * s.width, rows_of(head * parts + part).state[r],
               rows_of(head * parts + part).sums + r * s.width, s.width);
      finish_rows(args, s, head, all);
    }
  }

  /// Adds what one row has of other keys.
  static void join(RowState& row, float* sums, const RowState& other, const float* others, int64_t width) {
    const float greatest = row.greatest > other.greatest ? row.greatest : other.greatest;
    const float shift = greatest == -std::numeric_limits<float>::infinity() ? 0 : greatest;
    const float mine = std::exp(row.greatest - shift), its = std::exp(other.greatest - shift);
    for (int64_t d = 0; d < width; ++d) sums[d] = sums[d] * mine + others[d] * its;
    row = {greatest, row.sum * mine + other.sum * its};
  }

  void finish_rows(const RunArgs& args, const Sizes& s, int64_t head, const Rows& rows) const {
    const int64_t b = head / s.kv_heads, kv = head % s.kv_heads;
    for (int64_t r = 0; r < s.group() * s.queries; ++r)
      finish(args.outputs[0], s, b, kv * s.group() + r / s.queries, r % s.queries, rows.state[r],
             rows.sums + r * s.width);
  }

  /// Tokens from `first` to before `end` of a head, those of before, go to where keys and values are. Whether
  /// they all are.
  static bool carry(const RunArgs& args, int64_t b, int64_t kv, int64_t first, int64_t end) {
    const Carried keys(args.inputs[kPastKeys], args.outputs[1]),
        values(args.inputs[kPastValues], args.outputs[2]);
    keys.copy(b, kv, first, end);
    values.copy(b, kv, first, end);
    return end <= keys.tokens();
  }

  /// `n` keys or values of a head from number `first` on.
  static Matrix rows_of(const TensorRef& t, int64_t b, int64_t kv, int64_t first, int64_t n,
                        std::vector<float>& memory) {
    return {t, b * t.strides[0] + kv * t.strides[1] + first * t.strides[2], n, t.sizes[3], memory};
  }

  /// All queries of the heads that share keys, at once, over one of `parts` parts of the keys.
  void run_part(const RunArgs& args, const Sizes& s, int64_t b, int64_t kv, int64_t part, int64_t parts,
                const Rows& into) const {
    const TensorRef &k = args.inputs[1], &v = args.inputs[2];
    const Blocks& wide = attention::blocks();
    const int64_t rows = s.group() * s.queries;
    float* scores = scratch(static_cast<size_t>(rows * (s.depth + kKeys)));
    float* q = scores + rows * kKeys;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t h = kv * s.group() + r / s.queries;
      load_query(args.inputs[0], s, b, h, r % s.queries, q + r * s.depth);
      into.state[r] = part == 0 ? initial(args, h) : RowState{-std::numeric_limits<float>::infinity(), 0};
    }
    std::fill_n(into.sums, rows * s.width, 0.0f);
    static thread_local std::vector<float> key_memory, value_memory; // of one block, of halves
    const bool alike = s.queries == 1 || !p_.causal;                 // all rows see the same keys
    const int64_t begin = visible(args, s, b, 0).first, all = visible(args, s, b, s.queries - 1).end - begin;
    const int64_t end = begin + all * (part + 1) / parts;
    if (p_.carries) { // what no query sees
      if (part == 0) carry(args, b, kv, 0, begin);
      if (part == parts - 1) carry(args, b, kv, end, s.keys);
    }
    for (int64_t first = begin + all * part / parts; first < end; first += kKeys) {
      const int64_t n = std::min(kKeys, end - first);
      // Tokens of before are read where the copy has just read them.
      const bool is_past = p_.carries && carry(args, b, kv, first, first + n);
      const Matrix keys = is_past ? rows_of(args.inputs[kPastKeys], b, kv, first, n, key_memory)
                                  : rows_of(k, b, kv, first, n, key_memory);
      const Matrix values = is_past ? rows_of(args.inputs[kPastValues], b, kv, first, n, value_memory)
                                    : rows_of(v, b, kv, first, n, value_memory);
      wide.dots(q, s.depth, rows, s.depth, keys.data, keys.row_stride, n, scores, kKeys);
      for (int64_t r = 0; r < rows; ++r) {
        int64_t h = kv * s.group() + r / s.queries, i = r % s.queries;
        auto [from, to] = within(visible(args, s, b, i), first, n);
        // To the front of the row: only there is room for whole vectors.
        float* row = scores + r * kKeys;
        if (from > 0) std::copy(row + from, row + to, row);
        float scale = 1;
        const float greatest = prepare(wide, args, b, h, i, first + from, row, to - from, scale);
        wide.softmax(row, to - from, scale, greatest, into.state[r], into.sums + r * s.width, s.width, row);
        if (alike && r + 1 < rows) continue; // the last one adds them all
        const int64_t count = alike ? rows : 1, at = alike ? 0 : r;
        wide.add_rows(scores + at * kKeys, kKeys, count, to - from, values.data + from * values.row_stride,
                      values.row_stride, s.width, into.sums + at * s.width, s.width);
      }
    }
  }

  AttentionProblem p_;
  const Blocks& b_;
};

} // namespace

std::string supports_fused_attention(const Problem& problem, std::span<const OperandInfo> inputs,
                                     std::span<const OperandInfo> outputs, const Target&) {
  if (std::get<AttentionProblem>(problem).appends) return "a new key and value";
  for (size_t i = 0; i < inputs.size(); ++i) {
    const OperandInfo& in = inputs[i];
    if (in.dtype == DType::undefined) continue;
    const bool fits =
        in.dtype == (i == 4 ? DType::i32 : DType::f32) || ((i < 3 || i > 5) && is_half(in.dtype));
    if (!fits) return fmt::format("{} operands", name_of(in.dtype));
    if (in.sizes.size() != (i == 4 || i == 5 ? 1 : 4))
      return fmt::format("an operand of rank {}", in.sizes.size());
  }
  const DType result = outputs[0].dtype;
  return result == DType::f32 || is_half(result) ? "" : fmt::format("a {} result", name_of(result));
}

std::unique_ptr<ExternKernel> make_fused_attention(const Problem& problem,
                                                   std::span<const OperandInfo> inputs,
                                                   std::span<const OperandInfo>) {
  const bool bf16 =
      std::all_of(inputs.begin(), inputs.begin() + 3, [](auto& in) { return in.dtype == DType::bf16; });
  return std::make_unique<FusedAttention>(std::get<AttentionProblem>(problem), bf16);
}

} // namespace tbx::extern_kernels
