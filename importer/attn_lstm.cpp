#include "importer/attn_lstm.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <onnx/defs/function.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "base/error.h"

namespace tbx::importer {
namespace {

using onnx::AttributeProto;
using onnx::OpSchema;

enum Input { kB = 3, kLengths, kH, kC, kP, kQW, kMW, kV, kM, kMemoryLengths, kAW };
constexpr const char* kNames[] = {"X",  "W",  "R", "B", "sequence_lens",   "initial_h", "initial_c", "P",
                                  "QW", "MW", "V", "M", "memory_seq_lens", "AW"};

std::vector<std::string> texts(const AttributeProto* a) {
  return a ? std::vector<std::string>(a->strings().begin(), a->strings().end()) : std::vector<std::string>();
}
std::vector<float> numbers(const AttributeProto* a) {
  return a ? std::vector<float>(a->floats().begin(), a->floats().end()) : std::vector<float>();
}

/// Takes the parameters of these functions from the front of those that are left.
std::vector<float> take_parameters(const std::vector<std::string>& functions, std::vector<std::string> with,
                                   std::vector<float>& left) {
  std::vector<float> taken;
  for (std::string name : functions) {
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (left.empty() || std::find(with.begin(), with.end(), name) == with.end()) continue;
    taken.push_back(left.front());
    left.erase(left.begin());
  }
  return taken;
}

/// The text of the body; each direction is a Scan over steps whose LSTM makes one step.
class Writer {
public:
  Writer(const onnx::FunctionBodyBuildContext& ctx, onnx::FunctionProto& to)
      : ctx_(ctx), to_(to), builder_(to) {
    const AttributeProto* direction = ctx.getAttribute("direction");
    direction_ = direction ? direction->s() : "forward";
    TBX_MODEL(direction_ == "forward" || direction_ == "reverse" || direction_ == "bidirectional",
              "unknown direction '{}'", direction_);
    for (int i : {kQW, kMW, kV, kM})
      TBX_MODEL(ctx.hasInput(i), "input {} ('{}') is missing: the attention needs it", i, kNames[i]);
  }

  void run() {
    const int directions = direction_ == "bidirectional" ? 2 : 1;
    add(R"(zero = Constant <value = int64[1] {0}> ()
           one = Constant <value = int64[1] {1}> ()
           two = Constant <value = int64[1] {2}> ()
           lowest = Constant <value = float {-3.4028234e38}> ()
           least = CastLike (lowest, X)
           none = Sub (one, one)
           start = Squeeze (none)
           nothing = CastLike (start, X)
           steps = Shape <start = 0, end = 1> (X)
           batch = Shape <start = 1, end = 2> (X)
           hidden = Shape <start = 2, end = 3> (R)
           width = Shape <start = 2, end = 3> (X)
           both = Shape <start = 2, end = 3> (W)
           attended = Sub (both, width)
           memory_steps = Shape <start = 1, end = 2> (M)
           memory_count = Squeeze (memory_steps)
           ones = Squeeze (one)
           numbers = Range (start, memory_count, ones)
           attention_shape = Concat <axis = 0> (batch, attended)
           state_shape = Concat <axis = 0> (one, batch, hidden)
           no_attention = Expand (nothing, attention_shape)
           no_state = Expand (nothing, state_shape))");
    add(ctx_.hasInput(kLengths) ? "lengths = Cast <to = 7> (sequence_lens)"
                                : "lengths = Expand (steps, batch)");
    add(ctx_.hasInput(kMemoryLengths) ? R"(memory_ends = Cast <to = 7> (memory_seq_lens)
                 memory_end = Unsqueeze (memory_ends, one)
                 in_memory = Less (numbers, memory_end))"
                                      : R"(memory_shape = Concat <axis = 0> (batch, memory_steps)
                 always = Constant <value = bool {1}> ()
                 in_memory = Expand (always, memory_shape))");
    for (int d = 0; d < directions; ++d) direction(d, direction_ == "reverse" || d == 1);
    auto all = [&](const char* name) {
      return directions == 2 ? fmt::format("{0}_0, {0}_1", name) : fmt::format("{}_0", name);
    };
    add(fmt::format("Y = Concat <axis = 1> ({})\nY_h = Concat <axis = 0> ({})\nY_c = Concat <axis = 0> ({})",
                    all("y"), all("h"), all("c")));
  }

private:
  void add(const std::string& text) { builder_.Add(text.c_str()); }

