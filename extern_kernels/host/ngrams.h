// N-grams of a vocabulary in a trie, and their counts in a sequence with skips (TfIdfVectorizer).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/budget.h"

namespace tbx::extern_kernels {

/// Token: int64_t or std::string. Immutable once filled.
template <class Token> class NgramTrie {
public:
  /// Adds an n-gram that counts for `column`; of equal ones the first stays.
  void add(std::span<const Token> gram, int64_t column) {
    size_t at = 0;
    for (const Token& t : gram) {
      auto [it, fresh] = nodes_[at].next.try_emplace(t, nodes_.size());
      at = it->second;
      if (fresh) nodes_.emplace_back();
    }
    if (nodes_[at].column < 0) nodes_[at].column = column;
  }

  /// Adds to counts[column] for every n-gram of `shortest` to `longest` tokens that lie 1 to max_skip + 1
  /// apart. Single tokens are counted once.
  void count(std::span<const Token> row, int64_t shortest, int64_t longest, int64_t max_skip,
             std::span<float> counts) const {
    auto size = static_cast<int64_t>(row.size());
    for (int64_t step = 1; step - 1 <= max_skip && step <= size; ++step) {
      if (shortest > size) return; // and no product of what the model says overflows
      for (int64_t start = 0; start + step * (shortest - 1) < size; ++start) {
        check_stop_often();
        size_t at = 0;
        for (int64_t n = 1, i = start; n <= longest && i < size; ++n, i += step) {
          auto it = nodes_[at].next.find(row[static_cast<size_t>(i)]);
          if (it == nodes_[at].next.end()) break;
          at = it->second;
          if (n >= shortest && nodes_[at].column >= 0) counts[static_cast<size_t>(nodes_[at].column)] += 1;
        }
      }
      if (shortest == 1 && ++shortest > longest) break;
    }
  }

private:
  struct Node {
    std::unordered_map<Token, size_t> next;
    int64_t column = -1;
  };
  std::vector<Node> nodes_{1};
};

} // namespace tbx::extern_kernels
