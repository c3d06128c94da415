// The prelude of generated code, embedded from codegen/prelude and cut into items.
//
// An item begins with a line "//@ names...", the names it provides; with "if <type>" it is wanted only where
// that element type is in use. An item without names always is. Items use only names of earlier items.
#include "codegen/prelude.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cctype>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace tbx::codegen {
namespace {

constexpr const char* kParts[] = {
#include "codegen/prelude/types.inc"
    ,
#include "codegen/prelude/memory.inc"
    ,
#include "codegen/prelude/arith.inc"
    ,
#include "codegen/prelude/convert.inc"
    ,
#include "codegen/prelude/reduce.inc"
    ,
#include "codegen/prelude/math.inc"
    ,
#include "codegen/prelude/math_f64.inc"
};

struct ElementType {
  std::string_view name, signed_type, unsigned_type;
  int bytes;
  bool floating;
};

constexpr ElementType kTypes[] = {{"i8", "i8", "u8", 1, false},    {"u8", "i8", "u8", 1, false},
                                  {"i16", "i16", "u16", 2, false}, {"u16", "i16", "u16", 2, false},
                                  {"i32", "i32", "u32", 4, false}, {"u32", "i32", "u32", 4, false},
                                  {"i64", "i64", "u64", 8, false}, {"u64", "i64", "u64", 8, false},
                                  {"f32", "i32", "u32", 4, true},  {"f64", "i64", "u64", 8, true}};

using Words = std::unordered_set<std::string_view>;

void add_words(std::string_view text, Words& words) {
  auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (size_t i = 0; i < text.size();) {
    if (!is_word(text[i])) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < text.size() && is_word(text[end])) ++end;
    words.insert(text.substr(i, end - i));
    i = end;
  }
}

struct Item {
  std::vector<std::string_view> names;
  std::string_view type; ///< empty: for all types
  std::string_view text;
  Words words;
};

std::vector<Item> parse_items() {
  std::vector<Item> items;
  for (std::string_view part : kParts) {
    size_t at = part.find("//@");
    while (at != std::string_view::npos) {
      size_t line_end = part.find('\n', at), next = part.find("\n//@", line_end);
      Item item;
      std::string_view header = part.substr(at + 3, line_end - at - 3);
      bool condition = false;
      for (size_t i = 0; i < header.size();) {
        size_t end = std::min(header.find(' ', i), header.size());
        std::string_view word = header.substr(i, end - i);
        if (condition)
          item.type = word;
        else if (word == "if")
          condition = true;
        else if (!word.empty())
          item.names.push_back(word);
        i = end + 1;
      }
      item.text = part.substr(line_end + 1, next == std::string_view::npos ? next : next - line_end);
      add_words(item.text, item.words);
      items.push_back(std::move(item));
      at = next == std::string_view::npos ? next : next + 1;
    }
  }
  return items;
}

const std::vector<Item>& items() {
  static const std::vector<Item> parsed = parse_items();
  return parsed;
}

/// The lists of types that the items' macros run over.
std::string type_lists(const std::unordered_set<std::string_view>& used) {
  auto list = [&](const char* macro, auto&& belongs) {
    std::string text = fmt::format("#define {}(X)", macro);
    for (const ElementType& t : kTypes)
      if (used.contains(t.name) && belongs(t))
        text += fmt::format(" X({}, {}, {})", t.name, t.signed_type, t.unsigned_type);
    return text + "\n";
  };
  std::string text = list("TYPES", [](const ElementType&) { return true; });
  text += list("INT_TYPES", [](const ElementType& t) { return !t.floating; });
  text += list("FLOAT_TYPES", [](const ElementType& t) { return t.floating; });
  for (int bytes : {1, 2, 4, 8})
    text += list(fmt::format("TYPES{}", bytes * 8).c_str(),
                 [&](const ElementType& t) { return t.bytes == bytes; });
  return text;
}

std::string assemble(Isa isa, const std::vector<bool>& wanted,
                     const std::unordered_set<std::string_view>& used) {
  std::string text = fmt::format("#define W {}\n", vector_bytes(isa) / 4) + type_lists(used);
  for (size_t i = 0; i < items().size(); ++i)
    if (wanted[i]) text += items()[i].text;
  return text;
}

} // namespace

std::string prelude_cpp(Isa isa) {
  std::unordered_set<std::string_view> all;
  for (const ElementType& t : kTypes) all.insert(t.name);
  return assemble(isa, std::vector<bool>(items().size(), true), all);
}

std::string prelude_for(Isa isa, const std::string& text) {
  Words words;
  add_words(text, words);
  // Masks and indices need these; pairs of signed and unsigned come together.
  std::unordered_set<std::string_view> used{"i32", "u32", "i64", "u64"};
  auto use = [&](const ElementType& t) {
    return used.insert(t.name).second | used.insert(t.signed_type).second |
           used.insert(t.unsigned_type).second;
  };
  for (const ElementType& t : kTypes)
    if (words.contains(t.name)) use(t);
  std::vector<bool> wanted(items().size(), false);
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = items().size(); i-- > 0;) {
      const Item& item = items()[i];
      if (wanted[i] || (!item.type.empty() && !used.contains(item.type))) continue;
      bool named = item.names.empty();
      for (std::string_view name : item.names) named |= words.contains(name);
      if (!named) continue;
      wanted[i] = changed = true;
      words.insert(item.words.begin(), item.words.end());
    }
    // Vectors of a type, in kernels or in items.
    for (const ElementType& t : kTypes)
      if (words.contains(fmt::format("{}v", t.name)) || words.contains(fmt::format("v{}", t.name)))
        changed |= use(t);
  }
  return assemble(isa, wanted, used);
}

uint64_t prelude_hash(Isa isa) {
  static const uint64_t of_parts = [] {
    uint64_t hash = 0;
    for (std::string_view part : kParts) hash = XXH3_64bits_withSeed(part.data(), part.size(), hash);
    return hash;
  }();
  const int bytes = vector_bytes(isa);
  return XXH3_64bits_withSeed(&bytes, sizeof bytes, of_parts);
}

} // namespace tbx::codegen
