// Stages of a product with what comes after it: in one call where the library has a kernel for that, else
// beside.
#pragma once

#include <optional>

#include "extern_kernels/onednn/common.h"
#include "extern_kernels/onednn/prepared.h"

namespace tbx::extern_kernels::onednn {

/// The primitive that `make` gives. The assembler of the library remembers for the rest of a thread that an
/// offset did not fit into 32 bits, and nothing is made any more by that thread. So what has operands as
/// large as that is made by a thread of its own.
dnnl::primitive made_apart(const dnnl::primitive_desc_base& descriptor,
                           const std::function<dnnl::primitive()>& make);

/// The primitive of the first implementation that is not refused; without a name where all are.
template <class Descriptor> Primitive make_primitive(Descriptor descriptor, const Use& use) {
  Implementation taken = choose(descriptor, use);
  if (taken.name.empty()) return {{}, {}, std::move(taken)};
  auto primitive = made_apart(descriptor, [&] { return dnnl::primitive(descriptor); });
  return {descriptor, std::move(primitive), std::move(taken)};
}

/// There is one, and it is no plain loop.
inline bool is_fast(const Primitive& p) {
  return !p.implementation.name.empty() && !p.implementation.is_reference;
}

/// `bias`, then `ops`, on a result that lies in output 0, in place. `operand`: the descriptor of an input;
/// one value per channel is a full descriptor with sizes of 1. nullopt: oneDNN has only plain loops for it.
std::optional<std::vector<Stage>> stages_beside(const dnnl::memory::desc& result, std::optional<int> bias,
                                                std::span<const PostOp> ops,
                                                const std::function<dnnl::memory::desc(int input)>& operand);

/// A copy of input `input` into output 0 or, `own` >= 0, into that buffer between stages.
Stage copy_stage(int input, const dnnl::memory::desc& from, const dnnl::memory::desc& to, int own = -1);

/// A copy of buffer number `own` between stages into output 0.
Stage copy_back_stage(int own, const dnnl::memory::desc& from, const dnnl::memory::desc& to);

} // namespace tbx::extern_kernels::onednn
