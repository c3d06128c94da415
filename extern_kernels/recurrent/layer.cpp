#include "extern_kernels/recurrent/layer.h"

#include "base/error.h"

namespace tbx::extern_kernels::recurrent {

Layer::Layer(const HostProblem& p) {
  auto integer = [&](const char* name) { return std::get<int64_t>(p.attributes.at(name)); };
  kind = p.op == "LSTM"                        ? Kind::lstm
         : p.op == "RNN"                       ? Kind::rnn
         : integer("linear_before_reset") != 0 ? Kind::gru_linear
                                               : Kind::gru;
  layout = integer("layout");
  outputs = integer("outputs");
  const auto& direction = std::get<std::string>(p.attributes.at("direction"));
  const auto& names = std::get<std::vector<std::string>>(p.attributes.at("activations"));
  const auto& alpha = std::get<std::vector<double>>(p.attributes.at("activation_alpha"));
  const auto& beta = std::get<std::vector<double>>(p.attributes.at("activation_beta"));
  const size_t directions = direction == "bidirectional" ? 2 : 1, per = names.size() / directions;
  for (size_t d = 0; d < directions; ++d) {
    CellOptions o;
    Activation* slots[] = {&o.f, &o.g, &o.h};
    for (size_t k = 0; k < per; ++k) {
      TBX_INTERNAL(find_activation(names[d * per + k], slots[k]->kind));
      slots[k]->alpha = alpha[d * per + k];
      slots[k]->beta = beta[d * per + k];
    }
    o.clip = std::get<double>(p.attributes.at("clip"));
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
