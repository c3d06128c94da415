// Primitives of the library, made once per process for everybody who needs the same one.
#pragma once

#include <dnnl.hpp>
#include <functional>
#include <memory>
#include <vector>

#include "extern_kernels/kernel.h"
#include "extern_kernels/onednn/implementation.h"

namespace tbx::extern_kernels::onednn {

/// All that a primitive is made from, as numbers.
class Key {
public:
  Key& add(int64_t v) {
    values_.push_back(v);
    return *this;
  }
  Key& add(std::span<const int64_t> list);
  Key& add(const TensorRef& t);
  Key& add(const std::vector<PostOp>& ops);
  bool operator==(const Key&) const = default;
  size_t hash() const;

private:
  std::vector<int64_t> values_;
};

struct Primitive {
  dnnl::primitive_desc_base descriptor; ///< kept: the primitive refers to its attributes
  dnnl::primitive primitive;
  Implementation implementation;

  dnnl::memory::desc weights() const { return descriptor.query_md(dnnl::query::weights_md, 0); }
  dnnl::memory::desc scratchpad() const { return descriptor.query_md(dnnl::query::scratchpad_md); }
};

/// The primitive of `key`, made when nobody had it yet. The number of threads of the arena that the call is
/// in belongs to the key: the library lays out its work for that number when it makes a primitive.
///
/// oneDNN's own cache is off (cpu_engine): in release 3.2 it hands out descriptors whose kernels are
/// described by pointers into the attributes of the descriptor they were copied from, which is gone by then.
/// When such a descriptor outlives its primitive in the cache, making the primitive anew reads freed memory.
std::shared_ptr<const Primitive> shared_primitive(Key key, const std::function<Primitive()>& make);

/// What the library would compute the primitive of `key` with, asked once: compilers and binders ask for the
/// same layer many times, and each time the library describes it anew.
std::shared_ptr<const Implementation> shared_answer(Key key, const std::function<Implementation()>& ask);

} // namespace tbx::extern_kernels::onednn
