// Graphs of operations as cuDNN's backend interface takes them, built of its descriptors. Everything throws
// BackendError with the library's reason where it refuses a descriptor.
#pragma once

#include <list>
#include <map>
#include <string>
#include <vector>

#include "extern_kernels/cuda/cudnn.h"

namespace tbx::extern_kernels::cuda::dnn {

/// A descriptor of the backend interface.
class Object {
public:
  explicit Object(int type);
  ~Object();
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  void set(int attribute, int type, int64_t count, const void* values);
  template <class T> void set(int attribute, int type, const T& value) { set(attribute, type, 1, &value); }
  void set(int attribute, const Object& object);
  void set(int attribute, const std::vector<int64_t>& values);
  void finalize(const char* what);
  Descriptor get() const { return descriptor_; }

private:
  Descriptor descriptor_ = nullptr;
};

/// Builds a graph; everything made lives as long as the builder.
class Graph {
public:
  /// A tensor in memory. `align`: bytes that divide its address.
  Object& tensor(int64_t id, int type, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                 int64_t align);
  /// One that exists inside of the kernel only.
  Object& inner(int type, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides);
  /// A float that is given by value.
  Object& scalar(int64_t id);
  struct Convolution {
    bool backward = false; ///< by its gradient: x is smaller than y
    std::vector<int64_t> strides, dilations, pads_begin, pads_end;
    // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 sees a 0 here
    auto operator<=>(const Convolution&) const = default;
  };
  void convolution(const Convolution& c, const Object& x, const Object& w, const Object& y);
  void pointwise(int mode, const Object& x, const Object* b, const Object& y,
                 const Object* condition = nullptr, int precision = kF32, int64_t axis = -1);
  void reduction(int operation, const Object& x, const Object& y);
  void product(const Object& a, const Object& b, const Object& c);
  /// The graph of all operations so far.
  Object& finish(Handle handle);
  /// All that was described: the same for equal graphs.
  const std::string& text() const { return text_; }

private:
  Object& add(int type);
  Object& numbered(Object& tensor);
  std::string name_of(const Object& tensor) const;
  std::list<Object> objects_;
  std::vector<Descriptor> operations_;
  std::map<Descriptor, size_t> numbers_; ///< of tensors, in order
  std::string text_;
  int64_t next_inner_ = 1000;
};

} // namespace tbx::extern_kernels::cuda::dnn
