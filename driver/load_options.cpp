#include "driver/load_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace tbx::driver {

LoadOptions load_options(const CompileOptions& o) {
  const std::pair<const char*, bool> changed[] = {
      {"reference", o.reference},
      {"tiered", o.tiered},
      {"fuse", !o.fuse},
      {"fuse_extern", !o.fuse_extern},
      {"disabled_passes", !o.disabled_passes.empty()},
      {"operator_libraries", !o.operator_libraries.empty()},
      {"external_data_dir", !o.external_data_dir.empty()},
      {"dims", !o.dims.empty()},
      {"overridable", !o.overridable.empty()},
      {"precision", o.precision != "strict"},
      {"state", !o.state.empty()},
      {"all_dims_dynamic", o.all_dims_dynamic},
      {"every_value", o.every_value},
  };
  for (const auto& [name, given] : changed)
    if (given)
      throw Error(ErrorKind::model,
                  fmt::format("option {} is given for a package, which is compiled already", name),
                  "give it when the package is made");
  if (o.untrusted)
    throw Error(ErrorKind::model, "option untrusted is given for a package, which is native code",
                "run packages of those whose programs you run");
  LoadOptions load;
  load.threads = o.threads;
  load.private_threads = o.private_threads;
  load.device = o.device;
  load.isa = o.compile ? o.isa : "";
  load.evaluate = !o.compile;
  load.seed = o.seed;
  load.max_memory = o.max_memory;
  load.time_limit_ms = o.time_limit_ms;
  load.log = o.log;
  return load;
}

namespace {

std::string capacity_text(const CompileOptions& o) {
  if (o.state_limit > 0) return fmt::format("capacity {} to {}", o.state_capacity, o.state_limit);
  return o.state_capacity > 0 ? fmt::format("capacity {}", o.state_capacity) : "capacity grows";
}

} // namespace

std::vector<std::pair<std::string, std::string>> described(const CompileOptions& o) {
  std::vector<std::pair<std::string, std::string>> all;
  if (o.precision != "strict") all.emplace_back("precision", o.precision);
  for (const auto& [name, size] : o.dims) all.emplace_back("dim", fmt::format("{}={}", name, size));
  for (const std::string& name : o.overridable) all.emplace_back("overridable", name);
  for (const auto& [input, output] : o.state)
    all.emplace_back("state", fmt::format("{}={}, {}", input, output, capacity_text(o)));
  if (!o.fuse) all.emplace_back("fuse", "false");
  if (!o.fuse_extern) all.emplace_back("fuse_extern", "false");
  if (!o.disabled_passes.empty())
    all.emplace_back("disabled_passes", fmt::format("{}", fmt::join(o.disabled_passes, ", ")));
  if (o.all_dims_dynamic) all.emplace_back("all_dims_dynamic", "true");
  if (o.every_value) all.emplace_back("every_value", "true");
  return all;
}

} // namespace tbx::driver
