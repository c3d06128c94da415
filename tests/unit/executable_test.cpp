// Executables are data: verified, printed, bound.
#include "runtime/executable.h"

#include <gmock/gmock.h>
#include <tbb/task_arena.h>

#include <cstring>
#include <functional>

#include "driver/compile.h"
#include "graph_helper.h"
#include "importer/export.h"
#include "package/evaluated_module.h"
#include "runtime/bind.h"
#include "runtime/session.h"
#include "runtime/shape_plan.h"
#include "runtime/verify.h"

namespace tbx::test {
namespace {

using runtime::Executable;
using runtime::ExternStep;
using runtime::KernelStep;
using runtime::SizeExpr;
using testing::HasSubstr;

/// y = softmax(x w), z = the positions where y > 0.5, with x [batch, 3]: a product, generated kernels and a
/// step whose output sizes depend on data.
driver::Compiled compiled_model(bool with_positions = true) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {h.symbol("batch"), 3});
  ValueId product = h.node("MatMul", {x, h.constant(tensor({3, 2}, {1, -2, 3, 0.5f, 0, 1}))}, {}, 17);
  ValueId y = h.node("Softmax", {product}, {{"axis", int64_t{-1}}}, 17);
  h.output(y);
  h.graph.at(y).name = "y";
  h.graph.at(y).type = {ValueType::tensor, DType::f32};
  if (with_positions) {
    ValueId z = h.node("NonZero", {h.node("Greater", {y, h.constant(tensor({}, {0.5f}))}, {}, 17)}, {}, 17);
    h.output(z);
    h.graph.at(z).name = "z";
    h.graph.at(z).type = {ValueType::tensor, DType::i64};
  }
  h.graph.opset_imports[""] = 17;
  std::string bytes = export_bytes(h.graph);
  CompileOptions options;
  options.compile = false;
  return driver::compile(std::as_bytes(std::span(bytes)), options);
}

template <class S> S& first_step(Executable& e) {
  for (runtime::Step& step : e.steps)
    if (auto* s = std::get_if<S>(&step.what)) return *s;
  throw std::runtime_error("no such step");
}

ExternStep& finding_step(Executable& e) {
  for (runtime::Step& step : e.steps)
    if (auto* s = std::get_if<ExternStep>(&step.what); s && !s->dynamic_outputs.empty()) return *s;
  throw std::runtime_error("no such step");
}

TEST(Executable, WhatTheCompilerMakesIsSound) {
  EXPECT_EQ(runtime::defect_of(compiled_model().executable()), "");
}

TEST(Executable, DefectsAreFound) {
  const Executable sound = compiled_model().executable();
  const SizeExpr no_number, too_few{{{SizeExpr::Code::add, 0}}},
      unknown_symbol{{{SizeExpr::Code::symbol, 99}}};
  SizeExpr deep;
  for (int i = 0; i < 100; ++i) deep.items.push_back({SizeExpr::Code::push, 1});
  for (int i = 1; i < 100; ++i) deep.items.push_back({SizeExpr::Code::add, 0});
  const std::vector<std::pair<std::function<void(Executable&)>, const char*>> cases = {
      {[](Executable& e) { e.buffers[0].dtype = DType::undefined; }, "no type"},
      {[](Executable& e) { e.buffers[0].strides.pop_back(); }, "strides"},
      {[&](Executable& e) { e.buffers[0].sizes[0] = no_number; }, "no expression"},
      {[&](Executable& e) { e.buffers[0].sizes[0] = too_few; }, "without operands"},
      {[&](Executable& e) { e.buffers[0].sizes[0] = unknown_symbol; }, "symbol 99"},
      {[&](Executable& e) { first_step<KernelStep>(e).tasks = deep; }, "deeper than 64"},
      {[](Executable& e) { e.inputs[0].buffer = 1000; }, "input 0 is buffer 1000"},
      {[](Executable& e) { e.inputs[0].dtype = DType::f64; }, "another type"},
      {[](Executable& e) { e.outputs.pop_back(); }, "is no output"},
      {[](Executable& e) { e.bindings[0].dim = 7; }, "is bound to what"},
      {[](Executable& e) { e.constants.clear(); }, "is constant"},
      {[](Executable& e) {
         e.constants[0] = std::make_shared<Tensor>(tensor({2}, {1, 2}));
       },
       "another size"},
      {[](Executable& e) { first_step<KernelStep>(e).writes.clear(); }, "how it uses"},
      {[](Executable& e) { first_step<KernelStep>(e).buffers[0] = 77; }, "buffer 77"},
      {[](Executable& e) { first_step<KernelStep>(e).name.clear(); }, "no kernel"},
      {[](Executable& e) {
         first_step<ExternStep>(e).inputs[1].strides[0] = {{{SizeExpr::Code::push, 900}}};
       },
       "reads buffer"},
      {[](Executable& e) { first_step<ExternStep>(e).inputs.pop_back(); }, "is no product"},
      {[](Executable& e) { first_step<ExternStep>(e).outputs[0].buffer = e.inputs[0].buffer; },
       "not its own"},
      {[](Executable& e) { e.buffers[e.inputs[0].buffer].last_step += 1; }, "its life is"},
      {[](Executable& e) { std::swap(e.steps[0], e.steps[1]); }, "before it is written"},
      {[](Executable& e) { e.steps.clear(); }, "lives"},
      {[](Executable& e) {
         const int found = finding_step(e).bound_symbols[0];
         first_step<KernelStep>(e).tasks = {{{SizeExpr::Code::symbol, found}}};
       },
       "needs sizes that step"},
      {[](Executable& e) { finding_step(e).dynamic_dims[0][1] = e.bindings[0].symbol; },
       "needs sizes that step"},
  };
  for (const auto& [spoil, defect] : cases) {
    Executable e = sound;
    spoil(e);
    EXPECT_THAT(runtime::defect_of(e), HasSubstr(defect));
    EXPECT_THAT(error_of([&] { runtime::verify(e); }), HasSubstr("the executable is broken"));
  }
}

