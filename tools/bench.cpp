// tbx bench: latency and throughput of a model.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <numeric>
#include <optional>
#include <thread>

#include "tensorbox/device.h"
#include "tools/common.h"
#include "tools/say.h"

namespace tbx::tools {
namespace {

using Clock = std::chrono::steady_clock;

struct BenchArguments {
  ModelOptions model;
  int warmup = 3, repeat = 0, clients = 1; ///< repeat 0: by time
  double duration = 3;
  bool on_device = false;
};

/// Memory of the GPU for inputs and outputs, in whose place a run uses it.
struct OnDevice {
  std::vector<OutputTensor> held;
  Session::Inputs inputs;
  std::vector<TensorView> outputs;

  TensorView copy(const TensorView& host, const std::string& device) {
    const OutputTensor& t = held.emplace_back(to_device(host, device).value());
    return {t.data, t.type, t.dims, t.device};
  }
};

OnDevice placed(const Session& session, const Session::Inputs& in) {
  if (session.device() == kHost) throw UsageError("bench: --on-device needs --device cuda");
  const std::string device = fmt::format("cuda:{}", session.device());
  OnDevice there;
  for (const auto& [name, view] : in) there.inputs.emplace_back(name, there.copy(view, device));
  for (const OutputTensor& o : session.run(in).value())
    there.outputs.push_back(there.copy({o.data, o.type, o.dims, kHost}, device));
  return there;
}

/// Steps of a decoder are measured up to half of what its state has room for, then from the start again. One
/// that has no limit is as long as it is usual.
void make_room(const Session& session, const BenchArguments& o) {
  constexpr int64_t kUsual = 2048;
  const CompileOptions& c = o.model.compile;
  if (c.state.empty()) return;
  const int64_t most = c.state_limit > 0 ? c.state_limit : c.state_capacity > 0 ? c.state_capacity : kUsual;
  if (session.state_length() * 2 <= most) return;
  if (const auto failed = session.set_state({})) throw Exception(*failed);
}

double ms_since(Clock::time_point t) {
  return std::chrono::duration<double, std::milli>(Clock::now() - t).count();
}

/// One run: nothing, or why there was none.
using Run = std::function<std::optional<Failure>()>;

template <class T> std::optional<Failure> failure_of(const Result<T>& result) {
  return result ? std::nullopt : std::optional(result.error());
}

/// Latencies in ms of one client, until the time or the count is used up.
std::vector<double> measure(const Session& session, const Run& run, const BenchArguments& o,
                            std::atomic<bool>& failed, std::optional<Failure>& error) {
  std::vector<double> times;
  auto start = Clock::now();
  for (int i = 0; !failed && (o.repeat > 0 ? i < o.repeat : ms_since(start) < o.duration * 1000 || i < 5);
       ++i) {
    make_room(session, o);
    auto t = Clock::now();
    error = run();
    times.push_back(ms_since(t));
    if (error) failed = true;
  }
  return times;
}

double percentile(const std::vector<double>& sorted, double p) {
  return sorted[static_cast<size_t>(p * static_cast<double>(sorted.size() - 1) + 0.5)];
}

void bench(BenchArguments& o) {
  Session session = o.model.open();
  std::vector<OwnedTensor> inputs = make_inputs(session, o.model);
  const bool values = takes_or_gives_values(session); // not tensors alone
  auto run_values = [&] { return failure_of(session.run_values(values_of(inputs))); };
  Session::Inputs in = views(inputs);
  OnDevice there;
  const Run run = [&] { return values ? run_values() : failure_of(session.run(in, there.outputs)); };
  auto start = Clock::now();
  if (const auto failed = run()) {
    find_sizes(session, o.model, inputs, *failed);
    in = views(inputs);
    start = Clock::now();
    if (const auto again = run()) throw Exception(*again);
  }
  double first = ms_since(start);
  if (o.on_device) {
    there = placed(session, in);
    in = there.inputs;
  }
  for (int i = 0; i < o.warmup; ++i) {
    make_room(session, o);
    if (const auto failed = run()) throw Exception(*failed);
  }
  std::vector<std::vector<double>> per_client(o.clients);
  std::vector<std::optional<Failure>> errors(o.clients);
  std::atomic<bool> failed{false};
  start = Clock::now();
  std::vector<std::thread> clients;
  for (int c = 0; c < o.clients; ++c)
    clients.emplace_back([&, c] { per_client[c] = measure(session, run, o, failed, errors[c]); });
  for (std::thread& t : clients) t.join();
  double wall = ms_since(start);
  if (failed)
    for (const std::optional<Failure>& e : errors)
      if (e) throw Exception(*e);
  std::vector<double> all;
  for (const auto& times : per_client) all.insert(all.end(), times.begin(), times.end());
  std::sort(all.begin(), all.end());
  double mean = std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
  Json report{{"model", o.model.model},
              {"threads", session.threads()},
              {"clients", o.clients},
              {"compile_ms", session.stats().total_ms},
              {"kept_plan", session.stats().kept_plan},
              {"first_run_ms", first},
              {"runs", all.size()},
              {"min_ms", all.front()},
              {"median_ms", percentile(all, 0.5)},
              {"mean_ms", mean},
              {"p90_ms", percentile(all, 0.9)},
              {"p95_ms", percentile(all, 0.95)},
              {"p99_ms", percentile(all, 0.99)},
              {"max_ms", all.back()},
              {"runs_per_second", static_cast<double>(all.size()) / wall * 1000}};
  if (o.model.compile.tiered) report["evaluated_kernels"] = session.stats().evaluated_kernels;
  if (o.model.json) return print_json(report);
  say("{} runs, {} thread(s), {} client(s)\n", all.size(), session.threads(), o.clients);
  say("{}, first run {:.2f} ms\n", how_made(o.model, session), first);
  say("min {:.3f}  median {:.3f}  mean {:.3f}  p90 {:.3f}  p95 {:.3f}  p99 {:.3f}  max {:.3f} ms\n",
      all.front(), percentile(all, 0.5), mean, percentile(all, 0.9), percentile(all, 0.95),
      percentile(all, 0.99), all.back());
  say("{:.1f} runs/s\n", report["runs_per_second"].get<double>());
  say_tier(o.model, session);
}

} // namespace

void add_bench(CLI::App& app, int&) {
  auto o = std::make_shared<BenchArguments>();
  CLI::App* cmd = app.add_subcommand("bench", "measure latency and throughput");
  o->model.add_to(*cmd);
  o->model.add_tiered(*cmd);
  cmd->add_option("--warmup", o->warmup, "runs before measuring, besides the first (default 3)")
      ->check(CLI::Range(0, 1 << 30));
  cmd->add_option("--repeat", o->repeat, "runs to measure, per client, instead of --duration")
      ->check(CLI::Range(1, 1 << 30));
  cmd->add_option("--duration", o->duration, "seconds to measure (default 3), at least five runs")
      ->check(at_least_zero()) // which NaN is not
      ->check(CLI::Range(0.0, 86400.0));
  cmd->add_option("--clients", o->clients, "threads that call the session at once (default 1)")
      ->check(CLI::Range(1, 256));
  cmd->add_flag(
      "--on-device", o->on_device,
      "inputs and outputs in memory of the GPU (with --device cuda), without copies to and from the host");
  cmd->footer(R"(Examples:
  tbx bench model.onnx --dim batch=8 --threads 2
  tbx bench model.onnx --clients 4 --threads 1     throughput of four requests at a time
  tbx bench model.onnx --repeat 100 --json)");
  cmd->callback([o] { bench(*o); });
}

} // namespace tbx::tools
