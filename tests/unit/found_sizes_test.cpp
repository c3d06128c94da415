// Sizes that steps find out in a run: places of buffers that wait for them.
#include <gmock/gmock.h>

#include <algorithm>

#include "base/error.h"
#include "driver/compile.h"
#include "graph_helper.h"
#include "importer/export.h"
#include "runtime/bind.h"
#include "runtime/session.h"
#include "runtime/shape_plan.h"

namespace tbx::test {
namespace {

using runtime::BufferPlan;
using runtime::Executable;
using runtime::ExternStep;
using runtime::ShapeFacts;
using runtime::ShapePlan;

/// Two stretches behind NonZero, with products so that buffers are not fused away, beside one of known sizes.
driver::Compiled compiled_model() {
  GraphHelper h;
  const Tensor weights = tensor({4, 4}, std::vector<float>(16, 0.25f));
  ValueId x = h.input("x", DType::f32, {h.symbol("n"), 4});
  auto product = [&](ValueId v, int times) {
    for (int i = 0; i < times; ++i)
      v = h.node("Softmax", {h.node("MatMul", {v, h.constant(weights)}, {}, 17)}, {{"axis", int64_t{-1}}},
                 17);
    return v;
  };
  auto taken = [&](ValueId v) {
    ValueId rows =
        h.node("ReduceMax", {v}, {{"axes", std::vector<int64_t>{1}}, {"keepdims", int64_t{0}}}, 17);
    ValueId at =
        h.node("NonZero", {h.node("Greater", {rows, h.constant(tensor({}, {0.1f}))}, {}, 17)}, {}, 17);
    ValueId places = h.node("Squeeze", {at, h.constant(ints({1}, {0}))}, {}, 17);
    return h.node("Gather", {v, places}, {{"axis", int64_t{0}}}, 17);
  };
  const std::pair<const char*, ValueId> outputs[] = {
      {"known", product(x, 5)}, {"found", product(taken(product(taken(product(x, 2)), 3)), 2)}};
  for (const auto& [name, v] : outputs) {
    h.output(v);
    h.graph.at(v).name = name;
    h.graph.at(v).type = {ValueType::tensor, DType::f32};
  }
  h.graph.opset_imports[""] = 17;
  CompileOptions options;
  options.compile = false;
  const std::string bytes = export_bytes(h.graph);
  return driver::compile(std::as_bytes(std::span(bytes)), options);
}

/// A run of the plan without its steps: `counts` are what they find, in order.
class RunOfSizes {
public:
  explicit RunOfSizes(const driver::Compiled& compiled)
      : bound_(compiled.bound), plan_(compiled.executable()), facts_(runtime::shape_facts(plan_)) {}

  void operator()(int64_t n, std::vector<int64_t> counts, int64_t border, bool exact = false) {
    std::vector<int64_t> symbols(plan_.symbol_names.size(), -1);
    symbols[plan_.bindings[0].symbol] = n;
    if (!known_ || known_->symbols != symbols) {
      known_ = std::make_shared<ShapePlan>(runtime::make_shape_plan(*bound_, symbols, facts_));
      shapes_ = *known_;
      border_ = -1;
    }
    border = std::max(border, known_->arena_bytes); // as a session does
    runtime::forget_found(facts_, *known_, shapes_, border == border_);
    border_ = border;
    check();
    size_t next = 0;
    for (size_t s = 0; s < plan_.steps.size(); ++s) {
      const auto* call = std::get_if<ExternStep>(&plan_.steps[s].what);
      if (!call || call->dynamic_outputs.empty()) continue;
      for (int symbol : call->bound_symbols) symbols[symbol] = counts.at(next);
      ++next;
      const std::vector<int64_t> borders = {border};
      runtime::extend_shape_plan(*bound_, shapes_, facts_, {s, symbols, before_, borders, {}, exact});
      check();
    }
    EXPECT_EQ(next, counts.size());
    for (const runtime::BufferShape& shape : shapes_.buffers) EXPECT_TRUE(shape.known);
    before_ = symbols;
    const ShapePlan all = fresh(symbols);
    for (size_t b = 0; b < shapes_.buffers.size(); ++b)
      EXPECT_EQ(shapes_.buffers[b].sizes, all.buffers[b].sizes) << "buffer " << b;
    for (size_t s = 0; s < shapes_.steps.size(); ++s) {
      EXPECT_EQ(shapes_.steps[s].tasks, all.steps[s].tasks) << "step " << s;
      ASSERT_EQ(shapes_.steps[s].inputs.size(), all.steps[s].inputs.size()) << "step " << s;
      for (size_t i = 0; i < shapes_.steps[s].inputs.size(); ++i)
        EXPECT_EQ(shapes_.steps[s].inputs[i].sizes, all.steps[s].inputs[i].sizes) << "step " << s;
    }
  }