  /// The part of input `i` for direction `d`, with its first dimension; nothing where it is left out.
  void part(int i, int d) {
    if (!ctx_.hasInput(i)) return;
    add(fmt::format("{0}_{1} = Slice ({0}, {2}, {3}, zero)", kNames[i], d, d == 0 ? "zero" : "one",
                    d == 0 ? "one" : "two"));
  }
  std::string given(int i, int d) const { return ctx_.hasInput(i) ? fmt::format("{}_{}", kNames[i], d) : ""; }

  void direction(int d, bool reverse) {
    for (int i :
         {1, 2, static_cast<int>(kB), static_cast<int>(kH), static_cast<int>(kC), static_cast<int>(kP),
          static_cast<int>(kQW), static_cast<int>(kMW), static_cast<int>(kV), static_cast<int>(kAW)})
      part(i, d);
    add(fmt::format(R"(query_{0} = Squeeze (QW_{0}, zero)
                       of_memory_{0} = Squeeze (MW_{0}, zero)
                       keys_{0} = MatMul (M, of_memory_{0}))",
                    d));
    if (ctx_.hasInput(kAW)) add(fmt::format("layer_{0} = Squeeze (AW_{0}, zero)", d));
    if (reverse) add(fmt::format("x_{} = ReverseSequence <batch_axis = 1, time_axis = 0> (X, lengths)", d));
    const std::string h = ctx_.hasInput(kH) ? given(kH, d) : "no_state",
                      c = ctx_.hasInput(kC) ? given(kC, d) : "no_state";
    add(fmt::format("h_{0}, c_{0}, attention_{0}, step_{0}, ys_{0} = Scan <num_scan_inputs = 1, body = {1}> "
                    "({2}, {3}, no_attention, start, {4})",
                    d, body(d), h, c, reverse ? fmt::format("x_{}", d) : "X"));
    for (AttributeProto& a : *to_.mutable_node(to_.node_size() - 1)->mutable_attribute())
      if (a.has_g()) lstm_attributes(*a.mutable_g(), d);
    if (!reverse) {
      add(fmt::format("y_{0} = Identity (ys_{0})", d));
    } else {
      add(fmt::format(R"(flat_{0} = Squeeze (ys_{0}, one)
                         turned_{0} = ReverseSequence <batch_axis = 1, time_axis = 0> (flat_{0}, lengths)
                         y_{0} = Unsqueeze (turned_{0}, one))",
                      d));
    }
  }

  /// One step. Rows whose sequence has ended keep their state and give zeros.
  std::string body(int d) const {
    std::string attended = ctx_.hasInput(kAW)
                               ? fmt::format("context_and = Concat <axis = 1> (flat, context)\n"
                                             "attention_out = MatMul (context_and, layer_{})",
                                             d)
                               : "attention_out = Identity (context)";
    return fmt::format(R"(step_{0} (h_in, c_in, attention_in, step_in, x) =>
        (h_out, c_out, attention_out, step_out, y) {{
          seen = Concat <axis = 1> (x, attention_in)
          seen_once = Unsqueeze (seen, zero)
          ys, h_new, c_new = LSTM (seen_once, W_{0}, R_{0}, {1}, , h_in, c_in{2})
          going = Less (step_in, lengths)
          active = Unsqueeze (going, one)
          h_out = Where (active, h_new, h_in)
          c_out = Where (active, c_new, c_in)
          y = Where (active, h_new, nothing)
          step_out = Add (step_in, ones)
          flat = Squeeze (h_new, zero)
          asked = MatMul (flat, query_{0})
          question = Unsqueeze (asked, one)
          summed = Add (keys_{0}, question)
          bent = Tanh (summed)
          weighted = Mul (bent, V_{0})
          scores = ReduceSum <keepdims = 0> (weighted, two)
          known = Where (in_memory, scores, least)
          shares = Softmax <axis = 1> (known)
          shares_row = Unsqueeze (shares, one)
          mixed = MatMul (shares_row, M)
          context = Squeeze (mixed, one)
          {3}
        }})",
                       d, given(kB, d), ctx_.hasInput(kP) ? ", " + given(kP, d) : "", attended);
  }

  void lstm_attributes(onnx::GraphProto& graph, int d) {
    auto node = std::find_if(graph.mutable_node()->begin(), graph.mutable_node()->end(),
                             [](const onnx::NodeProto& n) { return n.op_type() == "LSTM"; });
    for (const char* name : {"clip", "input_forget", "hidden_size"})
      if (const AttributeProto* a = ctx_.getAttribute(name)) *node->add_attribute() = *a;
    std::vector<std::string> functions = texts(ctx_.getAttribute("activations"));
    if (functions.empty()) return;
    const size_t directions = direction_ == "bidirectional" ? 2 : 1;
    TBX_MODEL(functions.size() == 3 * directions, "{} activations, expected {}", functions.size(),
              3 * directions);
    std::vector<float> alpha = numbers(ctx_.getAttribute("activation_alpha")),
                       beta = numbers(ctx_.getAttribute("activation_beta"));
    for (int k = 0; k <= d; ++k) {
      const auto first = functions.begin() + std::ptrdiff_t{3} * k;
      std::vector<std::string> own(first, first + 3);
      auto alphas = take_parameters(
          own, {"affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"}, alpha);
      auto betas = take_parameters(own, {"affine", "scaledtanh", "hardsigmoid"}, beta);
      if (k < d) continue;
      *node->add_attribute() = onnx::MakeAttribute("activations", own);
      if (!alphas.empty()) *node->add_attribute() = onnx::MakeAttribute("activation_alpha", alphas);
      if (!betas.empty()) *node->add_attribute() = onnx::MakeAttribute("activation_beta", betas);
    }
  }

  const onnx::FunctionBodyBuildContext& ctx_;
  onnx::FunctionProto& to_;
  onnx::FunctionBuilder builder_;
  std::string direction_;
};

