// Operators on tensors of strings: StringConcat, StringSplit, StringNormalizer, RegexFullMatch.
#include <locale.h>
#include <re2/re2.h>
#include <string.h>
#include <wctype.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "base/budget.h"
#include "runtime/value_op.h"
#include "runtime/value_ops/expression.h"

namespace tbx::runtime {
namespace {

std::vector<int64_t> broadcast(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  std::vector<int64_t> out(std::max(a.size(), b.size()), 1);
  for (size_t k = 0; k < out.size(); ++k) {
    int64_t x = k < a.size() ? a[a.size() - 1 - k] : 1, y = k < b.size() ? b[b.size() - 1 - k] : 1;
    TBX_MODEL(x == y || x == 1 || y == 1, "shapes [{}] and [{}] do not broadcast", fmt::join(a, ", "),
              fmt::join(b, ", "));
    out[out.size() - 1 - k] = x == 1 ? y : x;
  }
  return out;
}

/// Strides of a tensor of `dims` read in a shape of `rank` dimensions: 0 where it is broadcast.
std::vector<int64_t> read_strides(const std::vector<int64_t>& dims, size_t rank) {
  std::vector<int64_t> strides(rank, 0);
  int64_t step = 1;
  for (size_t k = 0; k < dims.size(); ++k) {
    size_t d = dims.size() - 1 - k;
    strides[rank - 1 - k] = dims[d] == 1 ? 0 : step;
    step *= dims[d];
  }
  return strides;
}

// --- StringSplit

constexpr const char* kBlank = " \t\n\v\f\r";

using Parts = std::vector<std::string_view>;

/// As Python's str.split: without a delimiter, runs of white space separate. Appends to `parts`.
void split_blank(std::string_view s, int64_t limit, Parts& parts) {
  const size_t before = parts.size();
  for (size_t at = s.find_first_not_of(kBlank); at != s.npos;) {
    bool rest = limit >= 0 && static_cast<int64_t>(parts.size() - before) >= limit;
    size_t end = rest ? s.npos : s.find_first_of(kBlank, at);
    parts.push_back(s.substr(at, end == s.npos ? end : end - at));
    at = end == s.npos ? end : s.find_first_not_of(kBlank, end);
  }
}

void split_at(std::string_view s, std::string_view delimiter, int64_t limit, Parts& parts) {
  const size_t before = parts.size();
  for (size_t from = 0;;) {
    bool rest = limit >= 0 && static_cast<int64_t>(parts.size() - before) >= limit;
    // memmem reads the text once, std::string_view::find once for each place where the two begin alike.
    const void* at =
        rest ? nullptr : memmem(s.data() + from, s.size() - from, delimiter.data(), delimiter.size());
    if (!at) return parts.push_back(s.substr(from));
    const auto length = static_cast<size_t>(static_cast<const char*>(at) - s.data()) - from;
    parts.push_back(s.substr(from, length));
    from += length + delimiter.size();
  }
}

// --- StringNormalizer

/// Upper or lower case of text in UTF-8; bytes that are no UTF-8 stay as they are.
class CaseChanger {
public:
  explicit CaseChanger(const std::string& name) {
    for (const std::string& candidate : {name + ".UTF-8", name, std::string("C.UTF-8")})
      if (!locale_ && candidate != ".UTF-8" && !candidate.empty())
        locale_ = newlocale(LC_CTYPE_MASK, candidate.c_str(), nullptr);
  }
  CaseChanger(const CaseChanger&) = delete;
  ~CaseChanger() {
    if (locale_) freelocale(locale_);
  }

  std::string operator()(const std::string& s, bool upper) const {
    std::string out;
    out.reserve(s.size());
    for (size_t i = 0; i < s.size();) {
      uint32_t code = 0;
      size_t n = decode(s, i, code);
      if (n == 0) {
        out += s[i++];
        continue;
      }
      i += n;
      encode(change(code, upper), out);
    }
    return out;
  }

private:
  uint32_t change(uint32_t code, bool upper) const {
    if (!locale_) {
      if (upper) return code >= 'a' && code <= 'z' ? code - 32 : code;
      return code >= 'A' && code <= 'Z' ? code + 32 : code;
    }
    auto c = static_cast<wint_t>(code);
    return static_cast<uint32_t>(upper ? towupper_l(c, locale_) : towlower_l(c, locale_));
  }

  /// The bytes of the character at `i`; 0 when there is none.
  static size_t decode(const std::string& s, size_t i, uint32_t& code) {
    auto byte = [&](size_t k) { return static_cast<uint8_t>(s[k]); };
    uint8_t first = byte(i);
    size_t n = first < 0x80 ? 1 : first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 0;
    if (n == 0 || first >= 0xf8 || i + n > s.size()) return 0;
    code = n == 1 ? first : first & (0x7fu >> n);
    for (size_t k = 1; k < n; ++k) {
      if ((byte(i + k) & 0xc0) != 0x80) return 0;
      code = code << 6 | (byte(i + k) & 0x3fu);
    }
    return n;
  }

