// Threads that run new sessions of a package with many shapes at once: what many_shapes.py does with models,
// by the runtime alone, which is small enough to be built with the thread sanitizer (preset tsan).
//
//   tbx_package_shapes PACKAGE [runs=20] [threads=8] [shapes=24]
//
// The package has one float32 input; its dimensions with names get small sizes. A run is a new session, every
// third time one for each two threads; every second has sessions of one thread, every fourth runs kernels in
// the evaluator. Results are held against those of a session that nothing runs beside.
#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tensorbox/tensorbox.h"

namespace {

using namespace tbx;

struct Feed {
  std::vector<int64_t> dims;
  std::vector<float> values;
  std::vector<std::vector<float>> wanted; ///< of each output
};

Session loaded(const std::string& package, int threads, bool evaluate) {
  LoadOptions options;
  options.threads = threads;
  options.evaluate = evaluate;
  auto session = Session::load(package, options);
  if (!session.ok()) {
    std::fprintf(stderr, "%s\n", session.error().message.c_str());
    std::exit(2);
  }
  return std::move(session).value();
}

std::vector<std::vector<float>> results(const Session& session, Feed& feed) {
  auto outputs = session.run({{session.inputs()[0].name, TensorView::of(feed.values, feed.dims)}});
  std::vector<std::vector<float>> all;
  if (!outputs.ok()) std::fprintf(stderr, "%s\n", outputs.error().message.c_str());
  if (outputs.ok())
    for (const OutputTensor& t : outputs.value()) {
      const auto values = t.values<float>();
      all.emplace_back(values.begin(), values.end());
    }
  return all;
}

bool close(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size()) return false;
    for (size_t k = 0; k < a[i].size(); ++k)
      if (!(std::abs(a[i][k] - b[i][k]) <= 1e-4f * (1 + std::abs(b[i][k])))) return false;
  }
  return true;
}

std::vector<Feed> feeds_for(const Session& session, int count, std::mt19937& random) {
  std::vector<Feed> feeds(static_cast<size_t>(count));
  for (Feed& feed : feeds) {
    size_t n = 1;
    for (const std::string& d : session.inputs()[0].dims) {
      const long fixed = std::strtol(d.c_str(), nullptr, 10);
      feed.dims.push_back(fixed > 0 ? fixed : 1 + static_cast<int64_t>(random() % 24));
      n *= static_cast<size_t>(feed.dims.back());
    }
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < n; ++i) feed.values.push_back(normal(random));
  }
  return feeds;
}

int one_run(const std::string& package, int number, int threads, int shapes) {
  std::mt19937 random(static_cast<unsigned>(number));
  std::vector<Feed> feeds;
  {
    const Session alone = loaded(package, 1, true);
    feeds = feeds_for(alone, shapes, random);
    for (Feed& feed : feeds) feed.wanted = results(alone, feed);
  }
  std::vector<Session> sessions;
  for (int i = 0; i < (number % 3 == 0 ? threads / 2 : 1); ++i)
    sessions.push_back(loaded(package, 1 + number % 2, number % 4 == 3));
  std::vector<int> wrong(static_cast<size_t>(threads));
  std::barrier gate(threads);
  std::vector<std::thread> workers;
  for (int k = 0; k < threads; ++k)
    workers.emplace_back([&, k, seed = random()] {
      std::vector<Feed> own = feeds;
      std::shuffle(own.begin(), own.end(), std::mt19937(seed));
      gate.arrive_and_wait();
      for (Feed& feed : own)
        wrong[static_cast<size_t>(k)] +=
            !close(results(sessions[static_cast<size_t>(k) % sessions.size()], feed), feed.wanted);
    });
  int all = 0;
  for (int k = 0; k < threads; ++k) {
    workers[static_cast<size_t>(k)].join();
    all += wrong[static_cast<size_t>(k)];
  }
  return all;
}

} // namespace

int main(int argc, char** argv) {
  auto number = [&](int i, int otherwise) { return argc > i ? std::atoi(argv[i]) : otherwise; };
  if (argc < 2) return std::fprintf(stderr, "usage: %s PACKAGE [runs] [threads] [shapes]\n", argv[0]), 2;
  const int runs = number(2, 20), threads = number(3, 8), shapes = number(4, 24);
  int wrong = 0;
  for (int i = 0; i < runs; ++i) wrong += one_run(argv[1], i, threads, shapes);
  std::printf("%d runs of %d threads and %d shapes: %d results are wrong\n", runs, threads, shapes, wrong);
  return wrong ? 1 : 0;
}
