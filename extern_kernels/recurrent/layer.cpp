#include "extern_kernels/recurrent/layer.h"

#include "base/error.h"

namespace tbx::extern_kernels::recurrent {

Layer::Layer(const RecurrentProblem& p)
    : kind(p.cell), gates(p.gates()), batch_first(p.batch_first),
      outputs(p.gives_y | p.gives_h << 1 | p.gives_c << 2) {
  const size_t per = p.activations_of_direction();
  TBX_INTERNAL(p.activations.size() == static_cast<size_t>(p.directions()) * per); // layer_fit.cpp
  for (int d = 0; d < p.directions(); ++d) {
    CellOptions o;
    Activation* slots[] = {&o.f, &o.g, &o.h};
    for (size_t k = 0; k < per; ++k) *slots[k] = p.activations[static_cast<size_t>(d) * per + k];
    o.clip = p.clip;
    o.input_forget = p.input_forget;
    options.push_back(o);
    reverse.push_back(p.direction == RecurrentProblem::reverse || d == 1);
  }
}

} // namespace tbx::extern_kernels::recurrent
