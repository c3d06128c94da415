#include "symint_helper.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "ir/expr.h"

namespace tbx::ir {
namespace {

class Parser {
public:
  Parser(Context& c, std::string text) : c_(c), s_(std::move(text)) {}

  SymInt whole() {
    SymInt e = sum();
    skip();
    EXPECT_EQ(at_, s_.size()) << "rest not read of: " << s_;
    return e;
  }

private:
  void skip() { at_ = std::min(s_.find_first_not_of(' ', at_), s_.size()); }
  bool take(std::string_view token) {
    skip();
    if (s_.compare(at_, token.size(), token) != 0) return false;
    at_ += token.size();
    return true;
  }
  SymInt sum() {
    SymInt e = take("-") ? -term() : term();
    for (;;) {
      if (take("+"))
        e = e + term();
      else if (take("-"))
        e = e - term();
      else
        return e;
    }
  }
  SymInt term() {
    SymInt e = atom();
    for (;;) {
      if (take("*"))
        e = e * atom();
      else if (take("//"))
        e = floordiv(e, atom());
      else if (take("%"))
        e = mod(e, atom());
      else
        return e;
    }
  }
  SymInt atom() {
    if (take("(")) {
      SymInt e = sum();
      EXPECT_TRUE(take(")")) << s_;
      return e;
    }
    bool is_min = take("min(");
    if (is_min || take("max(")) {
      SymInt a = sum();
      EXPECT_TRUE(take(",")) << s_;
      SymInt b = sum();
      EXPECT_TRUE(take(")")) << s_;
      return is_min ? min(a, b) : max(a, b);
    }
    skip();
    size_t end = at_;
    while (end < s_.size() && (std::isalnum(static_cast<unsigned char>(s_[end])) || s_[end] == '_')) ++end;
    std::string word = s_.substr(at_, end - at_);
    at_ = end;
    if (word.empty()) {
      ADD_FAILURE() << "cannot read " << s_ << " at " << at_;
      at_ = s_.size();
      return 0;
    }
    if (std::isdigit(static_cast<unsigned char>(word[0]))) return SymInt(int64_t{std::stoll(word)});
    bool numbered = word.size() > 1 && std::all_of(word.begin() + 1, word.end(), ::isdigit);
    if (numbered && word[0] == 'i') return c_.var(std::stoi(word.substr(1)));
    if (numbered && word[0] == 'r') return c_.rvar(std::stoi(word.substr(1)));
    return c_.symbol(word);
  }

  Context& c_;
  std::string s_;
  size_t at_ = 0;
};

} // namespace

SymInt parse(Context& c, const std::string& text) { return Parser(c, text).whole(); }

SymInts parse_list(Context& c, const std::string& text) {
  SymInts list;
  size_t depth = 0, start = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '(') ++depth;
    if (i < text.size() && text[i] == ')') --depth;
    if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
    if (i > start) list.push_back(parse(c, text.substr(start, i - start)));
    start = i + 1;
  }
  return list;
}

void declare(Context& c) {
  for (const char* name : {"b", "s", "t", "n", "m", "H", "W"}) c.symbol(name);
  for (int k = 0; k < 5; ++k) c.var(k);
  for (int k = 0; k < 3; ++k) c.rvar(k);
}

} // namespace tbx::ir
