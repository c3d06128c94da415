// The n-grams of a TfIdfVectorizer, of numbers or strings: read from its attributes, counted in rows of
// tokens.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "extern_kernels/attributes.h"
#include "extern_kernels/host/ngrams.h"

namespace tbx::extern_kernels {

/// Token: int64_t or std::string.
template <class Token> struct TfIdf {
  std::vector<Token> pool;      ///< the n-grams one after another, short ones first
  std::vector<int64_t> starts;  ///< where in the pool those of 1, 2, ... tokens begin
  std::vector<int64_t> columns; ///< that they count for, by n-gram
  std::vector<float> weights;   ///< by column; empty: all 1
  bool once = false;            ///< an n-gram that is there counts 1, however often
  int64_t shortest = 1, longest = 1, max_skip = 0;
  int64_t width = 0; ///< number of columns
};

/// Of a node, from its attributes as in the file. ModelError where they do not fit each other.
template <class Token> TfIdf<Token> read_tf_idf(const Attributes& attributes);

/// Immutable.
template <class Token> class TfIdfCounter {
public:
  explicit TfIdfCounter(const TfIdf<Token>& what);

  int64_t width() const { return width_; }
  /// The weighted counts of the n-grams in one row of tokens; `counts` has `width` elements.
  void count(std::span<const Token> row, std::span<float> counts) const;

private:
  NgramTrie<Token> trie_;
  std::vector<float> weights_;
  bool once_;
  int64_t shortest_, longest_, max_skip_, width_;
};

extern template class TfIdfCounter<int64_t>;
extern template class TfIdfCounter<std::string>;

} // namespace tbx::extern_kernels
