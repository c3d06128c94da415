// Searches in sequences of tokens for text generation: NGramRepeatBlock, BifurcationDetector; and the path of
// DynamicTimeWarping.
#include <algorithm>
#include <limits>

#include "base/budget.h"
#include "base/error.h"
#include "extern_kernels/host/host_kernel.h"

namespace tbx::extern_kernels {

/// A token that would end an n-gram which the sequence already has gets the score -inf.
void run_ngram_repeat_block(const HostCall& call) {
  const TensorRef &ids = call.in(0), &scores = call.in(1);
  const int64_t batch = ids.sizes[0], length = ids.sizes[1], vocabulary = scores.sizes[1];
  const int64_t n = call.integer("ngram_size");
  TBX_MODEL(scores.sizes[0] == batch, "NGramRepeatBlock: {} rows of tokens, {} of scores", batch,
            scores.sizes[0]);
  auto* out = static_cast<float*>(call.out(0).data);
  std::copy_n(static_cast<const float*>(scores.data), batch * vocabulary, out);
  for (int64_t b = 0; b < batch && n <= length; ++b) {
    const int64_t* row = static_cast<const int64_t*>(ids.data) + b * length;
    const int64_t* tail = row + length - (n - 1);
    for (int64_t i = 0; i + n <= length; ++i) {
      check_stop_often();
      if (!std::equal(tail, row + length, row + i)) continue;
      int64_t token = row[i + n - 1];
      TBX_MODEL(token >= 0 && token < vocabulary, "NGramRepeatBlock: token {} in a vocabulary of {}", token,
                vocabulary);
      out[b * vocabulary + token] = -std::numeric_limits<float>::infinity();
    }
  }
}

/// The predicted tokens up to the first that differs from the source (that one included) behind the current
/// ones; then where the longest n-gram at their end occurs exactly once in the source ends there, or -1.
void run_bifurcation_detector(const HostCall& call) {
  const TensorRef &source = call.in(0), &current = call.in(1);
  const auto* src = static_cast<const int64_t*>(source.data);
  const int64_t src_length = source.sizes[0];
  std::vector<int64_t> tokens;
  tokens.assign(static_cast<const int64_t*>(current.data),
                static_cast<const int64_t*>(current.data) + current.sizes[0]);
  if (call.has(3)) {
    const int64_t begin = static_cast<const int64_t*>(call.in(2).data)[0], predicted = call.in(3).sizes[0];
    TBX_MODEL(begin >= 0 && begin <= src_length,
              "BifurcationDetector: prev_suffix_match_idx is {} for {} source tokens", begin, src_length);
    TBX_MODEL(predicted == src_length - begin + 1, "BifurcationDetector: {} predicted tokens, expected {}",
              predicted, src_length - begin + 1);
    const auto* guess = static_cast<const int64_t*>(call.in(3).data);
    int64_t same = std::mismatch(src + begin, src + src_length, guess).first - (src + begin);
    tokens.insert(tokens.end(), guess, guess + same + 1);
  }
  const auto length = static_cast<int64_t>(tokens.size());
  auto is_same = [](int64_t a, int64_t b) {
    check_stop_often();
    return a == b;
  };
  int64_t found = -1;
  for (int64_t n = call.integer("min_ngram_size"); n <= call.integer("max_ngram_size") && n <= length; ++n) {
    auto gram = tokens.end() - n;
    const auto* at = std::search(src, src + src_length, gram, tokens.end(), is_same);
    if (at == src + src_length) break;
    found = at - src + n;
    if (found >= src_length) break;
    if (std::search(at + 1, src + src_length, gram, tokens.end(), is_same) != src + src_length) found = -1;
  }
  std::copy(tokens.begin(), tokens.end(), static_cast<int64_t*>(call.make(0, std::vector{length})));
  std::vector<int64_t> shape(call.in(2).sizes.begin(), call.in(2).sizes.end());
  *static_cast<int64_t*>(call.make(1, shape)) = found;
}

/// The cheapest way through a matrix of costs from its first element to its last; on ties as Whisper's.
void run_dynamic_time_warping(const HostCall& call) {
  const TensorRef& x = call.in(0);
  const int64_t m = x.sizes[0], n = x.sizes[1], width = n + 1;
  const auto* cost = static_cast<const float*>(x.data);
  constexpr float kFar = std::numeric_limits<float>::infinity();
  enum : int8_t { kBoth, kRow, kColumn };
  std::vector<float> total(static_cast<size_t>(width), kFar), above;
  std::vector<int8_t> from(static_cast<size_t>((m + 1) * width), kColumn);
  total[0] = 0;
  for (int64_t i = 1; i <= m; ++i) {
    above = total;
    total[0] = kFar;
    from[i * width] = kRow;
    for (int64_t j = 1; j <= n; ++j) {
      float both = above[j - 1], row = above[j], column = total[j - 1];
      int8_t how = both < row && both < column ? kBoth : row < both && row < column ? kRow : kColumn;
      total[j] = cost[(i - 1) * n + j - 1] + (how == kBoth ? both : how == kRow ? row : column);
      from[i * width + j] = how;
    }
  }
  std::vector<std::pair<int64_t, int64_t>> path;
  for (int64_t i = m, j = n; i > 0 && j > 0;) {
    path.emplace_back(i - 1, j - 1);
    int8_t how = from[i * width + j];
    i -= how != kColumn;
    j -= how != kRow;
  }
  const auto steps = static_cast<int64_t>(path.size());
  auto* out = static_cast<int32_t*>(call.make(0, std::vector<int64_t>{2, steps}));
  for (int64_t k = 0; k < steps; ++k) {
    out[k] = static_cast<int32_t>(path[steps - 1 - k].first);
    out[steps + k] = static_cast<int32_t>(path[steps - 1 - k].second);
  }
}

} // namespace tbx::extern_kernels
