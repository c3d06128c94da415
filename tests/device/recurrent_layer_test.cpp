// Our recurrent layers against plain loops in double: the text runs in the emulator always, where one block
// has all units, and on a GPU, where clusters share them, if there is one.
#include <gtest/gtest.h>

#include <cmath>

#include "device/fake/fake_device.h"
#include "extern_kernels/cuda/loops.h"
#include "extern_kernels/cuda/recurrent_layer.h"
#include "library_kernels_helper.h"

namespace tbx::test {
namespace {

using extern_kernels::GateActivation;
using extern_kernels::RecurrentProblem;

class RecurrentLayer : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Devices, RecurrentLayer, testing::Values("fake", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

struct Case {
  int64_t steps, batch, hidden;
};

GateActivation function(GateActivation::Kind kind, double alpha = 0, double beta = 0) {
  return {kind, alpha, beta};
}

std::vector<GateActivation> usual(RecurrentProblem::Cell cell) {
  const GateActivation sigmoid = function(GateActivation::sigmoid), tanh = function(GateActivation::tanh);
  if (cell == RecurrentProblem::lstm) return {sigmoid, tanh, tanh};
  if (cell == RecurrentProblem::rnn) return {tanh};
  return {sigmoid, tanh};
}

/// A layer and its operands. `form` decides what is there: 0 nothing but gates and weights, 1 all there is,
/// in both directions, 2 backwards, with the batch first and weights of turned strides, 3 other functions.
struct Layer {
  RecurrentProblem problem;
  std::vector<Operand> in;
  Operand out;
};

/// So small that sums of many terms stay near 1 in size: else roundings of the first steps grow in the later
/// ones.
Operand weights_of(DType type, Dims sizes, std::vector<int> order = {}) {
  Operand t = random_operand(type, sizes, std::move(order));
  const double scale = 1 / std::sqrt(static_cast<double>(sizes.back()));
  auto shrink = [&](auto* v, size_t n) {
    for (size_t i = 0; i < n; ++i) v[i] *= static_cast<std::remove_reference_t<decltype(*v)>>(scale);
  };
  if (type == DType::f64)
    shrink(reinterpret_cast<double*>(t.bytes.data()), t.bytes.size() / sizeof(double));
  else
    shrink(reinterpret_cast<float*>(t.bytes.data()), t.bytes.size() / sizeof(float));
  return t;
}

Layer layer(const Case& c, RecurrentProblem::Cell cell, int form, DType real, DType value, int gives) {
  Layer l;
  RecurrentProblem& p = l.problem;
  p.cell = cell;
  p.activations = usual(cell);
  const bool lstm = cell == RecurrentProblem::lstm;
  if (form == 1) {
    p.direction = RecurrentProblem::bidirectional;
    const std::vector<GateActivation> once = p.activations;
    p.activations.insert(p.activations.end(), once.begin(), once.end());
    p.clip = 0.75;
  }
  if (form == 2) p.direction = RecurrentProblem::reverse, p.batch_first = true;
  if (form == 3) {
    p.direction = RecurrentProblem::bidirectional;
    const GateActivation others[] = {function(GateActivation::hard_sigmoid, 0.2, 0.5),
                                     function(GateActivation::softsign),
                                     function(GateActivation::scaled_tanh, 1.5, 0.5),
                                     function(GateActivation::softplus),
                                     function(GateActivation::elu, 0.5),
                                     function(GateActivation::leaky_relu, 0.1)};
    p.activations.assign(others, others + p.directions() * p.activations_of_direction());
    p.input_forget = lstm;
  }
  (gives == 0 ? p.gives_y : gives == 1 ? p.gives_h : p.gives_c) = true;
  const int64_t d = p.directions(), gates = p.gates() * c.hidden;
  const Dims state = p.batch_first ? Dims{c.batch, d, c.hidden} : Dims{d, c.batch, c.hidden};
  l.in.resize(7);
  l.in[0] = random_operand(real, p.batch_first ? Dims{c.batch, c.steps, d * gates}
                                               : Dims{c.steps, c.batch, d * gates});
  l.in[1] = weights_of(real, {d, gates, c.hidden}, form == 2 ? std::vector{0, 2, 1} : std::vector<int>{});
  l.in[1].constant = true;
  if (form == 1) {
    l.in[2] = random_operand(DType::i32, {c.batch});
    l.in[2].constant = true;
    for (int64_t b = 0; b < c.batch; ++b)
      reinterpret_cast<int32_t*>(l.in[2].bytes.data())[b] =
          static_cast<int32_t>((b * 5 + c.steps) % (c.steps + 1));
  }
  if (form == 1 || form == 2) l.in[3] = random_operand(value, state);
  if (lstm && (form == 1 || form == 2)) l.in[4] = random_operand(value, state);
  if (lstm && form == 1) l.in[5] = random_operand(value, {d, 3 * c.hidden});
  if (cell == RecurrentProblem::gru_linear && form != 0) l.in[6] = random_operand(real, {d, c.hidden});
  l.out = random_operand(value, gives != 0      ? state
                                : p.batch_first ? Dims{c.batch, c.steps, d, c.hidden}
                                                : Dims{c.steps, d, c.batch, c.hidden});
  return l;
}

/// No steps, one, more; rows that fill a block's share and not; units that clusters share evenly and not;
/// weights in registers, in shared memory and left in memory.
TEST_P(RecurrentLayer, AllForms) {
  std::string why;
  const std::shared_ptr<device::Device> device = open_for_test(GetParam(), why);
  if (!device) GTEST_SKIP() << why;
  const bool fake = device::is_fake(*device);
  const auto emulated = [&](const std::string& text) {
    return load_text(*device, text, {"recurrent_layer"});
  };
  std::vector<Case> cases{{3, 2, 5}, {2, 1, 16}};
  if (fake) cases.insert(cases.end(), {{0, 1, 1}, {1, 3, 1}});
  if (!fake)
    cases.insert(cases.end(), {{0, 2, 8},
                               {7, 1, 64},
                               {5, 3, 128},
                               {9, 1, 256},
                               {4, 40, 256},
                               {3, 1, 130},
                               {3, 5, 512},
                               {2, 70, 33},
                               {2, 1, 1024}});
  for (const Case& c : cases)
    for (auto cell :
         {RecurrentProblem::lstm, RecurrentProblem::gru, RecurrentProblem::gru_linear, RecurrentProblem::rnn})
      for (int form = 0; form < 4; ++form)
        for (int gives = 0; gives < (cell == RecurrentProblem::lstm ? 3 : 2); ++gives) {
          // Each is a text of its own to compile.
          if (fake && (c.hidden == 5    ? form == 0
                       : c.hidden == 16 ? form != 0
                                        : form != 1 || cell != RecurrentProblem::lstm))
            continue;
          if (fake && gives != 0 && cell != RecurrentProblem::lstm) continue;
          if (!fake && gives == 1 && form != 2) continue;
          const DType value = form == 2 ? DType::f16 : form == 3 ? DType::bf16 : DType::f32;
          const bool wide = form == 1 && c.hidden == 5 && cell != RecurrentProblem::gru_linear;
          const Layer l =
              layer(c, cell, form, wide ? DType::f64 : DType::f32, wide ? DType::f64 : value, gives);
          const auto infos = infos_of(l.in), outs = infos_of({l.out});
          SCOPED_TRACE(testing::Message()
                       << c.steps << " steps, " << c.batch << " rows, " << c.hidden << " units, cell " << cell
                       << ", form " << form << ", result " << gives);
          ASSERT_EQ(
              extern_kernels::supports_cuda_recurrent(Problem(l.problem), infos, outs, device->properties()),
              "");
          const auto kernel =
              fake ? extern_kernels::make_recurrent_layer(*device, Problem(l.problem), infos, l.out.dtype,
                                                          emulated)
                   : extern_kernels::make_recurrent_layer(*device, Problem(l.problem), infos, l.out.dtype);
          expect_right(*device, *kernel, Problem(l.problem), l.in, l.out);
        }
}

TEST(RecurrentLayerTakes, WhatItSays) {
  const Case c{3, 2, 8};
  auto refusal = [&](auto change) {
    Layer l = layer(c, RecurrentProblem::lstm, 1, DType::f32, DType::f32, 0);
    auto in = infos_of(l.in);
    change(in, l.problem);
    return extern_kernels::supports_cuda_recurrent(Problem(l.problem), in, infos_of({l.out}), {});
  };
  EXPECT_EQ(refusal([](auto&, auto&) {}), "");
  EXPECT_NE(refusal([](auto& in, auto&) { in[2].constant = nullptr; }), "")
      << "nobody has looked at the lengths";
  EXPECT_NE(refusal([](auto& in, auto&) { in[3].dtype = DType::f16; }), "");
  EXPECT_NE(refusal([](auto& in, auto&) { in[1].sizes[2] = -1; }), "");
  EXPECT_NE(refusal([](auto& in, auto&) { in[1].sizes[2] = 100000; }), "");
  EXPECT_NE(refusal([](auto&, auto& p) { p.activations[0].alpha = std::numeric_limits<double>::infinity(); }),
            "");
}

} // namespace
} // namespace tbx::test