  const ShapePlan& shapes() const { return shapes_; }
  const ShapePlan& known() const { return *known_; }
  const ShapeFacts& facts() const { return facts_; }
  const Executable& plan() const { return plan_; }

private:
  /// All shapes of these sizes, evaluated anew.
  ShapePlan fresh(const std::vector<int64_t>& symbols) const {
    ShapePlan p;
    for (const BufferPlan& b : plan_.buffers) p.buffers.push_back(runtime::evaluate_buffer(b, symbols));
    for (size_t s = 0; s < plan_.steps.size(); ++s)
      p.steps.push_back(runtime::evaluate_step(*bound_, s, symbols, p.buffers));
    return p;
  }

  /// No two buffers that live at a time share memory, and none lies across the border.
  void check() const {
    for (size_t a = 0; a < plan_.buffers.size(); ++a) {
      const runtime::BufferShape& one = shapes_.buffers[a];
      if (!one.known || !facts_.lives.needs_place(static_cast<int>(a))) continue;
      ASSERT_GE(one.offset, 0) << "buffer " << a;
      EXPECT_LE(one.offset + one.bytes, shapes_.arena_bytes);
      EXPECT_LE(one.bytes, one.room);
      EXPECT_TRUE(one.offset >= border_ || one.offset + one.bytes <= border_) << "buffer " << a;
      for (size_t b = 0; b < a; ++b) {
        const runtime::BufferShape& other = shapes_.buffers[b];
        const BufferPlan &p = plan_.buffers[a], &q = plan_.buffers[b];
        if (!other.known || other.offset < 0 || p.first_step > q.last_step || q.first_step > p.last_step)
          continue;
        EXPECT_TRUE(one.offset + one.room <= other.offset || other.offset + other.room <= one.offset)
            << "buffers " << a << " and " << b;
      }
    }
  }

