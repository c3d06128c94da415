// tbx doctor: what is here to compile and run models with, and what is missing.
#include "driver/doctor.h"

#include <fmt/format.h>

#include "tools/common.h"
#include "tools/say.h"

namespace tbx::tools {

void add_doctor(CLI::App& app, int&) {
  auto json = std::make_shared<bool>(false);
  CLI::App* cmd =
      app.add_subcommand("doctor", "what was found to compile and run models with, what is missing");
  cmd->add_flag("--json", *json, "one JSON array on stdout");
  cmd->footer(
      R"(Looks for the C++ compiler, the kernel cache, NVIDIA's libraries (docs/gpu.md) and GPUs. What is missing is no
error: it is needed for --device cuda only, but for the compiler.
Examples:
  tbx doctor
  tbx doctor --json)");
  cmd->callback([json] {
    const std::vector<driver::Finding> all = driver::look_around();
    Json rows = Json::array();
    for (const driver::Finding& f : all) {
      if (*json) {
        rows.push_back({{"what", f.what},
                        {"purpose", f.purpose},
                        {"found", f.found},
                        {"version", f.version},
                        {"where", f.where},
                        {"problem", f.problem}});
        continue;
      }
      say("{:8} {:20} {}{}{}\n", f.found ? "found" : "missing", f.what, f.version,
          f.version.empty() ? "" : "  ", f.found ? name_text(f.where) : "(" + f.purpose + ")");
      if (!f.problem.empty()) say("         {}\n", f.problem);
    }
    if (*json) print_json(rows);
  });
}

} // namespace tbx::tools
