// TfIdfVectorizer of integers: the vocabulary checked, then a host kernel
// (extern_kernels/host/tf_idf_vectorizer.cpp). That of strings is a value operator
// (runtime/value_ops/tf_idf.cpp).
#include "extern_kernels/host/tf_idf.h"
#include "lowering/ops/families.h"
#include "lowering/ops/host_call.h"

namespace tbx::lowering {
namespace {

std::vector<LoweredValue> tf_idf_vectorizer(OpContext& ctx) {
  SymInts sizes = ctx.sizes(0);
  TBX_MODEL(sizes.size() <= 2, "the input has rank {}, expected 1 or 2", sizes.size());
  TBX_MODEL(is_integer(ctx.dtype(0)), "the input is of type {}", name_of(ctx.dtype(0)));
  extern_kernels::Attributes attributes = host_attributes(ctx.node);
  const int64_t width = extern_kernels::read_tf_idf<int64_t>(attributes).width;
  SymInts out = sizes.size() == 2 ? SymInts{sizes[0], width} : SymInts{width};
  return host_call(ctx, {{DType::f32, out}}, std::move(attributes));
}

} // namespace

void register_tf_idf(Registry& r) { r.add("TfIdfVectorizer", since(9), tf_idf_vectorizer); }

} // namespace tbx::lowering
