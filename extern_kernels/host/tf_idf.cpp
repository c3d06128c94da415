#include "extern_kernels/host/tf_idf.h"

#include <algorithm>
#include <type_traits>

namespace tbx::extern_kernels {
namespace {

constexpr int64_t kMaxColumns = int64_t{1} << 31;

int64_t required_integer(const Attributes& attributes, const char* name) {
  const auto* value = find_attribute<int64_t>(attributes, name);
  TBX_MODEL(value, "attribute '{}' is missing", name);
  return *value;
}

/// Calls use(first token in the pool, tokens, number of the n-gram) for each n-gram.
template <class Token, class Use> void for_each_gram(const TfIdf<Token>& t, const Use& use) {
  size_t gram = 0;
  for (size_t n = 1; n <= t.starts.size(); ++n) {
    const auto end = n < t.starts.size() ? static_cast<size_t>(t.starts[n]) : t.pool.size();
    for (auto begin = static_cast<size_t>(t.starts[n - 1]); begin + n <= end; begin += n)
      use(begin, n, gram++);
  }
}

/// Where the n-grams of each length begin in the pool, checked against its size. Gives their number.
template <class Token> size_t count_grams(const TfIdf<Token>& t) {
  TBX_MODEL(!t.starts.empty(), "attribute 'ngram_counts' is missing or empty");
  const auto total = static_cast<int64_t>(t.pool.size());
  for (size_t i = 0; i < t.starts.size(); ++i) {
    const int64_t end = i + 1 < t.starts.size() ? t.starts[i + 1] : total;
    TBX_MODEL(t.starts[i] >= 0 && t.starts[i] <= end && end <= total,
              "ngram_counts does not fit a pool of {} items", total);
  }
  size_t grams = 0;
  for_each_gram(t, [&](size_t, size_t, size_t) { ++grams; });
  return grams;
}

} // namespace

template <class Token> TfIdf<Token> read_tf_idf(const Attributes& attributes) {
  constexpr bool numbers = std::is_same_v<Token, int64_t>;
  const char *own = numbers ? "pool_int64s" : "pool_strings",
             *other = numbers ? "pool_strings" : "pool_int64s";
  using Integers = std::vector<int64_t>;
  TfIdf<Token> t;
  t.pool = attribute_or<std::vector<Token>>(attributes, own, {});
  TBX_MODEL(!t.pool.empty() && attributes.count(other) == 0, "{} need attribute '{}' and not '{}'",
            numbers ? "integers" : "strings", own, other);
  t.starts = attribute_or<Integers>(attributes, "ngram_counts", {});
  t.columns = attribute_or<Integers>(attributes, "ngram_indexes", {});
  const auto mode = attribute_or<std::string>(attributes, "mode", "");
  TBX_MODEL(mode == "TF" || mode == "IDF" || mode == "TFIDF", "mode is '{}', expected TF, IDF or TFIDF",
            mode);
  t.once = mode == "IDF";
  t.shortest = required_integer(attributes, "min_gram_length");
  t.longest = required_integer(attributes, "max_gram_length");
  t.max_skip = required_integer(attributes, "max_skip_count");
  TBX_MODEL(t.shortest > 0 && t.shortest <= t.longest, "n-grams of {} to {} items", t.shortest, t.longest);
  TBX_MODEL(t.max_skip >= 0, "max_skip_count is {}", t.max_skip);
  const size_t grams = count_grams(t);
  TBX_MODEL(t.columns.size() >= grams && grams > 0, "ngram_indexes has {} entries for {} n-grams",
            t.columns.size(), grams);
  const auto [least, most] = std::minmax_element(t.columns.begin(), t.columns.end());
  TBX_MODEL(*least >= 0 && *most < kMaxColumns, "ngram_indexes holds {}", *least < 0 ? *least : *most);
  t.width = *most + 1;
  const auto given = attribute_or<std::vector<double>>(attributes, "weights", {});
  TBX_MODEL(given.empty() || given.size() >= t.columns.size(), "{} weights for {} n-grams", given.size(),
            t.columns.size());
  if (mode == "TF" || given.empty()) return t;
  t.weights.resize(static_cast<size_t>(t.width));
  for (size_t i = t.columns.size(); i-- > 0;) // of n-grams of one column the first counts
    t.weights[static_cast<size_t>(t.columns[i])] = static_cast<float>(given[i]);
  return t;
}

template TfIdf<int64_t> read_tf_idf(const Attributes&);
template TfIdf<std::string> read_tf_idf(const Attributes&);

template <class Token>
TfIdfCounter<Token>::TfIdfCounter(const TfIdf<Token>& what)
    : weights_(what.weights), once_(what.once), shortest_(what.shortest), longest_(what.longest),
      max_skip_(what.max_skip), width_(what.width) {
  for_each_gram(what, [&](size_t begin, size_t n, size_t gram) {
    if (const auto length = static_cast<int64_t>(n); length >= shortest_ && length <= longest_)
      trie_.add(std::span(what.pool).subspan(begin, n), what.columns[gram]);
  });
}

/// Vector by vector, as no compiler writes it that does not know whether the two lie over each other.
static void scale(std::span<float> counts, std::span<const float> weights) {
  typedef float Lanes __attribute__((vector_size(32)));
  constexpr size_t kLanes = sizeof(Lanes) / sizeof(float);
  size_t i = 0;
  for (; i + kLanes <= weights.size(); i += kLanes) {
    Lanes a, b;
    __builtin_memcpy(&a, &counts[i], sizeof a);
    __builtin_memcpy(&b, &weights[i], sizeof b);
    a *= b;
    __builtin_memcpy(&counts[i], &a, sizeof a);
  }
  for (; i < weights.size(); ++i) counts[i] *= weights[i];
}

template <class Token>
void TfIdfCounter<Token>::count(std::span<const Token> row, std::span<float> counts) const {
  check_stop_often();
  std::fill(counts.begin(), counts.end(), 0.f);
  std::vector<uint32_t> numbers;
  trie_.number(row, numbers);
  trie_.count(numbers, shortest_, longest_, max_skip_, counts);
  if (once_)
    for (float& c : counts) c = std::min(c, 1.f);
  scale(counts, weights_);
}

template class TfIdfCounter<int64_t>;
template class TfIdfCounter<std::string>;

} // namespace tbx::extern_kernels
