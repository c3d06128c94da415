// TfIdfVectorizer: the vocabulary checked, then a host kernel (extern_kernels/host/tf_idf_vectorizer.cpp).
#include <algorithm>

#include "lowering/ops/families.h"
#include "lowering/ops/host_call.h"

namespace tbx::lowering {
namespace {

constexpr int64_t kMaxColumns = int64_t{1} << 31;

/// Where the n-grams of each length begin in the pool, checked against its size. Gives their number.
int64_t count_grams(const std::vector<int64_t>& starts, int64_t pool) {
  int64_t grams = 0;
  TBX_MODEL(!starts.empty(), "attribute 'ngram_counts' is missing or empty");
  for (size_t i = 0; i < starts.size(); ++i) {
    int64_t end = i + 1 < starts.size() ? starts[i + 1] : pool;
    TBX_MODEL(starts[i] >= 0 && starts[i] <= end && end <= pool,
              "ngram_counts does not fit a pool of {} items", pool);
    grams += (end - starts[i]) / static_cast<int64_t>(i + 1);
  }
  return grams;
}

std::vector<LoweredValue> tf_idf_vectorizer(OpContext& ctx) {
  SymInts sizes = ctx.sizes(0);
  TBX_MODEL(sizes.size() <= 2, "the input has rank {}, expected 1 or 2", sizes.size());
  TBX_MODEL(is_integer(ctx.dtype(0)), "the input is of type {}", name_of(ctx.dtype(0)));
  std::vector<int64_t> pool = ctx.attr_ints("pool_int64s"), starts = ctx.attr_ints("ngram_counts"),
                       columns = ctx.attr_ints("ngram_indexes");
  TBX_MODEL(!pool.empty() && !ctx.has_attr("pool_strings"),
            "a tensor of integers needs attribute 'pool_int64s' and not 'pool_strings'");
  std::string mode = ctx.attr_string("mode", "");
  TBX_MODEL(mode == "TF" || mode == "IDF" || mode == "TFIDF", "mode is '{}', expected TF, IDF or TFIDF",
            mode);
  int64_t shortest = ctx.required_int("min_gram_length"), longest = ctx.required_int("max_gram_length"),
          skip = ctx.required_int("max_skip_count");
  TBX_MODEL(shortest > 0 && shortest <= longest, "n-grams of {} to {} items", shortest, longest);
  TBX_MODEL(skip >= 0, "max_skip_count is {}", skip);
  int64_t grams = count_grams(starts, static_cast<int64_t>(pool.size()));
  TBX_MODEL(static_cast<int64_t>(columns.size()) >= grams && grams > 0,
            "ngram_indexes has {} entries for {} n-grams", columns.size(), grams);
  auto [least, most] = std::minmax_element(columns.begin(), columns.end());
  TBX_MODEL(*least >= 0 && *most < kMaxColumns, "ngram_indexes holds {}", *least < 0 ? *least : *most);
  int64_t width = *most + 1;
  std::vector<float> given = ctx.attr_floats("weights");
  TBX_MODEL(given.empty() || given.size() >= columns.size(), "{} weights for {} n-grams", given.size(),
            columns.size());
  std::vector<double> weights(given.empty() ? 0 : static_cast<size_t>(width), 0.0); // by column
  for (size_t i = columns.size(); i-- > 0 && !given.empty();) weights[columns[i]] = given[i];
  SymInts out = sizes.size() == 2 ? SymInts{sizes[0], width} : SymInts{width};
  return host_call(ctx, {{DType::f32, out}},
                   {{"mode", mode},
                    {"weights", std::move(weights)},
                    {"pool", std::move(pool)},
                    {"ngram_counts", std::move(starts)},
                    {"ngram_indexes", std::move(columns)},
                    {"min_gram_length", shortest},
                    {"max_gram_length", longest},
                    {"max_skip_count", skip}});
}

} // namespace

void register_tf_idf(Registry& r) { r.add("TfIdfVectorizer", since(9), tf_idf_vectorizer); }

} // namespace tbx::lowering