  static void encode(uint32_t c, std::string& out) {
    auto put = [&](uint32_t b) { out += static_cast<char>(b); };
    if (c < 0x80) {
      put(c);
    } else if (c < 0x800) {
      put(0xc0 | c >> 6);
      put(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
      put(0xe0 | c >> 12);
      put(0x80 | (c >> 6 & 0x3f));
      put(0x80 | (c & 0x3f));
    } else {
      put(0xf0 | c >> 18);
      put(0x80 | (c >> 12 & 0x3f));
      put(0x80 | (c >> 6 & 0x3f));
      put(0x80 | (c & 0x3f));
    }
  }

  locale_t locale_ = nullptr;
};

} // namespace

void begin_match(const RE2& expression, size_t bytes) {
  constexpr int64_t kMost = int64_t{1} << 34, kShort = 1 << 16; // about a minute, 0.2 ms
  int64_t steps = 0;
  TBX_MODEL(!__builtin_mul_overflow(bytes, expression.ProgramSize(), &steps) && steps <= kMost,
            "a string of {} bytes is too long for a regular expression of {} instructions", bytes,
            expression.ProgramSize());
  steps < kShort ? check_stop_often() : check_stop();
}

ValueFunction make_string_concat(const ValueNode&) {
  return [](const ValueCall& call) {
    const Tensor &a = call.tensor(0, DType::string), &b = call.tensor(1, DType::string);
    std::vector<int64_t> dims = broadcast(a.dims, b.dims);
    auto as = read_strides(a.dims, dims.size()), bs = read_strides(b.dims, dims.size());
    auto& out = call.make_strings(0, dims);
    std::vector<int64_t> index(dims.size(), 0);
    int64_t i = 0, j = 0, bytes = 0;
    for (std::string& s : out) {
      check_stop_often();
      const std::string &first = (*a.strings)[i], &second = (*b.strings)[j];
      bytes += static_cast<int64_t>(sizeof(std::string) + first.size() + second.size());
      call.need(bytes, 1);
      s = first + second;
      for (size_t d = dims.size(); d-- > 0;) {
        i += as[d];
        j += bs[d];
        if (++index[d] < dims[d]) break;
        i -= as[d] * dims[d];
        j -= bs[d] * dims[d];
        index[d] = 0;
      }
    }
  };
}

/// [...] -> parts [..., most], padded with empty strings, and their number [...].
ValueFunction make_string_split(const ValueNode& node) {
  std::string delimiter = node.text("delimiter", "");
  int64_t limit = node.integer("maxsplit", -1);
  return [delimiter, limit](const ValueCall& call) {
    const Tensor& x = call.tensor(0, DType::string);
    Parts parts;
    std::vector<size_t> ends;
    size_t most = 0;
    for (const std::string& s : *x.strings) {
      check_stop_often();
      const size_t before = parts.size();
      delimiter.empty() ? split_blank(s, limit, parts) : split_at(s, delimiter, limit, parts);
      ends.push_back(parts.size());
      most = std::max(most, parts.size() - before);
    }
    std::vector<int64_t> dims = x.dims, counts_dims = x.dims;
    dims.push_back(static_cast<int64_t>(most));
    auto& out = call.make_strings(0, std::move(dims));
    int64_t* counts = call.outputs.size() > 1
                          ? call.make(1, DType::i64, std::move(counts_dims)).as_mutable<int64_t>().data()
                          : nullptr;
    for (size_t i = 0, begin = 0; i < ends.size(); begin = ends[i++]) {
      if (counts) counts[i] = static_cast<int64_t>(ends[i] - begin);
      for (size_t k = begin; k < ends[i]; ++k) out[i * most + k - begin] = parts[k];
    }
  };
}

/// [C] or [1, C] -> the strings that are no stop words, one empty string where none is left.
ValueFunction make_string_normalizer(const ValueNode& node) {
  std::string action = node.text("case_change_action", "NONE");
  TBX_MODEL(action == "NONE" || action == "LOWER" || action == "UPPER",
            "attribute 'case_change_action' is '{}', expected NONE, LOWER or UPPER", action);
  bool sensitive = node.integer("is_case_sensitive", 0) != 0;
  auto change = std::make_shared<const CaseChanger>(node.text("locale", "en_US"));
  std::unordered_set<std::string> stop;
  for (const std::string& word : node.texts("stopwords"))
    stop.insert(sensitive ? word : (*change)(word, false));
  return [action, sensitive, change, stop](const ValueCall& call) {
    const Tensor& x = call.tensor(0, DType::string);
    TBX_MODEL(x.dims.size() == 1 || (x.dims.size() == 2 && x.dims[0] == 1),
              "the input has shape [{}], expected [C] or [1, C]", fmt::join(x.dims, ", "));
    std::vector<std::string> kept;
    for (const std::string& s : *x.strings) {
      check_stop_often();
      if (!stop.empty() && stop.count(sensitive ? s : (*change)(s, false))) continue;
      kept.push_back(action == "NONE" ? s : (*change)(s, action == "UPPER"));
    }
    if (kept.empty()) kept.emplace_back();
    std::vector<int64_t> dims = x.dims;
    dims.back() = static_cast<int64_t>(kept.size());
    call.make_strings(0, std::move(dims)) = std::move(kept);
  };
}

ValueFunction make_regex_full_match(const ValueNode& node) {
  TBX_MODEL(node.has("pattern"), "attribute 'pattern' is missing");
  auto pattern = std::make_shared<const RE2>(node.text("pattern", ""), RE2::Quiet);
  TBX_MODEL(pattern->ok(), "attribute 'pattern' is no regular expression: {}", pattern->error());
  return [pattern](const ValueCall& call) {
    const Tensor& x = call.tensor(0, DType::string);
    auto out = call.make(0, DType::boolean, x.dims).as_mutable<uint8_t>();
    for (size_t i = 0; i < out.size(); ++i) {
      const std::string& s = (*x.strings)[i];
      begin_match(*pattern, s.size());
      out[i] = RE2::FullMatch(s, *pattern);
    }
  };
}

} // namespace tbx::runtime