/// y = the sum of all rows so far, which the session keeps: room for `capacity`, 0: it grows.
driver::Compiled summing_model(int64_t capacity) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {h.symbol("n"), 2}),
          rows = h.input("rows", DType::f32, {h.symbol("past"), 2});
  ValueId longer = h.node("Concat", {rows, x}, {{"axis", int64_t{0}}}, 18);
  h.output(h.node("Relu", {x}, {}, 18));
  h.output(longer);
  h.graph.at(longer).name = "longer";
  h.graph.at(longer).type = {ValueType::tensor, DType::f32};
  h.graph.opset_imports[""] = 18;
  const std::string bytes = export_bytes(h.graph);
  CompileOptions options;
  options.compile = false;
  options.state = {{"rows", "longer"}};
  options.state_capacity = capacity;
  return driver::compile(std::as_bytes(std::span(bytes)), options);
}

/// What a state has room for is what the session has allocated, whatever the plan says.
TEST(Executable, RoomOfStatesIsNoneOfThePlans) {
  using Of = runtime::SymbolBinding::Of;
  const Executable grows = summing_model(0).executable(), fixed = summing_model(9).executable();
  ASSERT_EQ(runtime::defect_of(grows), "");
  ASSERT_EQ(runtime::defect_of(fixed), "");
  auto room_binding = [](Executable& e) -> runtime::SymbolBinding& {
    return *std::ranges::find(e.bindings, Of::room, &runtime::SymbolBinding::of);
  };
  auto room_size = [](Executable& e) -> SizeExpr& { return e.buffers[e.inputs[1].buffer].sizes[0]; };
  const std::vector<std::pair<std::function<void(Executable&)>, const char*>> cases = {
      // A dimension of the caller's in the place of the room.
      {[&](Executable& e) { room_binding(e).input = 0; }, "grows by what is not its room"},
      {[&](Executable& e) { room_binding(e).of = Of::dim; }, "grows by what is not its room"},
      {[&](Executable& e) {
         runtime::SymbolBinding& room = room_binding(e);
         room.of = Of::dim, room.input = 0;
       },
       "not its room"},
      {[&](Executable& e) { room_binding(e).dim = 1; }, "is bound to what input 1 does not have"},
      {[&](Executable& e) { std::erase_if(e.bindings, [](const auto& b) { return b.of == Of::room; }); },
       "grows by what is not its room"},
      {[&](Executable& e) { // the first binding is the one that holds
         runtime::SymbolBinding first = room_binding(e);
         first.of = Of::dim, first.input = 0, first.dim = 0;
         e.bindings.insert(e.bindings.begin(), first);
       },
       "grows by what is not its room"},
      {[&](Executable& e) { e.bindings.push_back(room_binding(e)); }, "grows by what is not its room"},
      {[&](Executable& e) {
         room_size(e) = {{{SizeExpr::Code::symbol, e.bindings[0].symbol}}};
       },
       "grows by what is not its room"},
      {[&](Executable& e) {
         room_size(e).items.push_back({SizeExpr::Code::push, 2});
         room_size(e).items.push_back({SizeExpr::Code::mul, 0});
       },
       "grows by what is not its room"},
      {[&](Executable& e) { e.buffers[e.inputs[1].buffer].sizes[1] = room_size(e); },
       "room of another shape"},
      {[&](Executable& e) {
         room_size(e) = {{{SizeExpr::Code::push, 4}}};
       },
       "room for 4, and cannot grow"},
      {[](Executable& e) { e.inputs[1].state_axis = -1; }, "is bound to what input 1 does not have"},
      {[](Executable& e) { e.inputs[1].state_axis = 1; }, "room of another shape"},
      {[](Executable& e) { e.inputs[1].state_room = -1; }, "room for -1"},
      {[](Executable& e) { e.inputs[1].state_limit = -1; }, "room for 0 of -1"},
      {[](Executable& e) { e.inputs[1].state_room = 5, e.inputs[1].state_limit = 4; }, "room for 5 of 4"},
  };
  for (const auto& [spoil, defect] : cases) {
    Executable e = grows;
    spoil(e);
    EXPECT_THAT(runtime::defect_of(e), HasSubstr(defect));
  }
  for (const int64_t room : {8, 10}) { // more than is allocated, or less
    Executable e = fixed;
    e.inputs[1].state_room = e.inputs[1].state_limit = room;
    EXPECT_THAT(runtime::defect_of(e), HasSubstr("has room for 9, and cannot grow"));
  }
}

