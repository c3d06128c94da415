#include "graph/differentiate/recurrent_body.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>

#include "base/error.h"
#include "graph/function_body.h"
#include "graph/node_attributes.h"
#include "lowering/op_registry.h"

namespace tbx::graph {
namespace {

/// Writes the body as a function in ONNX's text form. Names end in the number of the direction; in the body
/// of the Scan h is the state, c the cell and g what a step takes from the input.
class RecurrentText {
public:
  RecurrentText(const Node& node, const char* type) : node_(node), type_(type) {
    lstm_ = node.op_type == "LSTM";
    gru_ = node.op_type == "GRU";
    gates_ = lstm_ ? 4 : gru_ ? 3 : 1;
    const auto direction = attribute_or<std::string>(node, "direction", "forward");
    directions_ = direction == "bidirectional" ? 2 : 1;
    first_reverse_ = direction == "reverse";
    layout_ = attribute_or<int64_t>(node, "layout", 0) != 0;
    linear_ = gru_ && attribute_or<int64_t>(node, "linear_before_reset", 0) != 0;
    read_activations();
  }

  std::string write() {
    line("X = {}", layout_ ? "Transpose<perm = [1, 0, 2]>(x)" : "Identity(x)");
    line("sizes = Shape(X)");
    line("i0 = Constant<value_int = 0>()");
    line("i1 = Constant<value_int = 1>()");
    line("steps = Gather(sizes, i0)");
    line("times = Range(i0, steps, i1)");
    line("axis0 = Constant<value_ints = [0]>()");
    line("axis1 = Constant<value_ints = [1]>()");
    line("last = Constant<value_ints = [-1]>()");
    line("one = {}", number(1));
    line("zero = {}", number(0));
    if (has(4)) line("lengths = Cast<to = 7>(lens)");
    std::vector<std::string> ys, hs, cs;
    for (int d = 0; d < directions_; ++d) {
      direction(d);
      ys.push_back(fmt::format("y{}", d));
      hs.push_back(fmt::format("hn{}", d));
      cs.push_back(fmt::format("cn{}", d));
    }
    line("ys = Concat<axis = 1>({})", fmt::join(ys, ", "));
    line("Y = {}", layout_ ? "Transpose<perm = [2, 0, 1, 3]>(ys)" : "Identity(ys)");
    result("Y_h", hs);
    if (lstm_) result("Y_c", cs);
    return fmt::format(
        "<opset_import: [\"\": 18], domain: \"local\"> f (x, W, R, B, lens, h_init, c_init, P) "
        "=> (Y, Y_h{}) {{\n{}}}",
        lstm_ ? ", Y_c" : "", text_);
  }

private:
  template <class... A> void line(fmt::format_string<A...> f, A&&... a) {
    text_ += fmt::format(f, std::forward<A>(a)...) + "\n";
  }
  bool has(size_t i) const { return node_.input(i) >= 0; }
  /// A number in the type of the node, in shortest form that reads back as the same.
  std::string number(double v) const { return fmt::format("Constant<value = {} {{{}}}>()", type_, v); }
  void result(const char* name, const std::vector<std::string>& parts) {
    line("all_{} = Concat<axis = 0>({})", name, fmt::join(parts, ", "));
    line("{0} = {1}(all_{0})", name, layout_ ? "Transpose<perm = [1, 0, 2]>" : "Identity");
  }

