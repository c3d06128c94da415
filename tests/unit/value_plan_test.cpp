// Value plans are data: what makes one unsound is found before it runs.
#include <gmock/gmock.h>

#include <functional>
#include <random>

#include "../support/onnx_text.h"
#include "base/error.h"
#include "driver/value_compile.h"
#include "plan_bytes.h"
#include "runtime/value_session.h"
#include "runtime/verify.h"

namespace tbx::test {
namespace {

using namespace runtime;
using testing::HasSubstr;

/// A Loop, an If, a Scan and a SequenceMap with captured values, and an operator on strings.
driver::ValueProgram every_step() {
  CompileOptions options;
  options.compile = false;
  return driver::compile_values(import_text(R"(g (int64 t, bool c, float[k] x, seq(float[k]) s, string[m] w)
      => (float[a] y, float[b, k] ys, float[d] z, float[k] r, float[k] rs, seq(float[k]) u, string[m] v) {
    y, ys = Loop(t, c, x) <body = body(int64 i, bool ci, float[k] p) => (bool co, float[k] q, float[k] o) {
      co = Identity(ci) q = Add(p, x) o = Neg(q) }>
    z = If(c) <then_branch = a () => (float[e] za) { za = Abs(x) }, else_branch = b () => (float[f] zb) { zb = Neg(x) }>
    zero = Constant<value = float {0}>()
    r, rs = Scan(zero, x) <num_scan_inputs = 1, body = scan(float sum, float one) => (float next, float made) {
      next = Add(sum, one) made = Mul(next, next) }>
    u = SequenceMap(s) <body = each(float[k] p) => (float[k] q) { q = Add(p, x) }>
    v = StringConcat(w, w)
  })"),
                                options);
}

/// A plan over the stages of a program.
ModelParts model(const ValuePlan& plan, const driver::ValueProgram& program) {
  std::vector<StageParts> stages;
  for (const auto& segment : program.segments)
    stages.push_back({segment->graph().inputs.size(), segment->graph().outputs.size(), {}});
  return {std::move(stages), &plan};
}

template <class S> S& first(ValuePlan& plan, int* number = nullptr) {
  for (size_t i = 0; i < plan.steps.size(); ++i)
    if (auto* s = std::get_if<S>(&plan.steps[i].what)) {
      if (number) *number = static_cast<int>(i);
      return *s;
    }
  throw std::runtime_error("no such step");
}

template <class S> ValueStep& step_of(ValuePlan& plan) {
  int number = 0;
  first<S>(plan, &number);
  return plan.steps[static_cast<size_t>(number)];
}

/// The body as one that may be changed.
ValuePlan& own(BodyCall& call) {
  auto copy = std::make_shared<ValuePlan>(*call.plan);
  call.plan = copy;
  return *copy;
}

TEST(ValuePlan, WhatTheCompilerMakesIsSound) {
  const driver::ValueProgram program = every_step();
  EXPECT_EQ(defect_of(model(*program.plan, program)), "");
}

TEST(ValuePlan, DefectsAreFound) {
  const driver::ValueProgram program = every_step();
  const std::vector<std::pair<const char*, std::function<void(ValuePlan&)>>> spoilt = {
      {"it has -1 slots", [](ValuePlan& p) { p.num_slots = -1; }},
      {"slots", [](ValuePlan& p) { p.num_slots = 1 << 24; }},
      {"is slot", [](ValuePlan& p) { p.inputs[0].slot = p.num_slots; }},
      {"holds nothing", [](ValuePlan& p) { p.outputs[0].slot = -1; }},
      {"holds nothing", [](ValuePlan& p) { p.steps.clear(); }},
      {"holds nothing", [](ValuePlan& p) { std::swap(p.steps.front(), p.steps.back()), p.steps.pop_back(); }},
      {"a constant is slot", [](ValuePlan& p) { p.constants.emplace_back(p.num_slots, RuntimeValue()); }},
      {"as large as input",
       [](ValuePlan& p) {
         p.outputs[0].element = {DType::f32, {0}, {{99, 0}}};
       }},
      {"used last", [](ValuePlan& p) { p.steps[0].last_use.clear(); }},
      {"the condition is missing", [](ValuePlan& p) { step_of<IfStep>(p).inputs[0] = -1; }},
      {"used last", [](ValuePlan& p) { step_of<IfStep>(p).inputs.clear(); }},
      {"a body is missing", [](ValuePlan& p) { first<IfStep>(p).then_branch.plan = nullptr; }},
      {"a branch has 0 outputs", [](ValuePlan& p) { own(first<IfStep>(p).else_branch).outputs.clear(); }},
      {"a body has", [](ValuePlan& p) { own(first<IfStep>(p).else_branch).inputs.clear(); }},
      {"values are carried", [](ValuePlan& p) { first<LoopStep>(p).carried = -1; }},
      {"a body has", [](ValuePlan& p) { first<LoopStep>(p).carried = 2; }},
      {"a body is missing", [](ValuePlan& p) { first<LoopStep>(p).body.plan = nullptr; }},
      {"the body has 1 outputs", [](ValuePlan& p) { own(first<LoopStep>(p).body).outputs.resize(1); }},
      {"more than one element", [](ValuePlan& p) { first<LoopStep>(p).iteration_dims = {0}; }},
      {"a body has", [](ValuePlan& p) { first<LoopStep>(p).body.captures.clear(); }},
      {"holds nothing", [](ValuePlan& p) { first<LoopStep>(p).body.captures[0] = p.num_slots; }},
      {"which it captures",
       [](ValuePlan& p) {
         ValuePlan& body = own(first<LoopStep>(p).body);
         const int captured = body.inputs.back().slot;
         for (ValueStep& s : body.steps)
           for (size_t i = 0; i < s.inputs.size(); ++i)
             if (s.inputs[i] == captured) s.last_use[i] = true;
       }},
      {"read elsewhere",
       [](ValuePlan& p) {
         ValueStep& s = step_of<LoopStep>(p); // x is the initial value, and captured
         s.last_use.assign(s.inputs.size(), true);
       }},
      {"states", [](ValuePlan& p) { first<ScanStep>(p).states = 2; }},
      {"states", [](ValuePlan& p) { first<ScanStep>(p).states = -1; }},
      {"axes or directions", [](ValuePlan& p) { first<ScanStep>(p).input_axes.clear(); }},
      {"axes or directions", [](ValuePlan& p) { first<ScanStep>(p).output_backwards.clear(); }},
      {"states", [](ValuePlan& p) { first<ScanStep>(p).batched = true; }},
      {"the body has 1",
       [](ValuePlan& p) {
         own(first<SequenceMapStep>(p).body), step_of<SequenceMapStep>(p).outputs.push_back(-1);
       }},
      {"are known", [](ValuePlan& p) { step_of<OpStep>(p).outputs.clear(); }},
      {"no operator Gone", [](ValuePlan& p) { first<OpStep>(p).node.op = "Gone"; }},
      {"no operator", [](ValuePlan& p) { first<OpStep>(p).node.opset = 1; }},
      {"runs part -1", [](ValuePlan& p) { first<StageStep>(own(first<LoopStep>(p).body)).stage = -1; }},
      {"runs part 99", [](ValuePlan& p) { first<StageStep>(own(first<LoopStep>(p).body)).stage = 99; }},
      {"than the step that runs it",
       [](ValuePlan& p) {
         ValueStep& s = step_of<StageStep>(own(first<LoopStep>(p).body));
         s.inputs.push_back(s.inputs[0]);
         s.last_use.push_back(false);
       }},
      {"moved, and there elsewhere",
       [](ValuePlan& p) {
         p.outputs.push_back(p.outputs[0]);
         p.outputs[0].only_here = true;
       }},
      {"reads slot",
       [](ValuePlan& p) {
         int number = 0;
         first<IfStep>(p, &number);
         p.steps[static_cast<size_t>(number)].inputs[0] = p.num_slots;
       }},
  };
  for (size_t i = 0; i < spoilt.size(); ++i) {
    ValuePlan plan = *program.plan;
    spoilt[i].second(plan);
    EXPECT_THAT(defect_of(model(plan, program)), HasSubstr(spoilt[i].first)) << "case " << i;
    EXPECT_THROW(verify(model(plan, program)), Error) << "case " << i;
  }
}

ValuePlan read(const PlanBytes& bytes) { return plan_of(bytes, value_plan_from_bytes); }

TEST(ValuePlan, WhatIsReadIsWhatWasWritten) {
  const driver::ValueProgram program = every_step();
  ValuePlan plan = *program.plan;
  // All that a constant can be, in a slot of its own.
  const Tensor keys = Tensor::of_strings({2}, {"a", "b"}), numbers = Tensor::of_strings({2}, {"1", "2"});
  for (const RuntimeValue& v : {RuntimeValue(), RuntimeValue(keys), RuntimeValue::of_map(keys, numbers),
                                RuntimeValue::sequence({RuntimeValue(numbers), RuntimeValue::sequence({})})})
    plan.constants.emplace_back(plan.num_slots++, v);
  first<IfStep>(plan).else_branch = {
      nullptr, {}, runtime::Failure{ErrorKind::unsupported, "what", "hint", "where"}};
  const PlanBytes bytes = bytes_of(plan);
  const ValuePlan back = read(bytes);
  EXPECT_EQ(defect_of(model(back, program)), "");
  EXPECT_EQ(to_string(back), to_string(plan));
  EXPECT_EQ(bytes_of(back), bytes);
  EXPECT_THAT(to_string(back), HasSubstr("else cannot run: what"));
}

TEST(ValuePlan, BodiesNestedTooDeepAreDamaged) {
  auto plan = std::make_shared<ValuePlan>();
  for (int i = 0; i < 200; ++i) {
    ValueStep step;
    step.what = SequenceMapStep{{plan, {}, {}}};
    plan = std::make_shared<ValuePlan>();
    plan->steps.push_back(std::move(step));
  }
  const PlanBytes bytes = bytes_of(*plan);
  try {
    read(bytes);
    FAIL() << "it was read";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("nested too deep"));
  }
}

/// What is read is an error or sound, never a crash.
TEST(ValuePlan, SpoiltBytesAreRefusedOrSound) {
  const driver::ValueProgram program = every_step();
  const PlanBytes bytes = bytes_of(*program.plan);
  for (size_t n = 0; n < bytes.plan.size(); n += 1 + n / 16)
    EXPECT_THROW(read({bytes.plan.substr(0, n), bytes.tensors}), Error) << n;
  std::mt19937 random(7);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    try {
      const auto plan = std::make_shared<const ValuePlan>(read(spoilt(bytes, random)));
      if (!defect_of(model(*plan, program)).empty()) {
        ++refused;
        continue;
      }
      to_string(*plan);
      bind(plan, {program.segments.begin(), program.segments.end()});
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::model) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

/// An operator that refuses its attributes ends the session before it runs, but for one in a branch.
TEST(ValuePlan, ABranchWhoseOperatorRefusesItsAttributesFailsWhenItIsTaken) {
  CompileOptions options;
  options.compile = false;
  const auto text = [](const char* then_pattern, const char* else_pattern) {
    return fmt::format(R"(g (bool c, string[m] s) => (bool[k] y) {{
      y = If(c) <then_branch = a () => (bool[m] ya) {{ ya = RegexFullMatch<pattern="{}">(s) }},
                 else_branch = b () => (bool[m] yb) {{ yb = RegexFullMatch<pattern="{}">(s) }}> }})",
                       then_pattern, else_pattern);
  };
  const ValueSession session(driver::compile_values(import_text(text("a.*", "(").c_str()), options).bind());
  for (const bool taken : {true, false}) {
    Tensor c = Tensor::make(DType::boolean, {});
    c.as_mutable<uint8_t>()[0] = taken;
    std::vector<RuntimeValue> out;
    try {
      session.run({RuntimeValue(c), RuntimeValue(Tensor::of_strings({2}, {"ab", "b"}))}, out);
      EXPECT_TRUE(taken);
      EXPECT_EQ(out[0].tensor.as<uint8_t>()[0], 1);
    } catch (const Error& e) {
      EXPECT_FALSE(taken);
      EXPECT_THAT(e.what(), HasSubstr("RegexFullMatch"));
      EXPECT_THAT(e.where(), HasSubstr("(If,"));
    }
  }
  const driver::ValueProgram neither = driver::compile_values(import_text(text("(", "(").c_str()), options);
  EXPECT_THROW(neither.bind(), Error);
}

