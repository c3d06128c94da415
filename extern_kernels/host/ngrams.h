// N-grams of a vocabulary in a trie, and their counts in a sequence with skips (TfIdfVectorizer).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "base/budget.h"

namespace tbx::extern_kernels {

/// Numbers by number, in one block of memory: what does not have its place lies behind it.
class NumberTable {
public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  /// The number of `key`; `fresh` where it has none yet.
  uint32_t find_or_add(uint64_t key, uint32_t fresh) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[place_of(key)];
    if (slot.value == kNone) slot = {key, fresh}, ++size_;
    return slot.value;
  }
  uint32_t find(uint64_t key) const { return slots_.empty() ? kNone : slots_[place_of(key)].value; }

private:
  struct Slot {
    uint64_t key = 0;
    uint32_t value = kNone;
  };

  size_t place_of(uint64_t key) const {
    const size_t mask = slots_.size() - 1;
    size_t at = key * 0x9e3779b97f4a7c15u >> (64 - std::bit_width(mask));
    while (slots_[at].value != kNone && slots_[at].key != key) at = (at + 1) & mask;
    return at;
  }
  void grow() {
    std::vector<Slot> old(std::max<size_t>(16, 2 * slots_.size()));
    old.swap(slots_);
    for (const Slot& slot : old)
      if (slot.value != kNone) slots_[place_of(slot.key)] = slot;
  }

  std::vector<Slot> slots_; ///< a power of two of them, half of them free at least
  size_t size_ = 0;
};

/// Token: int64_t or std::string. Immutable once filled. Tokens of the vocabulary are numbers from 0 on.
template <class Token> class NgramTrie {
public:
  static constexpr uint32_t kNone = NumberTable::kNone;

  /// Adds an n-gram that counts for `column`; of equal ones the first stays.
  void add(std::span<const Token> gram, int64_t column) {
    uint32_t at = 0;
    for (const Token& t : gram) {
      const auto fresh = static_cast<uint32_t>(nodes_.size());
      const uint32_t token = number_or_add(t);
      if (token == first_.size()) first_.push_back(kNone);
      if (at > 0)
        at = edges_.find_or_add(edge(at, token), fresh);
      else
        at = first_[token] = first_[token] == kNone ? fresh : first_[token];
      if (at == fresh) nodes_.push_back(-1);
    }
    if (nodes_[at] < 0) nodes_[at] = column;
  }

  /// The numbers of a row's tokens; kNone where the vocabulary has no such one.
  void number(std::span<const Token> row, std::vector<uint32_t>& to) const {
    to.resize(row.size());
    std::transform(row.begin(), row.end(), to.begin(), [&](const Token& t) { return number_of(t); });
  }

  /// Adds to counts[column] for every n-gram of `shortest` to `longest` tokens that lie 1 to max_skip + 1
  /// apart. Single tokens are counted once.
  void count(std::span<const uint32_t> row, int64_t shortest, int64_t longest, int64_t max_skip,
             std::span<float> counts) const {
    auto size = static_cast<int64_t>(row.size());
    for (int64_t step = 1; step - 1 <= max_skip && step <= size; ++step) {
      if (shortest > size) return; // and no product of what the model says overflows
      for (int64_t start = 0; start + step * (shortest - 1) < size; ++start) {
        if ((start & 255) == 255) check_stop();
        uint32_t at = 0;
        for (int64_t n = 1, i = start; n <= longest && i < size; ++n, i += step) {
          const uint32_t token = row[static_cast<size_t>(i)];
          if (token == kNone) break;
          at = n == 1 ? first_[token] : edges_.find(edge(at, token));
          if (at == kNone) break;
          if (n >= shortest && nodes_[at] >= 0) counts[static_cast<size_t>(nodes_[at])] += 1;
        }
      }
      if (shortest == 1 && ++shortest > longest) break;
    }
  }

private:
  static constexpr bool kNumbers = std::is_same_v<Token, int64_t>;

  static uint64_t edge(uint32_t node, uint32_t token) { return uint64_t{node} << 32 | token; }
  uint32_t number_or_add(const Token& t) {
    const auto fresh = static_cast<uint32_t>(tokens_);
    uint32_t found;
    if constexpr (kNumbers)
      found = numbers_.find_or_add(static_cast<uint64_t>(t), fresh);
    else
      found = numbers_.try_emplace(t, fresh).first->second;
    tokens_ += found == fresh;
    return found;
  }
  uint32_t number_of(const Token& t) const {
    if constexpr (kNumbers) {
      return numbers_.find(static_cast<uint64_t>(t));
    } else {
      const auto it = numbers_.find(t);
      return it == numbers_.end() ? kNone : it->second;
    }
  }

  std::conditional_t<kNumbers, NumberTable, std::unordered_map<std::string, uint32_t>> numbers_;
  size_t tokens_ = 0;
  std::vector<uint32_t> first_;       ///< by token, the node of n-grams that begin with it
  NumberTable edges_;                 ///< from another node by a token to the next one
  std::vector<int64_t> nodes_ = {-1}; ///< the column of each; -1: ends no n-gram
};

} // namespace tbx::extern_kernels
