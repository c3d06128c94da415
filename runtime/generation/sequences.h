// The sequences of tokens that a search works on: all of the same length.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tbx::runtime {

class Sequences {
public:
  Sequences(int64_t rows, int64_t max_length)
      : rows_(rows), max_length_(max_length), tokens_(static_cast<size_t>(rows * max_length)),
        next_(tokens_) {}

  int64_t rows() const { return rows_; }
  int64_t max_length() const { return max_length_; }
  int64_t length() const { return length_; }
  std::span<const int32_t> row(int64_t i) const {
    return {tokens_.data() + i * max_length_, static_cast<size_t>(length_)};
  }

  /// All sequences, `each` of which are those of a row of `prompt`, start with that row.
  void start(std::span<const int32_t> prompt, int64_t length, int64_t each) {
    for (int64_t i = 0; i < rows_; ++i)
      std::copy_n(prompt.begin() + i / each * length, length, tokens_.begin() + i * max_length_);
    length_ = length;
  }

  /// Sequence `i` goes on with tokens[i] behind what sequence parents[i] was. Needs room for one more token.
  void append(std::span<const int32_t> tokens, std::span<const int32_t> parents) {
    for (int64_t i = 0; i < rows_; ++i) {
      auto from = row(parents[static_cast<size_t>(i)]);
      auto to = next_.begin() + i * max_length_;
      *std::copy(from.begin(), from.end(), to) = tokens[static_cast<size_t>(i)];
    }
    std::swap(tokens_, next_);
    ++length_;
  }

private:
  int64_t rows_, max_length_, length_ = 0;
  std::vector<int32_t> tokens_, next_;
};

} // namespace tbx::runtime
