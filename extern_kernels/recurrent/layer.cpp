#include "extern_kernels/recurrent/layer.h"

#include "base/error.h"
#include "extern_kernels/host_attribute.h"

namespace tbx::extern_kernels::recurrent {

Layer::Layer(const HostProblem& p) {
  auto integer = [&](const char* name) { return attribute<int64_t>(p, name); };
  kind = p.op == "LSTM"                        ? Kind::lstm
         : p.op == "RNN"                       ? Kind::rnn
         : integer("linear_before_reset") != 0 ? Kind::gru_linear
                                               : Kind::gru;
  layout = integer("layout");
  outputs = integer("outputs");
  const auto& direction = attribute<std::string>(p, "direction");
  const auto& names = attribute<std::vector<std::string>>(p, "activations");
  const auto& alpha = attribute<std::vector<double>>(p, "activation_alpha");
  const auto& beta = attribute<std::vector<double>>(p, "activation_beta");
  const size_t directions = direction == "bidirectional" ? 2 : 1, per = names.size() / directions;
  const size_t gates = p.op == "LSTM" ? 3 : p.op == "GRU" ? 2 : 1;
  TBX_MODEL(names.size() == directions * gates && alpha.size() == names.size() && beta.size() == names.size(),
            "{} activations with {} and {} parameters: the package is damaged", names.size(), alpha.size(),
            beta.size());
  for (size_t d = 0; d < directions; ++d) {
    CellOptions o;
    Activation* slots[] = {&o.f, &o.g, &o.h};
    for (size_t k = 0; k < per; ++k) {
      TBX_MODEL(find_activation(names[d * per + k], slots[k]->kind),
                "{} is no activation: the package is damaged", names[d * per + k]);
      slots[k]->alpha = alpha[d * per + k];
      slots[k]->beta = beta[d * per + k];
    }
    o.clip = attribute<double>(p, "clip");
    o.input_forget = integer("input_forget") != 0;
    options.push_back(o);
    reverse.push_back(direction == "reverse" || d == 1);
  }
}

std::string refuses_layer(const HostProblem& p) {
  const bool is_one = p.domain.empty() && (p.op == "LSTM" || p.op == "GRU" || p.op == "RNN");
  return is_one ? "" : "no recurrent layer";
}

} // namespace tbx::extern_kernels::recurrent
