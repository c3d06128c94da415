// tbx ops: the operators, how each runs, and the test cases that pass.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/common.h"
#include "tools/say.h"

namespace tbx::tools {
namespace {

/// What the tests say of an operator when the table was last written.
struct OpCases {
  std::string_view domain, name;
  int passing, all;                     ///< of the backend suite
  std::string_view generated, versions; ///< "27 of 27"; "7: 4 of 4, T: double, ... | 13: ..."
};
constexpr OpCases kCases[] = {
#include "tools/op_cases.inc"
};

void add_cases(Json& row) {
  const auto domain = row["domain"].get<std::string>(), name = row["name"].get<std::string>();
  auto matches = [&](const OpCases& c) { return c.domain == domain && c.name == name; };
  const OpCases* c = std::find_if(std::begin(kCases), std::end(kCases), matches);
  if (c == std::end(kCases)) return;
  if (c->all > 0) row["suite"] = fmt::format("{} of {}", c->passing, c->all);
  if (!c->generated.empty()) row["generated"] = c->generated;
  row["versions"] = Json::array();
  for (std::string_view rest = c->versions; !rest.empty();) {
    size_t end = std::min(rest.find(" | "), rest.size());
    row["versions"].push_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 3, rest.size()));
  }
}

Json operator_rows() {
  Json all = Json::array();
  for (const OperatorInfo& op : operators())
    all.push_back({{"domain", op.domain.empty() ? "ai.onnx" : op.domain},
                   {"name", op.name},
                   {"since", op.since},
                   {"how", op.how}});
  for (Json& row : all) add_cases(row);
  return all;
}

/// The operators of these names, with or without their domain; all of them for no name.
Json rows_of(const std::vector<std::string>& names) {
  Json all = operator_rows();
  if (names.empty()) return all;
  Json found = Json::array();
  for (const std::string& name : names) {
    size_t before = found.size();
    for (const Json& row : all)
      if (row["name"] == name ||
          row["domain"].get<std::string>() + "." + row["name"].get<std::string>() == name)
        found.push_back(row);
    if (found.size() == before)
      throw UsageError(
          fmt::format("there is no operator '{}'; `tbx ops` lists all (names are case-sensitive)", name));
  }
  return found;
}

std::string since_text(const Json& op) {
  return fmt::format("{}", fmt::join(op["since"].get<std::vector<int>>(), ", "));
}

} // namespace

void add_ops(CLI::App& app, int&) {
  auto cases = std::make_shared<bool>(false);
  auto json = std::make_shared<bool>(false);
  auto names = std::make_shared<std::vector<std::string>>();
  CLI::App* cmd = app.add_subcommand("ops", "list the supported operators and their opsets");
  cmd->add_option("operators", *names, "only these operators, such as Add or com.microsoft.Gelu");
  cmd->add_flag("--json", *json, "one JSON array on stdout");
  cmd->add_flag("--cases", *cases, "test cases by version and type as well");
  cmd->footer(R"(Examples:
  tbx ops
  tbx ops Conv Resize --cases
  tbx ops --json
How: compiled (into kernels), values (on the host, between kernels), body (through the function ONNX defines).
Cases: of the ONNX backend suite, and generated ones, that pass, where there are any.)");
  cmd->callback([json, cases, names] {
    Json all = rows_of(*names);
    if (*json) return print_json(all);
    for (const Json& op : all) {
      say("{:28} {:32} {:8} since {}", op["domain"].get<std::string>(), op["name"].get<std::string>(),
          op["how"].get<std::string>(), since_text(op));
      const char* before = "; ";
      for (const char* kind : {"suite", "generated"})
        if (op.contains(kind)) say("{}{} {}", std::exchange(before, ", "), kind, op[kind].get<std::string>());
      say("\n");
      for (const std::string& version : op.value("versions", std::vector<std::string>()))
        if (*cases) say("    opset {}\n", version);
    }
    say("{} operators\n", all.size());
  });
}

} // namespace tbx::tools