/// One number of a plan, or of one of its bodies, becomes another one.
void change(ValuePlan& plan, std::mt19937& random) {
  auto below = [&](size_t n) { return n ? random() % n : 0; };
  const auto slot = [&] { return static_cast<int>(below(static_cast<size_t>(plan.num_slots) + 2)) - 1; };
  const auto any = [&](std::vector<int>& list) {
    switch (below(3)) {
    case 0: list.push_back(slot()); break;
    case 1: list.resize(below(list.size() + 1)); break;
    default:
      if (!list.empty()) list[below(list.size())] = slot();
    }
  };
  ValueStep& step = plan.steps[below(plan.steps.size())];
  switch (below(8)) {
  case 0: return any(step.inputs);
  case 1: return any(step.outputs);
  case 2: return any(step.release);
  case 3:
    if (!step.last_use.empty()) step.last_use[below(step.last_use.size())] = below(2) != 0;
    return;
  case 4: plan.outputs[below(plan.outputs.size())].slot = slot(); return;
  case 5: plan.outputs[below(plan.outputs.size())].only_here = below(2) != 0; return;
  case 6: std::swap(step, plan.steps[below(plan.steps.size())]); return;
  default: break;
  }
  if (auto* loop = std::get_if<LoopStep>(&step.what)) {
    if (below(2)) return change(own(loop->body), random);
    loop->carried = static_cast<int>(below(4)) - 1;
  } else if (auto* scan = std::get_if<ScanStep>(&step.what)) {
    if (below(2) && !own(scan->body).steps.empty()) return change(own(scan->body), random);
    scan->states = static_cast<int>(below(4)) - 1;
  } else if (auto* branch = std::get_if<IfStep>(&step.what)) {
    return any(branch->then_branch.captures);
  } else if (auto* map = std::get_if<SequenceMapStep>(&step.what)) {
    return any(map->body.captures);
  }
}