  std::shared_ptr<const runtime::BoundExecutable> bound_;
  const Executable& plan_;
  const ShapeFacts facts_;
  std::shared_ptr<const ShapePlan> known_;
  ShapePlan shapes_;
  std::vector<int64_t> before_;
  int64_t border_ = -1;
};

TEST(FoundSizes, PlacesDoNotMeet) {
  const driver::Compiled compiled = compiled_model();
  RunOfSizes run(compiled);
  int64_t border = 0;
  for (const auto& [n, counts] : std::vector<std::pair<int64_t, std::vector<int64_t>>>{{100, {50, 20}},
                                                                                       {100, {50, 20}},
                                                                                       {100, {50, 20}},
                                                                                       {100, {50, 21}},
                                                                                       {100, {49, 21}},
                                                                                       {100, {100, 100}},
                                                                                       {100, {0, 0}},
                                                                                       {100, {1, 0}},
                                                                                       {100, {100, 1}},
                                                                                       {100, {250, 170}},
                                                                                       {100, {0, 900}},
                                                                                       {7, {7, 3}},
                                                                                       {0, {0, 0}},
                                                                                       {1000, {1000, 999}}}) {
    run(n, counts, border);
    border = std::max(border, run.shapes().arena_bytes);
  }
}

TEST(FoundSizes, WhatIsKnownFromTheInputsHasItsPlaceFromTheBeginning) {
  const driver::Compiled compiled = compiled_model();
  RunOfSizes run(compiled);
  run(100, {50, 20}, 0);
  int placed = 0, later = 0;
  for (size_t b = 0; b < run.plan().buffers.size(); ++b) {
    if (!run.facts().lives.needs_place(static_cast<int>(b))) continue;
    ++placed;
    later += run.facts().later_buffers[b];
    EXPECT_EQ(run.known().buffers[b].offset >= 0, !run.facts().later_buffers[b]);
  }
  EXPECT_GT(later, 3);
  EXPECT_GT(placed - later, 3);
}

/// What is found later takes what is free by then: the arena of the known sizes holds it.
TEST(FoundSizes, TheArenaIsUsedAgain) {
  const driver::Compiled compiled = compiled_model();
  RunOfSizes run(compiled);
  run(1000, {10, 5}, 0);
  EXPECT_LE(run.shapes().arena_bytes, run.known().arena_bytes + 1024);
}

TEST(FoundSizes, EqualRunsHaveEqualPlaces) {
  const driver::Compiled compiled = compiled_model();
  RunOfSizes run(compiled);
  run(100, {100, 90}, 0);
  const int64_t border = run.shapes().arena_bytes + 64;
  run(100, {100, 90}, border);
  EXPECT_FALSE(run.shapes().same_places) << "the arena has another border";
  EXPECT_LE(run.shapes().arena_bytes, border) << "what a run needed is enough for the next";
  run(100, {100, 90}, border);
  EXPECT_TRUE(run.shapes().same_places);
  run(100, {60, 40}, border);
  EXPECT_TRUE(run.shapes().same_places) << "places that are large enough stay";
  run(100, {101, 40}, border);
  EXPECT_FALSE(run.shapes().same_places);
}

TEST(FoundSizes, UnderALimitOfMemoryNoPlaceIsLargerThanItsBuffer) {
  const driver::Compiled compiled = compiled_model();
  RunOfSizes run(compiled);
  for (int i = 0; i < 3; ++i) run(100, {100, 90}, 1 << 20, true);
  EXPECT_TRUE(run.shapes().same_places);
  run(100, {100, 40}, 1 << 20, true);
  EXPECT_FALSE(run.shapes().same_places);
  for (const runtime::BufferShape& shape : run.shapes().buffers) EXPECT_EQ(shape.room, shape.bytes);
}

/// Of runs in which everything is found: all rows are equal after a softmax, 0.25 each.
TEST(FoundSizes, TheMostThatRunsTookIsKnown) {
  const driver::Compiled compiled = compiled_model();
  const runtime::Session session(compiled.bound, {.threads = 1});
  auto rows = [](int64_t n, std::vector<float>& x) {
    x.assign(static_cast<size_t>(n * 4), 1);
    return std::vector<runtime::RunTensor>{{x.data(), DType::f32, {n, 4}, nullptr, nullptr}};
  };
  std::vector<float> x;
  // Places, the numbers that NonZero makes, and both outputs.
  auto bytes_of = [&](int64_t n) {
    RunOfSizes run(compiled);
    run(n, {n, n}, 0);
    return run.shapes().arena_bytes + n * 8 + 2 * n * 16;
  };
  RunOfSizes known(compiled);
  known(100, {0, 0}, 0);
  EXPECT_EQ(session.most_found(), 0);
  EXPECT_EQ(session.peak_bytes(rows(100, x)), known.known().arena_bytes);
  int64_t most = 0;
  for (int64_t n : {10, 100, 40}) {
    std::vector<runtime::RunTensor> outputs(2);
    session.run(rows(n, x), outputs);
    EXPECT_EQ(outputs[1].dims, (std::vector<int64_t>{n, 4}));
    most = std::max(most, bytes_of(n));
    EXPECT_EQ(session.most_found(), most) << n << " rows";
    EXPECT_EQ(session.peak_bytes(rows(n, x)), most);
  }
  known(5000, {0, 0}, 0);
  EXPECT_EQ(session.peak_bytes(rows(5000, x)), known.known().arena_bytes) << "more than any run took";
}

} // namespace
} // namespace tbx::test
