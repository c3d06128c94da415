#include "tools/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "tools/say.h"

namespace tbx::tools {
namespace {

constexpr int kRow = 22, kTop = 96, kDots = 150, kText = 168, kName = 420, kBars = 730, kBarWidth = 250,
              kWidth = 1120;

/// Between tags and in attributes. Names come from models: controls are escaped by name_text, and the two
/// other characters that XML cannot hold, U+FFFE and U+FFFF, are replaced.
std::string xml(const std::string& text) {
  std::string out, safe = name_text(text);
  for (size_t i = 0; (i = safe.find("\xef\xbf", i)) != std::string::npos; i += 3)
    if (i + 2 < safe.size() && static_cast<unsigned char>(safe[i + 2]) >= 0xbe) safe[i + 2] = '\xbd';
  for (char c : safe) switch (c) {
    case '<': out += "&lt;"; break;
    case '>': out += "&gt;"; break;
    case '&': out += "&amp;"; break;
    case '"': out += "&quot;"; break;
    default: out += c;
    }
  return out;
}

/// At most so many bytes of UTF-8.
std::string cut(const std::string& text, size_t longest) {
  if (text.size() <= longest) return text;
  size_t end = longest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

/// The library's kernel; of a generated one the first node.
std::string name_of(const KernelReport& k) {
  if (k.kind == "extern" || k.nodes.empty()) return k.name;
  return k.nodes[0].substr(0, k.nodes[0].rfind(" ("));
}

/// "Conv + Relu" of "conv1 (Conv)" and "relu1 (Relu)"; several of a type are "3 Mul".
std::string types_of(const KernelReport& k) {
  std::vector<std::pair<std::string, int>> types;
  for (const std::string& node : k.nodes) {
    const size_t open = node.rfind('('), close = node.rfind(')');
    const bool typed = open != std::string::npos && close == node.size() - 1;
    const std::string type = typed ? node.substr(open + 1, close - open - 1) : node;
    const auto known =
        std::find_if(types.begin(), types.end(), [&](const auto& t) { return t.first == type; });
    if (known == types.end())
      types.emplace_back(type, 1);
    else
      ++known->second;
  }
  std::string out;
  for (const auto& [type, count] : types) {
    out += out.empty() ? "" : " + ";
    out += count > 1 ? fmt::format("{} {}", count, type) : type;
  }
  return out.empty() ? k.name : out;
}

std::string of_bytes(double bytes) {
  constexpr std::array kUnits = {"B", "KB", "MB", "GB", "TB"};
  size_t unit = 0;
  for (; bytes >= 1000 && unit + 1 < kUnits.size(); ++unit) bytes /= 1000;
  return fmt::format("{:.3g} {}", bytes, kUnits[unit]);
}
std::string of_time(double ns) {
  return ns < 1e6 ? fmt::format("{:.3g} us", ns / 1e3) : fmt::format("{:.3g} ms", ns / 1e6);
}

class Picture {
public:
  explicit Picture(const std::vector<KernelReport>& kernels) : kernels_(kernels) {
    timed_ = std::any_of(kernels.begin(), kernels.end(), [](const KernelReport& k) { return k.time_ns > 0; });
    for (const KernelReport& k : kernels) {
      all_ += weight(k);
      most_ = std::max(most_, weight(k));
      of_kind_[k.kind].first += 1;
      of_kind_[k.kind].second += weight(k);
    }
  }

  std::string text(const std::string& title) {
    const size_t height = kTop + kRow * kernels_.size() + kRow;
    out_ = fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
                       "height=\"{1}\">\n{2}",
                       kWidth, height, kStyle);
    line(24, 28, "head", xml(cut(title, 110)));
    line(24, 50, "",
         fmt::format("{} kernels, {}; bars: {}", kernels_.size(), amount(all_),
                     timed_ ? "time of one run" : "bytes moved"));
    legend();
    for (size_t i = 0; i < kernels_.size(); ++i) sources(i);
    for (size_t i = 0; i < kernels_.size(); ++i) row(i);
    return out_ + "</svg>\n";
  }

private:
  static constexpr const char* kStyle = R"(<style>
text { font: 13px system-ui, sans-serif; fill: #222 } .head { font-weight: bold; font-size: 16px } .dim { fill: #777 }
.back { fill: #fff } .edge { fill: none; stroke: #999; stroke-opacity: .55 } g:hover .bar { stroke: #222 }
.generated { fill: #2a78b8 } .extern { fill: #d9822b } .evaluated { fill: #b23a48 } .copy { fill: #6b7a3a }
@media (prefers-color-scheme: dark) { text { fill: #ddd } .dim { fill: #999 } .back { fill: #1b1b1b }
  .edge { stroke: #888 } g:hover .bar { stroke: #eee } }
</style>
<rect class="back" width="100%" height="100%"/>
)";

  double weight(const KernelReport& k) const {
    return static_cast<double>(std::max<int64_t>(0, timed_ ? k.time_ns : k.bytes));
  }
  std::string amount(double weight) const { return timed_ ? of_time(weight) : of_bytes(weight); }
  double percent(double weight) const { return all_ > 0 ? 100 * weight / all_ : 0; }
  static size_t y_of(size_t kernel) { return kTop + kRow * kernel + kRow / 2; }

  void line(int x, size_t y, const char* kind, const std::string& escaped) {
    out_ += fmt::format("<text x=\"{}\" y=\"{}\" class=\"{}\">{}</text>\n", x, y, kind, escaped);
  }

  void legend() {
    static constexpr std::array<std::pair<const char*, const char*>, 4> kKinds = {
        {{"generated", "generated"},
         {"extern", "of libraries"},
         {"evaluated", "by the evaluator"},
         {"copy", "copies between devices"}}};
    int x = 24;
    for (const auto& [kind, text] : kKinds) {
      const auto found = of_kind_.find(kind);
      if (found == of_kind_.end()) continue;
      const auto [count, weight] = found->second;
      out_ += fmt::format("<rect class=\"{}\" x=\"{}\" y=\"64\" width=\"12\" height=\"12\"/>\n", kind, x);
      line(x + 18, 75, "", fmt::format("{} {}, {:.0f} %", count, text, percent(weight)));
      x += 250;
    }
  }

  /// Arcs to the left, wider the farther they reach.
  void sources(size_t i) {
    for (int from : kernels_[i].reads_from) {
      const auto source = static_cast<size_t>(from);
      if (from < 0 || source >= i) continue;
      const double reach =
          i - source == 1 ? 0 : std::min(130.0, 14 + 15 * std::log2(static_cast<double>(i - source)));
      out_ += fmt::format("<path class=\"edge\" d=\"M{0} {1} C{2:.0f} {1} {2:.0f} {3} {0} {3}\"/>\n", kDots,
                          y_of(source), kDots - reach, y_of(i));
    }
  }

  void row(size_t i) {
    const KernelReport& k = kernels_[i];
    const std::string kind = xml(k.kind);
    const double width = most_ > 0 ? kBarWidth * weight(k) / most_ : 0;
    const size_t y = y_of(i);
    out_ += fmt::format("<g><title>{}</title>\n", details(i));
    out_ += fmt::format(
        "<rect class=\"back\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill-opacity=\"0\"/>\n", kText,
        y - kRow / 2, kWidth - kText, kRow);
    out_ += fmt::format("<circle class=\"{}\" cx=\"{}\" cy=\"{}\" r=\"4\"/>\n", kind, kDots, y);
    line(kText, y + 4, "", xml(cut(types_of(k), 32)));
    line(kName, y + 4, "dim", xml(cut(name_of(k), 42)));
    out_ += fmt::format("<rect class=\"bar {}\" x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\"/>\n", kind,
                        kBars, y - kRow / 2 + 4, width, kRow - 8);
    out_ += fmt::format("<text x=\"{:.0f}\" y=\"{}\" class=\"dim\">{}, {:.1f} %</text>\n</g>\n",
                        kBars + width + 8, y + 4, amount(weight(k)), percent(weight(k)));
  }

  std::string details(size_t i) const {
    const KernelReport& k = kernels_[i];
    std::string out = fmt::format("{} {} {} on {}\n", i, xml(k.kind), xml(k.name), xml(k.device));
    for (const std::string& node : k.nodes) out += xml(node) + "\n";
    for (const std::string& decision : k.decisions) out += "· " + xml(decision) + "\n";
    out += fmt::format("{}, {:.3g} MFLOP", of_bytes(static_cast<double>(k.bytes)), k.flops / 1e6);
    if (k.time_ns > 0) out += fmt::format(", {}", of_time(static_cast<double>(k.time_ns)));
    return out;
  }

  const std::vector<KernelReport>& kernels_;
  bool timed_ = false;
  double all_ = 0, most_ = 0;
  std::map<std::string, std::pair<int, double>> of_kind_; ///< how many, and what they weigh
  std::string out_;
};

} // namespace

std::string picture_of(const std::string& title, const std::vector<KernelReport>& kernels) {
  return Picture(kernels).text(title);
}

} // namespace tbx::tools
