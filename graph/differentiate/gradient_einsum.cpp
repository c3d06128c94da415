// The gradient of Einsum: "ik,kj->ij" by its first operand is "ij,kj->ik".
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "graph/differentiate/gradient_rules.h"

namespace tbx::graph {
namespace {

struct Equation {
  std::vector<std::string> terms;
  std::string result;
};

/// The terms of the equation with letters in the place of "..."; empty where sizes that broadcast meet there.
Equation read_equation(const RuleCall& c) {
  std::string text = c.text("equation", "");
  std::erase(text, ' ');
  const size_t arrow = text.find("->");
  std::string left = text.substr(0, arrow), all;
  Equation e;
  for (size_t at = 0, end = 0; at <= left.size(); at = end + 1) {
    end = std::min(left.find(',', at), left.size());
    e.terms.push_back(left.substr(at, end - at));
  }
  if (e.terms.size() != c.node.inputs.size()) return {};
  for (char ch : left)
    if (std::isalpha(static_cast<unsigned char>(ch))) all += ch;
  if (arrow != std::string::npos) {
    e.result = text.substr(arrow + 2);
  } else { // what occurs once, in order of the alphabet
    if (left.find("...") != std::string::npos) e.result = "...";
    for (char ch : std::set<char>(all.begin(), all.end()))
      if (std::count(all.begin(), all.end(), ch) == 1) e.result += ch;
  }
  std::string dots; // letters for the dimensions of "...", the last one first
  ir::SymInts sizes;
  for (size_t i = 0; i < e.terms.size(); ++i) {
    const size_t at = e.terms[i].find("...");
    if (at == std::string::npos) continue;
    const ir::SymInts& have = c.b.sizes(c.node.inputs[i]);
    if (have.size() + 3 < e.terms[i].size()) return {};
    const size_t count = have.size() + 3 - e.terms[i].size();
    std::string letters;
    for (size_t k = 0; k < count; ++k) {
      const ir::SymInt size = have[at + count - 1 - k];
      if (k == dots.size()) {
        char fresh = 'A';
        while (all.find(fresh) != std::string::npos && fresh < 'z') ++fresh;
        if (!std::isalpha(static_cast<unsigned char>(fresh))) return {};
        all += fresh;
        dots += fresh;
        sizes.push_back(size);
      }
      if (!(sizes[k] == size)) return {};
      letters.insert(letters.begin(), dots[k]);
    }
    e.terms[i].replace(at, 3, letters);
  }
  if (const size_t at = e.result.find("..."); at != std::string::npos)
    e.result.replace(at, 3, std::string(dots.rbegin(), dots.rend()));
  for (const std::string& term : e.terms) // a diagonal
    if (std::set<char>(term.begin(), term.end()).size() != term.size()) return {};
  return e;
}

} // namespace

void einsum_rule(const RuleCall& c) {
  const Equation e = read_equation(c);
  if (e.terms.empty()) return derivative_rule(c);
  for (size_t i = 0; i < e.terms.size(); ++i) {
    const int input = static_cast<int>(i);
    if (!c.needs(input)) continue;
    std::vector<ValueId> inputs{c.gradient()};
    std::string swapped = e.result, others = e.result;
    for (size_t k = 0; k < e.terms.size(); ++k) {
      if (k == i) continue;
      inputs.push_back(c.in(static_cast<int>(k)));
      swapped += "," + e.terms[k];
      others += e.terms[k];
    }
    // A letter of this term alone was summed over: its elements share the gradient.
    std::string found;
    std::vector<int64_t> alone;
    for (size_t d = 0; d < e.terms[i].size(); ++d)
      if (others.find(e.terms[i][d]) == std::string::npos)
        alone.push_back(static_cast<int64_t>(d));
      else
        found += e.terms[i][d];
    const ValueId x = c.in(input);
    ValueId g = c.b.emit_any("Einsum", inputs, x, {{"equation", fmt::format("{}->{}", swapped, found)}});
    if (!alone.empty()) {
      g = c.b.emit_any("Unsqueeze", {g, c.b.ints(alone)}, x);
      g = c.b.emit_any("Expand", {g, c.b.emit("Shape", {x}, x)}, x);
    }
    c.b.graph.at(g).type.shape = c.b.type(x).shape;
    c.give(input, g);
  }
}

} // namespace tbx::graph
