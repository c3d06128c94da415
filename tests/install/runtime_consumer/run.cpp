// run PACKAGE: what run.c does, in C++.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tensorbox/tensorbox.h"

int main(int argc, char** argv) {
  auto loaded = tbx::Session::load(argc > 1 ? argv[1] : "", {.threads = 1});
  if (!loaded) {
    std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
    return 1;
  }
  const tbx::Session session = std::move(loaded).value();
  const tbx::TensorInfo& in = session.inputs()[0];
  std::vector<int64_t> dims;
  size_t n = 1;
  for (const std::string& d : in.dims) {
    dims.push_back(std::atoll(d.c_str()) > 0 ? std::atoll(d.c_str()) : 2);
    n *= static_cast<size_t>(dims.back());
  }
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i) / 8;
  auto outputs = session.run({{in.name, tbx::TensorView::of(x, dims)}}).value();
  for (size_t o = 0; o < outputs.size(); ++o) {
    std::printf("%s %s", outputs[o].name.c_str(), session.outputs()[o].type_name.c_str());
    for (float v : outputs[o].values<float>()) std::printf(" %a", static_cast<double>(v));
    std::printf("\n");
  }
}