TEST(Executable, IsPrintedInFull) {
  std::string text = to_string(compiled_model().executable());
  EXPECT_THAT(text, HasSubstr("input: x float32[batch, 3] in b"));
  EXPECT_THAT(text, HasSubstr("bind: batch = dimension 0 of input 0"));
  EXPECT_THAT(text, HasSubstr("extern MatMul ("));
  EXPECT_THAT(text, HasSubstr("binds "));
  EXPECT_EQ(text, to_string(compiled_model().executable()));
}

TEST(Bind, FactsOfOperandsComeFromTheExecutable) {
  const Executable e = compiled_model().executable();
  Executable copy = e;
  const ExternStep& product = first_step<ExternStep>(copy);
  extern_kernels::OperandInfo x = runtime::operand_facts(e, product.inputs[0]),
                              w = runtime::operand_facts(e, product.inputs[1]);
  EXPECT_EQ(x.sizes, (std::vector<int64_t>{-1, 3}));
  EXPECT_EQ(x.constant, nullptr);
  EXPECT_EQ(w.sizes, (std::vector<int64_t>{3, 2}));
  ASSERT_NE(w.constant, nullptr);
  EXPECT_EQ(w.constant->numel(), 6);
  runtime::OperandView shifted = product.inputs[1];
  shifted.offset = {{{SizeExpr::Code::push, 1}}};
  EXPECT_EQ(runtime::operand_facts(e, shifted).constant, nullptr)
      << "a part of a constant is not the constant";
  EXPECT_EQ(runtime::operand_facts(e, {}).dtype, DType::undefined);
}

/// What an executable says of a run's sizes is known when these are: a library gets no address that is not
/// its.
TEST(ShapePlan, OperandsOfLibrariesLieInTheirBuffers) {
  const driver::Compiled compiled = compiled_model(false);
  auto error_with = [&](const std::function<void(ExternStep&)>& spoil) {
    auto e = std::make_shared<Executable>(compiled.executable());
    spoil(first_step<ExternStep>(*e));
    const auto bound = runtime::bind(e, compiled.bound->modules);
    std::vector<int64_t> symbols(e->symbol_names.size(), 5);
    return error_of([&] { runtime::make_shape_plan(*bound, symbols, runtime::shape_facts(*e)); });
  };
  const SizeExpr batch{{{SizeExpr::Code::symbol, 0}}}, far{{{SizeExpr::Code::push, int64_t{1} << 62}}},
      back{{{SizeExpr::Code::push, -1}}}, twice{{{SizeExpr::Code::push, 6}}};
  EXPECT_EQ(error_with([](ExternStep&) {}), "no error");
  const char* outside = "lies outside of its buffer";
  EXPECT_THAT(error_with([&](ExternStep& s) { s.inputs[0].offset = batch; }), HasSubstr(outside));
  EXPECT_THAT(error_with([&](ExternStep& s) { s.inputs[0].offset = back; }), HasSubstr(outside));
  EXPECT_THAT(error_with([&](ExternStep& s) { s.inputs[0].strides[0] = twice; }), HasSubstr(outside));
  EXPECT_THAT(error_with([&](ExternStep& s) { s.outputs[0].strides[0] = back; }), HasSubstr(outside));
  EXPECT_THAT(error_with([&](ExternStep& s) { s.inputs[0].sizes[0] = far; }), HasSubstr("overflows"));
  EXPECT_THAT(error_with([&](ExternStep& s) { s.inputs[0].strides[0] = far; }), HasSubstr(outside));
  EXPECT_THAT(error_with([&](ExternStep& s) { s.inputs[0].offset = far; }),
              HasSubstr("outside of all memory"));
}