bool write_body(const onnx::FunctionBodyBuildContext& ctx, const OpSchema& schema, onnx::FunctionProto& to) {
  Writer(ctx, to).run();
  schema.BuildFunction(to);
  to.clear_opset_import();
  auto* import = to.add_opset_import();
  import->set_domain("");
  import->set_version(17);
  return true;
}

void infer(onnx::InferenceContext& ctx) {
  for (size_t i = 0; i < ctx.getNumOutputs(); ++i) {
    onnx::propagateElemTypeFromInputToOutput(ctx, 0, i);
    auto* shape = ctx.getOutputType(i)->mutable_tensor_type()->mutable_shape();
    for (int d = 0; d < (i == 0 ? 4 : 3); ++d) shape->add_dim();
  }
}

} // namespace

OpSchema make_attn_lstm() {
  OpSchema schema("AttnLSTM", __FILE__, __LINE__);
  schema.SetDomain("com.microsoft").SinceVersion(1).AllowUncheckedAttributes();
  for (int i = 0; i <= kAW; ++i)
    schema.Input(i, kNames[i], "", i == kLengths || i == kMemoryLengths ? "T1" : "T",
                 i < kB ? OpSchema::Single : OpSchema::Optional);
  const char* outputs[] = {"Y", "Y_h", "Y_c"};
  for (int i = 0; i < 3; ++i) schema.Output(i, outputs[i], "", "T", OpSchema::Optional);
  schema.TypeConstraint("T", {"tensor(float)", "tensor(double)"}, "")
      .TypeConstraint("T1", {"tensor(int32)"}, "")
      .TypeAndShapeInferenceFunction(infer)
      .SetContextDependentFunctionBodyBuilder(write_body);
  schema.Finalize();
  return schema;
}

} // namespace tbx::importer
