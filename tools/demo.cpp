// tbx demo: classifies the scanned digits of examples/digits with a trained network.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <filesystem>

#include "tools/common.h"
#include "tools/files.h"
#include "tools/say.h"

namespace tbx::tools {
namespace {

struct DemoArguments {
  std::string folder;
  bool json = false;
};

/// The label in "0021_1.png" is 1.
int label_of(const std::filesystem::path& file) {
  std::string stem = file.stem();
  size_t bar = stem.rfind('_');
  if (bar == std::string::npos || stem.size() != bar + 2 ||
      !std::isdigit(static_cast<unsigned char>(stem.back())))
    throw UsageError(file.string() + ": the name does not end in _<digit>.png");
  return stem.back() - '0';
}

void demo(const DemoArguments& o, int& code) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(fs::path(o.folder) / "images") ||
      !fs::is_regular_file(fs::path(o.folder) / "digits.onnx"))
    throw UsageError(o.folder + ": expected a folder with digits.onnx and images/, such as examples/digits");
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(fs::path(o.folder) / "images"))
    if (entry.path().extension() == ".png") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  if (files.empty()) throw UsageError(o.folder + "/images has no PNG files");
  Session session = Session::compile((fs::path(o.folder) / "digits.onnx").string()).value();
  CompileStats stats = session.stats();
  const TensorInfo& input = session.inputs().at(0);
  int correct = 0;
  double run_ms = 0;
  Json rows = Json::array();
  for (const fs::path& file : files) {
    Image image = read_png(file, 1);
    std::vector<float> pixels(image.pixels.begin(), image.pixels.end());
    for (float& p : pixels) p /= 255.0f;
    auto start = std::chrono::steady_clock::now();
    auto outputs =
        session.run({{input.name, TensorView::of(pixels, {1, 1, image.height, image.width})}}).value();
    run_ms += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    auto p = outputs.at(0).values<float>();
    auto best = static_cast<int>(std::max_element(p.begin(), p.end()) - p.begin());
    correct += best == label_of(file);
    rows.push_back({{"file", file.filename().string()},
                    {"label", label_of(file)},
                    {"digit", best},
                    {"confidence", p[best]}});
  }
  double accuracy = static_cast<double>(correct) / static_cast<double>(files.size());
  if (o.json) {
    print_json({{"images", rows},
                {"accuracy", accuracy},
                {"compile_ms", stats.total_ms},
                {"run_ms", run_ms},
                {"generated_kernels", stats.generated_kernels},
                {"library_kernels", stats.extern_kernels}});
  } else {
    for (const Json& row : rows)
      say("{:14} -> {}  {:5.1f} %{}\n", row["file"].get<std::string>(), row["digit"].get<int>(),
          row["confidence"].get<double>() * 100, row["digit"] == row["label"] ? "" : "   WRONG");
    say("\n{} of {} images right: accuracy {:.1f} %\n", correct, files.size(), accuracy * 100);
    say("{} nodes -> {} generated and {} library kernels; compiled in {:.0f} ms, {:.3f} ms per image\n",
        stats.nodes, stats.generated_kernels, stats.extern_kernels, stats.total_ms,
        run_ms / static_cast<double>(files.size()));
  }
  if (accuracy < 0.9) code = kDiffers;
}

} // namespace

void add_demo(CLI::App& app, int& code) {
  auto o = std::make_shared<DemoArguments>();
  CLI::App* cmd = app.add_subcommand("demo", "classify the scanned digits of examples/digits");
  cmd->add_option("folder", o->folder, "folder with digits.onnx and images/")
      ->required()
      ->check(CLI::ExistingDirectory);
  cmd->add_flag("--json", o->json, "machine-readable output");
  cmd->footer("Examples:\n  tbx demo examples/digits\n  tbx demo examples/digits --json");
  cmd->callback([o, &code] { demo(*o, code); });
}

} // namespace tbx::tools