/// Kernels compute addresses from operands that they take to fit each other.
TEST(ShapePlan, OperandsOfLibrariesFitEachOther) {
  const driver::Compiled compiled = compiled_model(false);
  auto error_with = [&](const std::function<void(ExternStep&)>& spoil) {
    auto e = std::make_shared<Executable>(compiled.executable());
    spoil(first_step<ExternStep>(*e));
    return error_of([&] {
      const auto bound = runtime::bind(e, compiled.bound->modules);
      std::vector<int64_t> symbols(e->symbol_names.size(), 5);
      runtime::make_shape_plan(*bound, symbols, runtime::shape_facts(*e));
    });
  };
  const SizeExpr one{{{SizeExpr::Code::push, 1}}}, two{{{SizeExpr::Code::push, 2}}};
  const char* unfit = "operands of MatMul do not fit each other";
  EXPECT_EQ(error_with([](ExternStep&) {}), "no error");
  EXPECT_THAT(error_with([&](ExternStep& s) { s.inputs[0].sizes[0] = one; }), HasSubstr(unfit)); // in a run
  EXPECT_THAT(error_with([&](ExternStep& s) { s.inputs[0].sizes[1] = two; }), HasSubstr(unfit)); // when bound
  EXPECT_THAT(error_with([&](ExternStep& s) { s.inputs[0].buffer = -1; }), HasSubstr("input 0 is missing"));
  EXPECT_THAT(error_with([&](ExternStep& s) { s.outputs.clear(); }), HasSubstr(unfit));
}

/// Steps of libraries are looked at side by side: what comes of it, and which error, is that of one thread.
TEST(ShapePlan, ManyThreadsMakeWhatOneMakes) {
  GraphHelper h;
  ValueId v = h.input("x", DType::f32, {h.symbol("batch"), 5});
  const Tensor weights = tensor({5, 5}, std::vector<float>(25, 0.5f));
  for (int i = 0; i < 12; ++i)
    v = h.node("Softmax", {h.node("MatMul", {v, h.constant(weights)}, {}, 17)}, {{"axis", int64_t{-1}}}, 17);
  h.output(v);
  h.graph.at(v).name = "y";
  h.graph.at(v).type = {ValueType::tensor, DType::f32};
  h.graph.opset_imports[""] = 17;
  CompileOptions options;
  options.compile = false;
  const std::string bytes = export_bytes(h.graph);
  const driver::Compiled compiled = driver::compile(std::as_bytes(std::span(bytes)), options);
  auto e = std::make_shared<Executable>(compiled.executable());
  auto plan_with = [&](int threads, int64_t batch) {
    const auto bound = runtime::bind(e, compiled.bound->modules);
    runtime::ShapePlan made;
    const std::vector<int64_t> symbols(e->symbol_names.size(), batch);
    tbb::task_arena(threads).execute(
        [&] { made = runtime::make_shape_plan(*bound, symbols, runtime::shape_facts(*e)); });
    return made;
  };
  for (int64_t batch : {0, 1, 7, 64}) {
    const runtime::ShapePlan one = plan_with(1, batch), many = plan_with(4, batch);
    ASSERT_EQ(one.steps.size(), many.steps.size());
    for (size_t s = 0; s < one.steps.size(); ++s) {
      EXPECT_EQ(one.steps[s].tasks, many.steps[s].tasks);
      EXPECT_EQ(one.steps[s].size_args, many.steps[s].size_args);
      ASSERT_EQ(one.steps[s].inputs.size(), many.steps[s].inputs.size());
      for (size_t i = 0; i < one.steps[s].inputs.size(); ++i) {
        EXPECT_EQ(one.steps[s].inputs[i].sizes, many.steps[s].inputs[i].sizes);
        EXPECT_EQ(one.steps[s].inputs[i].offset_bytes, many.steps[s].inputs[i].offset_bytes);
      }
    }
    EXPECT_EQ(one.arena_bytes, many.arena_bytes);
  }
  std::string first;
  for (runtime::Step& step : e->steps)
    if (auto* call = std::get_if<ExternStep>(&step.what)) {
      if (first.empty()) first = runtime::nodes_of(*e, step.origins);
      call->inputs[0].offset = {{{SizeExpr::Code::push, -1}}};
    }
  ASSERT_FALSE(first.empty());
  for (int i = 0; i < 20; ++i) EXPECT_THAT(error_of([&] { plan_with(4, 7); }), HasSubstr(first));
}

