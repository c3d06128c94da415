#include "extern_kernels/cuda/dnn_graph.h"

#include <fmt/format.h>

namespace tbx::extern_kernels::cuda::dnn {

Object::Object(int type) {
  check(library().cudnnBackendCreateDescriptor(type, &descriptor_), "making a cuDNN descriptor");
}
Object::~Object() { library().cudnnBackendDestroyDescriptor(descriptor_); }
void Object::set(int attribute, int type, int64_t count, const void* values) {
  check(library().cudnnBackendSetAttribute(descriptor_, attribute, type, count, values),
        "describing an operation to cuDNN");
}
void Object::set(int attribute, const Object& object) { set(attribute, kTypeDescriptor, object.get()); }
void Object::set(int attribute, const std::vector<int64_t>& values) {
  set(attribute, kTypeI64, static_cast<int64_t>(values.size()), values.data());
}
void Object::finalize(const char* what) { check(library().cudnnBackendFinalize(descriptor_), what); }

Object& Graph::add(int type) { return objects_.emplace_back(type); }

Object& Graph::tensor(int64_t id, int type, const std::vector<int64_t>& sizes,
                      const std::vector<int64_t>& strides, int64_t align) {
  Object& t = add(kTensor);
  t.set(kTensorId, kTypeI64, id);
  t.set(kTensorType, kTypeDataType, type);
  t.set(kTensorSizes, sizes);
  t.set(kTensorStrides, strides);
  t.set(kTensorAlign, kTypeI64, align);
  t.finalize("a tensor of cuDNN");
  text_ += fmt::format("tensor {} {} [{}] [{}] {}\n", id, type, fmt::join(sizes, ","),
                       fmt::join(strides, ","), align);
  return numbered(t);
}

Object& Graph::numbered(Object& tensor) {
  numbers_.emplace(tensor.get(), numbers_.size());
  return tensor;
}

std::string Graph::name_of(const Object& tensor) const {
  return fmt::format("t{}", numbers_.at(tensor.get()));
}

Object& Graph::inner(int type, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  Object& t = add(kTensor);
  t.set(kTensorId, kTypeI64, next_inner_++);
  t.set(kTensorType, kTypeDataType, type);
  t.set(kTensorSizes, sizes);
  t.set(kTensorStrides, strides);
  t.set(kTensorAlign, kTypeI64, int64_t{16});
  t.set(kTensorVirtual, kTypeBool, true);
  t.finalize("a tensor of cuDNN");
  text_ += fmt::format("inner {} [{}] [{}]\n", type, fmt::join(sizes, ","), fmt::join(strides, ","));
  return numbered(t);
}

Object& Graph::scalar(int64_t id) {
  Object& t = add(kTensor);
  t.set(kTensorId, kTypeI64, id);
  t.set(kTensorType, kTypeDataType, kF32);
  t.set(kTensorSizes, std::vector<int64_t>(4, 1));
  t.set(kTensorStrides, std::vector<int64_t>(4, 1));
  t.set(kTensorAlign, kTypeI64, int64_t{4});
  t.set(kTensorByValue, kTypeBool, true);
  t.finalize("a scalar of cuDNN");
  text_ += fmt::format("scalar {}\n", id);
  return numbered(t);
}

void Graph::convolution(const Convolution& c, const Object& x, const Object& w, const Object& y) {
  Object& d = add(kConvolution);
  d.set(kConvRank, kTypeI64, static_cast<int64_t>(c.strides.size()));
  d.set(kConvCompute, kTypeDataType, kF32);
  d.set(kConvMode, kTypeConvMode, kCrossCorrelation);
  d.set(kConvPre, c.pads_begin);
  d.set(kConvPost, c.pads_end);
  d.set(kConvDilations, c.dilations);
  d.set(kConvStrides, c.strides);
  d.finalize("a convolution of cuDNN");
  Object& o = add(c.backward ? kBackwardData : kForward);
  o.set(c.backward ? kBackwardDy : kForwardX, x);
  o.set(c.backward ? kBackwardW : kForwardW, w);
  o.set(c.backward ? kBackwardDx : kForwardY, y);
  o.set(c.backward ? kBackwardConv : kForwardConv, d);
  o.set(c.backward ? kBackwardAlpha : kForwardAlpha, kTypeF32, 1.0f);
  o.set(c.backward ? kBackwardBeta : kForwardBeta, kTypeF32, 0.0f);
  o.finalize("a convolution of cuDNN");
  text_ += fmt::format("convolution {} {} {} {} [{}] [{}] [{}] [{}]\n", c.backward, name_of(x), name_of(w),
                       name_of(y), fmt::join(c.strides, ","), fmt::join(c.dilations, ","),
                       fmt::join(c.pads_begin, ","), fmt::join(c.pads_end, ","));
  operations_.push_back(o.get());
}

void Graph::pointwise(int mode, const Object& x, const Object* b, const Object& y, const Object* condition,
                      int precision, int64_t axis) {
  Object& d = add(kPointwise);
  d.set(kPointwiseMode, kTypePointwiseMode, mode);
  d.set(kPointwisePrecision, kTypeDataType, precision);
  if (axis >= 0) d.set(kPointwiseAxis, kTypeI64, axis);
  d.finalize("an elementwise operation of cuDNN");
  Object& o = add(kPointwiseOperation);
  o.set(kPointwiseOp, d);
  o.set(kPointwiseX, x);
  if (b) o.set(kPointwiseB, *b);
  if (condition) o.set(kPointwiseT, *condition);
  o.set(kPointwiseY, y);
  o.finalize("an elementwise operation of cuDNN");
  text_ += fmt::format("pointwise {} {} {} {} {} {} {}\n", mode, name_of(x), b ? name_of(*b) : "-",
                       condition ? name_of(*condition) : "-", name_of(y), precision, axis);
  operations_.push_back(o.get());
}

void Graph::reduction(int operation, const Object& x, const Object& y) {
  Object& d = add(kReduction);
  d.set(kReductionOperator, kTypeReduction, operation);
  d.set(kReductionCompute, kTypeDataType, kF32);
  d.finalize("a reduction of cuDNN");
  Object& o = add(kReductionOperation);
  o.set(kReductionX, x);
  o.set(kReductionY, y);
  o.set(kReductionDesc, d);
  o.finalize("a reduction of cuDNN");
  text_ += fmt::format("reduction {} {} {}\n", operation, name_of(x), name_of(y));
  operations_.push_back(o.get());
}

void Graph::product(const Object& a, const Object& b, const Object& c) {
  Object& d = add(kMatmul);
  d.set(kMatmulCompute, kTypeDataType, kF32);
  d.finalize("a product of cuDNN");
  Object& o = add(kMatmulOperation);
  o.set(kMatmulA, a);
  o.set(kMatmulB, b);
  o.set(kMatmulC, c);
  o.set(kMatmulDesc, d);
  o.finalize("a product of cuDNN");
  text_ += fmt::format("product {} {} {}\n", name_of(a), name_of(b), name_of(c));
  operations_.push_back(o.get());
}

Object& Graph::finish(Handle handle) {
  Object& g = add(kGraph);
  g.set(kGraphHandle, kTypeHandle, handle);
  g.set(kGraphOps, kTypeDescriptor, static_cast<int64_t>(operations_.size()), operations_.data());
  g.finalize("a graph of cuDNN");
  return g;
}

} // namespace tbx::extern_kernels::cuda::dnn