  /// Names, alphas and betas of the functions of all directions; parameters are handed out in order to those
  /// that have some.
  void read_activations() {
    struct Default {
      const char* name;
      int parameters;
      double alpha, beta;
    };
    static constexpr Default kKnown[] = {
        {"affine", 2, 1, 0},   {"relu", 0, 0, 0},       {"leakyrelu", 1, 0.01f, 0},
        {"tanh", 0, 0, 0},     {"scaledtanh", 2, 1, 1}, {"thresholdedrelu", 1, 1, 0},
        {"sigmoid", 0, 0, 0},  {"elu", 1, 1, 0},        {"hardsigmoid", 2, 0.2f, 0.5},
        {"softsign", 0, 0, 0}, {"softplus", 0, 0, 0}};
    std::vector<std::string> names = attribute_or<std::vector<std::string>>(node_, "activations", {}), one;
    if (lstm_)
      one = {"sigmoid", "tanh", "tanh"};
    else if (gru_)
      one = {"sigmoid", "tanh"};
    else
      one = {"tanh"};
    for (int d = 0; names.empty() && d < directions_; ++d)
      defaults_.insert(defaults_.end(), one.begin(), one.end());
    if (!names.empty()) defaults_ = std::move(names);
    functions_ = one.size();
    TBX_MODEL(defaults_.size() == functions_ * static_cast<size_t>(directions_),
              "{} activations, expected {}", defaults_.size(), functions_ * static_cast<size_t>(directions_));
    const auto alphas = attribute_or<std::vector<float>>(node_, "activation_alpha", {}),
               betas = attribute_or<std::vector<float>>(node_, "activation_beta", {});
    size_t next_alpha = 0, next_beta = 0;
    for (std::string& name : defaults_) {
      for (char& ch : name) ch = static_cast<char>(std::tolower(static_cast<unsigned char>(ch)));
      const Default* known = nullptr;
      for (const Default& k : kKnown)
        if (name == k.name) known = &k;
      TBX_MODEL(known != nullptr, "unknown activation '{}'", name);
      alpha_.push_back(known->parameters > 0 && next_alpha < alphas.size() ? alphas[next_alpha++]
                                                                           : known->alpha);
      beta_.push_back(known->parameters > 1 && next_beta < betas.size() ? betas[next_beta++] : known->beta);
    }
  }

  /// `to` = function `which` of direction `d` of `from`, clipped where `clipped`.
  void activate(int d, size_t which, const std::string& to, std::string from, bool clipped = true) {
    if (clipped && node_.attributes.count("clip")) {
      const double clip = attribute_or<float>(node_, "clip", 0);
      line("{0}_lo = {1} {0}_hi = {2} {0}_in = Clip({3}, {0}_lo, {0}_hi)", to, number(-clip), number(clip),
           from);
      from = to + "_in";
    }
    const size_t k = static_cast<size_t>(d) * functions_ + which;
    const std::string& name = defaults_[k];
    const double a = alpha_[k], b = beta_[k];
    if (name == "affine")
      line("{0}_a = {1} {0}_b = {2} {0}_m = Mul({3}, {0}_a) {0} = Add({0}_m, {0}_b)", to, number(a),
           number(b), from);
    else if (name == "scaledtanh")
      line("{0}_a = {1} {0}_b = {2} {0}_m = Mul({3}, {0}_b) {0}_t = Tanh({0}_m) {0} = Mul({0}_t, {0}_a)", to,
           number(a), number(b), from);
    else if (name == "leakyrelu")
      line("{} = LeakyRelu<alpha = {}>({})", to, real(a), from);
    else if (name == "thresholdedrelu")
      line("{} = ThresholdedRelu<alpha = {}>({})", to, real(a), from);
    else if (name == "elu")
      line("{} = Elu<alpha = {}>({})", to, real(a), from);
    else if (name == "hardsigmoid")
      line("{} = HardSigmoid<alpha = {}, beta = {}>({})", to, real(a), real(b), from);
    else
      line("{} = {}({})", to,
           name == "relu"       ? "Relu"
           : name == "tanh"     ? "Tanh"
           : name == "sigmoid"  ? "Sigmoid"
           : name == "softsign" ? "Softsign"
                                : "Softplus",
           from);
  }
  /// An attribute of type float: the parser takes a number without a point for an integer.
  static std::string real(double v) {
    std::string text = fmt::format("{}", static_cast<float>(v));
    return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
  }