TEST(Bind, AKernelThatNoModuleHasIsNamed) {
  auto e = std::make_shared<const Executable>(compiled_model().executable());
  std::string error = error_of([&] { runtime::bind(e, {}); });
  EXPECT_THAT(error, HasSubstr("no module has the kernel evaluated_"));
  EXPECT_THAT(error, HasSubstr("(Softmax)"));
}

/// Says where it was asked.
class OneKernel : public runtime::Module {
public:
  explicit OneKernel(runtime::Kernel kernel) : kernel_(std::move(kernel)) {}
  runtime::Kernel kernel(const std::string&) const override { return kernel_; }

private:
  runtime::Kernel kernel_;
};

/// Fills the last buffer, two floats, with a number.
class Fill : public runtime::EvaluatedKernel {
public:
  explicit Fill(float value) : value_(value) {}
  void run(std::span<void* const> buffers, std::span<const int64_t>, int64_t begin,
           int64_t end) const override {
    auto* y = static_cast<float*>(buffers.back());
    std::fill(y + 2 * begin, y + 2 * end, value_);
  }

private:
  float value_;
};

TEST(Bind, TheFirstModuleThatHasAKernelGivesIt) {
  auto e = std::make_shared<const Executable>(compiled_model(false).executable());
  auto one = std::make_shared<OneKernel>(runtime::Kernel{nullptr, std::make_shared<Fill>(7)}),
       two = std::make_shared<OneKernel>(runtime::Kernel{nullptr, std::make_shared<Fill>(8)}),
       none = std::make_shared<OneKernel>(runtime::Kernel{});
  runtime::Session session(runtime::bind(e, {none, one, two}), {.threads = 1});
  std::vector<float> x(3, 1);
  std::vector<runtime::RunTensor> in(1), out(1);
  in[0] = {x.data(), DType::f32, {1, 3}, nullptr, nullptr};
  session.run(in, out);
  EXPECT_EQ(static_cast<float*>(out[0].data)[1], 7);
}

TEST(Bind, OneExecutableIsBoundManyTimes) {
  driver::Compiled compiled = compiled_model();
  auto again = runtime::bind(compiled.bound->executable, compiled.bound->modules);
  std::vector<float> x = {1, 2, 3, -1, 0.5f, 2};
  std::vector<runtime::RunTensor> in(1), a(2), b(2);
  in[0] = {x.data(), DType::f32, {2, 3}, nullptr, nullptr};
  runtime::Session(compiled.bound, {.threads = 1}).run(in, a);
  runtime::Session(again, {.threads = 1}).run(in, b);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].dims, b[i].dims);
    const auto bytes = static_cast<size_t>(checked_numel(a[i].dims) * size_of(a[i].dtype));
    EXPECT_EQ(std::memcmp(a[i].data, b[i].data, bytes), 0);
  }
}

TEST(Verify, StepsOfADeviceUseItsBuffers) {
  Executable e = compiled_model(false).executable();
  EXPECT_EQ(runtime::defect_of(e), "");
  for (runtime::Step& step : e.steps) {
    step.device = runtime::DeviceKind::cuda;
    if (auto* kernel = std::get_if<KernelStep>(&step.what)) {
      kernel->launch.blocks = SizeExpr{{{SizeExpr::Code::push, 1}}};
      kernel->launch.threads = 32;
    }
  }
  EXPECT_THAT(runtime::defect_of(e), HasSubstr("on cuda uses buffer"));
  e = compiled_model(false).executable();
  e.buffers[e.inputs[0].buffer].device = runtime::DeviceKind::cuda;
  EXPECT_THAT(runtime::defect_of(e), HasSubstr("is an input or output and lies on a device"));
  e = compiled_model(false).executable();
  e.steps.push_back({runtime::CopyStep{0, 0}, {}, runtime::DeviceKind::cuda});
  EXPECT_THAT(runtime::defect_of(e), HasSubstr("copies between buffers of one device"));
}

} // namespace
} // namespace tbx::test