// The sanitizers look on.
TEST(ValuePlan, WhatIsTakenForSoundRunsOrFailsWithAnError) {
  const driver::ValueProgram program = every_step();
  const auto row = [](float v) {
    Tensor t = Tensor::make(DType::f32, {3});
    for (float& x : t.as_mutable<float>()) x = v;
    return RuntimeValue(t);
  };
  Tensor trips = Tensor::make(DType::i64, {}), yes = Tensor::make(DType::boolean, {});
  trips.as_mutable<int64_t>()[0] = 3;
  yes.as_mutable<uint8_t>()[0] = 1;
  int sound = 0;
  for (uint32_t seed = 0; seed < 4000; ++seed) {
    std::mt19937 random(seed);
    auto plan = std::make_shared<ValuePlan>(*program.plan);
    change(*plan, random);
    if (!defect_of(model(*plan, program)).empty()) continue;
    ++sound;
    const ValueSession session(bind(plan, {program.segments.begin(), program.segments.end()}));
    RunOptions options;
    options.time_limit_ms = 20; // a changed loop may have no end
    for (int run = 0; run < 2; ++run) try {
        std::vector<RuntimeValue> out;
        session.run({RuntimeValue(trips), RuntimeValue(yes), row(1), RuntimeValue::sequence({row(2), row(3)}),
                     RuntimeValue(Tensor::of_strings({2}, {"a", "b"}))},
                    out, options);
      } catch (const Error&) { // of another type than a step takes
      }
  }
  EXPECT_GT(sound, 100);
  EXPECT_LT(sound, 3000);
}

} // namespace
} // namespace tbx::test