  void direction(int d) {
    line("d{0} = Constant<value_int = {0}>()", d);
    line("W{0} = Gather<axis = 0>(W, d{0}) WT{0} = Transpose(W{0}) product{0} = MatMul(X, WT{0})", d);
    line("R{0} = Gather<axis = 0>(R, d{0}) RT{0} = Transpose(R{0})", d);
    std::string input = fmt::format("product{}", d);
    if (has(3)) {
      line("B{0} = Gather<axis = 0>(B, d{0}) Wb{0}, Rb{0} = Split<axis = 0, num_outputs = 2>(B{0})", d);
      line("biased{0} = Add(product{0}, Wb{0})", d);
      if (!linear_) {
        line("both{0} = Add(biased{0}, Rb{0})", d);
        input = fmt::format("both{}", d);
      } else { // the hidden gate's is scaled by the reset gate
        line("Rbz{0}, Rbr{0}, Rbh{0} = Split<axis = 0, num_outputs = 3>(Rb{0}) none{0} = Mul(Rbh{0}, zero)",
             d);
        line("Rbzr{0} = Concat<axis = 0>(Rbz{0}, Rbr{0}, none{0}) both{0} = Add(biased{0}, Rbzr{0})", d);
        input = fmt::format("both{}", d);
      }
    }
    if (gru_) line("RTz{0}, RTr{0}, RTh{0} = Split<axis = 1, num_outputs = 3>(RT{0})", d);
    if (has(7))
      line("P{0} = Gather<axis = 0>(P, d{0}) Pi{0}, Po{0}, Pf{0} = Split<axis = 0, num_outputs = 3>(P{0})",
           d);
    initial(d, 5, "h");
    if (lstm_) initial(d, 6, "c");
    const int reverse = d == 1 || first_reverse_ ? 1 : 0;
    const std::string cell = lstm_ ? fmt::format(", {}[batch, hidden] c{}", type_, d) : "";
    line("hlast{0}{1}, steps_y{0} = Scan(hinit{0}{2}, {3}, times) <num_scan_inputs = 2, "
         "scan_input_directions = "
         "[{4}, {4}], scan_output_directions = [{4}], body = b{0} ({5}[batch, hidden] h{0}{6}, {5}[batch, "
         "gates] g{0}, int64 t{0}) => ({5}[batch, hidden] hnew{0}{7}, {5}[batch, hidden] ynew{0}) {{",
         d, lstm_ ? fmt::format(", clast{}", d) : "", lstm_ ? fmt::format(", cinit{}", d) : "", input,
         reverse, type_, cell, lstm_ ? fmt::format(", {}[batch, hidden] cnew{}", type_, d) : "");
    if (lstm_)
      lstm_step(d);
    else if (gru_)
      gru_step(d);
    else {
      line("rec{0} = MatMul(h{0}, RT{0}) sum{0} = Add(g{0}, rec{0})", d);
      activate(d, 0, fmt::format("next{}", d), fmt::format("sum{}", d));
    }
    if (has(4)) {
      line("runs{0} = Less(t{0}, lengths) valid{0} = Unsqueeze(runs{0}, last)", d);
      line("hnew{0} = Where(valid{0}, next{0}, h{0}) ynew{0} = Where(valid{0}, next{0}, zero)", d);
      if (lstm_) line("cnew{0} = Where(valid{0}, cell{0}, c{0})", d);
    } else {
      line("hnew{0} = Identity(next{0}) ynew{0} = Identity(next{0})", d);
      if (lstm_) line("cnew{0} = Identity(cell{0})", d);
    }
    line("}}>");
    line("y{0} = Unsqueeze(steps_y{0}, axis1) hn{0} = Unsqueeze(hlast{0}, axis0)", d);
    if (lstm_) line("cn{0} = Unsqueeze(clast{0}, axis0)", d);
  }

  /// The first state: an input, or zeros.
  void initial(int d, size_t input, const char* name) {
    if (has(input)) {
      line("{1}t{0} = Gather<axis = {2}>({1}_init, d{0}) {1}init{0} = Identity({1}t{0})", d, name,
           layout_ ? 1 : 0);
      return;
    }
    line("{1}b{0} = Gather(sizes, axis1) {1}r{0} = Shape(R{0}) {1}s{0} = Gather({1}r{0}, axis1)", d, name);
    line("{1}z{0} = Concat<axis = 0>({1}b{0}, {1}s{0}) {1}init{0} = Expand(zero, {1}z{0})", d, name);
  }

