// Facts about operators that run through the body that ONNX defines for them.
#include "lowering/ops/families.h"

namespace tbx::lowering {

void register_bodies(Registry& r) {
  r.mark(Trait::any_values, {"SequenceMap"});
  r.mark(Trait::runs_bodies, {"SequenceMap"});
  r.mark(Trait::on_values, {"SequenceMap"});
  r.mark(Trait::by_body, {"SequenceMap"});
  r.mark(Trait::half_follows, {"RotaryEmbedding"});
  for (const char* op : {"NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"})
    r.need(op, 1, index_into(0, 1));
  r.need("RotaryEmbedding", 3, index_into(1, 0));
}

} // namespace tbx::lowering
