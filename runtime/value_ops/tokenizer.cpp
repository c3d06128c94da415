// com.microsoft Tokenizer, which scikit-learn's text vectorizers are converted to: strings into words by an
// expression for words, by separators, or into characters. Behaves as ONNX Runtime's.
#include <re2/re2.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "base/budget.h"
#include "runtime/value_op.h"
#include "runtime/value_ops/expression.h"

namespace tbx::runtime {
namespace {

using Tokens = std::vector<std::string_view>;
using Expression = std::shared_ptr<const RE2>;

/// Bytes of the character in UTF-8 at the start of `s`; ModelError when there is none. `s` is not empty.
size_t character(std::string_view s) {
  auto first = static_cast<uint8_t>(s[0]);
  size_t n = first < 0x80    ? 1
             : first >= 0xf8 ? 0
             : first >= 0xf0 ? 4
             : first >= 0xe0 ? 3
             : first >= 0xc2 ? 2
                             : 0;
  bool whole = n != 0 && n <= s.size();
  for (size_t k = 1; whole && k < n; ++k) whole = (static_cast<uint8_t>(s[k]) & 0xc0) == 0x80;
  TBX_MODEL(whole, "an input string is no UTF-8");
  return n;
}

size_t characters(std::string_view s) {
  size_t n = 0;
  for (; !s.empty(); ++n) s.remove_prefix(character(s));
  return n;
}

Tokens split_characters(std::string_view s) {
  Tokens tokens;
  while (!s.empty()) {
    size_t n = character(s);
    tokens.push_back(s.substr(0, n));
    s.remove_prefix(n);
  }
  return tokens;
}

/// The next match at or behind `from`: leftmost, then longest.
bool find(const RE2& expression, std::string_view s, size_t from, size_t& at, size_t& length) {
  begin_match(expression, s.size() - from);
  re2::StringPiece match, text(s.data(), s.size());
  if (!expression.Match(text, from, s.size(), RE2::UNANCHORED, &match, 1)) return false;
  at = static_cast<size_t>(match.data() - s.data());
  length = match.size();
  return true;
}

/// What matches `word` and has at least `shortest` characters.
Tokens match_words(const RE2& word, std::string_view s, size_t shortest) {
  Tokens tokens;
  for (size_t from = 0, at, length; find(word, s, from, at, length);) {
    std::string_view token = s.substr(at, length);
    bool taken = length > 0 && characters(token) >= shortest;
    if (taken) tokens.push_back(token);
    if (!taken && at == s.size()) break;
    from = at + (taken ? length : character(s.substr(at)));
  }
  return tokens;
}

/// What lies between matches of the separators, which apply one after the other.
Tokens split_at(const std::vector<Expression>& separators, std::string_view s, size_t shortest) {
  Tokens tokens{s};
  for (const Expression& separator : separators) {
    Tokens parts;
    auto keep = [&](std::string_view part) {
      if (characters(part) >= shortest) parts.push_back(part);
    };
    for (std::string_view text : tokens) {
      size_t from = 0;
      for (size_t at, length; find(*separator, text, from, at, length);) {
        keep(text.substr(from, at - from));
        if (length == 0 && at == text.size()) {
          from = at;
          break;
        }
        from = at + (length > 0 ? length : character(text.substr(at)));
      }
      keep(text.substr(from));
    }
    tokens = std::move(parts);
  }
  return tokens;
}

Expression compile(const std::string& text, const char* attribute) {
  RE2::Options options(RE2::Quiet);
  options.set_longest_match(true);
  auto expression = std::make_shared<const RE2>(text, options);
  TBX_MODEL(expression->ok(), "attribute '{}' holds '{}', which is no regular expression: {}", attribute,
            text, expression->error());
  return expression;
}

} // namespace

/// Strings [C] or [N, C] -> tokens [C, T] or [N, C, T], T the most of one string, the others padded.
ValueFunction make_tokenizer(const ValueNode& node) {
  for (const char* name : {"mark", "pad_value", "mincharnum"})
    TBX_MODEL(node.has(name), "attribute '{}' is missing", name);
  bool mark = node.integer("mark", 0) != 0;
  std::string pad = node.text("pad_value", "");
  int64_t least = node.integer("mincharnum", 0);
  TBX_MODEL(least > 0, "attribute 'mincharnum' is {}, expected at least 1", least);
  auto shortest = static_cast<size_t>(least);
  std::vector<std::string> separators = node.texts("separators");
  std::string word = node.text("tokenexp", "");
  TBX_MODEL(!separators.empty() || !word.empty(),
            "one of the attributes 'separators' and 'tokenexp' must be given, not empty");
  bool single = separators.empty() ? word == "." : separators.size() == 1 && separators[0].empty();
  TBX_MODEL(!single || shortest < 2, "attribute 'mincharnum' is {}, but tokens are characters", least);
  std::function<Tokens(std::string_view)> split = split_characters;
  if (!single && separators.empty()) {
    split = [expression = compile(word, "tokenexp"), shortest](std::string_view s) {
      return match_words(*expression, s, shortest);
    };
  } else if (!single) {
    std::vector<Expression> expressions;
    expressions.reserve(separators.size());
    for (const std::string& s : separators) expressions.push_back(compile(s, "separators"));
    split = [expressions, shortest](std::string_view s) { return split_at(expressions, s, shortest); };
  }
  return [=](const ValueCall& call) {
    const Tensor& x = call.tensor(0, DType::string);
    TBX_MODEL(x.dims.size() == 1 || x.dims.size() == 2, "the input has rank {}, expected 1 or 2",
              x.dims.size());
    std::vector<Tokens> rows;
    size_t most = 0;
    for (const std::string& s : *x.strings) {
      check_stop_often();
      rows.push_back(split(s));
      most = std::max(most, rows.back().size());
    }
    std::vector<int64_t> dims = x.dims;
    if (rows.empty()) { // as ONNX Runtime: [0] for [0], [N, 0] for [N, C]
      dims.back() = 0;
      call.make_strings(0, std::move(dims));
      return;
    }
    size_t length = most == 0 ? 0 : most + (mark ? 2 : 0);
    dims.push_back(static_cast<int64_t>(length));
    call.need(checked_numel(dims), static_cast<int64_t>(sizeof(std::string) + pad.size()));
    auto& out = call.make_strings(0, std::move(dims));
    for (size_t i = 0; length > 0 && i < rows.size(); ++i) {
      check_stop_often();
      auto to = out.begin() + static_cast<std::ptrdiff_t>(i * length),
           end = to + static_cast<std::ptrdiff_t>(length);
      if (mark) *to++ = "\x02";
      for (std::string_view token : rows[i]) *to++ = std::string(token);
      if (mark) *to++ = "\x03";
      std::fill(to, end, pad);
    }
  };
}

} // namespace tbx::runtime