  void lstm_step(int d) {
    line("rec{0} = MatMul(h{0}, RT{0}) sum{0} = Add(g{0}, rec{0})", d);
    line("i_{0}, o_{0}, f_{0}, c_{0} = Split<axis = -1, num_outputs = 4>(sum{0})", d);
    auto name = [d](const char* base) { return fmt::format("{}{}", base, d); };
    auto peephole = [&](const char* gate, const char* cell) {
      if (!has(7)) return fmt::format("{}_{}", gate, d);
      line("p{1}{0} = Mul(P{1}{0}, {2}{0}) s{1}{0} = Add({1}_{0}, p{1}{0})", d, gate, cell);
      return fmt::format("s{}{}", gate, d);
    };
    activate(d, 0, name("in"), peephole("i", "c"));
    if (attribute_or<int64_t>(node_, "input_forget", 0) != 0)
      line("forget{0} = Sub(one, in{0})", d);
    else
      activate(d, 0, name("forget"), peephole("f", "c"));
    activate(d, 1, name("candidate"), name("c_"));
    line(
        "kept{0} = Mul(forget{0}, c{0}) added{0} = Mul(in{0}, candidate{0}) cell{0} = Add(kept{0}, added{0})",
        d);
    activate(d, 0, name("out"), peephole("o", "cell"));
    activate(d, 2, name("shown"), name("cell"), false);
    line("next{0} = Mul(out{0}, shown{0})", d);
  }

  void gru_step(int d) {
    auto name = [d](const char* base) { return fmt::format("{}{}", base, d); };
    line("gz{0}, gr{0}, gh{0} = Split<axis = -1, num_outputs = 3>(g{0})", d);
    line("rz{0} = MatMul(h{0}, RTz{0}) sz{0} = Add(gz{0}, rz{0})", d);
    line("rr{0} = MatMul(h{0}, RTr{0}) sr{0} = Add(gr{0}, rr{0})", d);
    activate(d, 0, name("update"), name("sz"));
    activate(d, 0, name("reset"), name("sr"));
    if (linear_) {
      line("rh{0} = MatMul(h{0}, RTh{0})", d);
      if (has(3)) line("rhb{0} = Add(rh{0}, Rbh{0})", d);
      line("part{0} = Mul(reset{0}, {1}{0})", d, has(3) ? "rhb" : "rh");
    } else {
      line("hr{0} = Mul(reset{0}, h{0}) part{0} = MatMul(hr{0}, RTh{0})", d);
    }
    line("sh{0} = Add(gh{0}, part{0})", d);
    activate(d, 1, name("candidate"), name("sh"));
    line("rest{0} = Sub(one, update{0}) fresh{0} = Mul(rest{0}, candidate{0})", d);
    line("kept{0} = Mul(update{0}, h{0}) next{0} = Add(fresh{0}, kept{0})", d);
  }

  const Node& node_;
  const char* type_;
  bool lstm_, gru_, layout_, linear_, first_reverse_;
  int gates_, directions_;
  size_t functions_ = 0;
  std::vector<std::string> defaults_;
  std::vector<double> alpha_, beta_;
  std::string text_;
};

} // namespace

std::optional<Graph> recurrent_body(const Node& node, const Graph& graph) {
  if (!has(lowering::Trait::has_gates, node)) return std::nullopt;
  if (node.inputs.empty() || node.inputs[0] < 0) return std::nullopt;
  const DType type = graph.at(node.inputs[0]).type.dtype;
  if (type != DType::f32 && type != DType::f64) return std::nullopt;
  if (node.opset < 7) throw_unsupported("the gradient of {} as before opset 7", describe(graph, node));
  return body_of_text(graph, node, RecurrentText(node, type == DType::f64 ? "double" : "float").write());
}

} // namespace tbx::graph
