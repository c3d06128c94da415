// Inside of custom operators: the registered descriptor and the C view of a node.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "extern_kernels/custom_operator.h"
#include "tensorbox/custom_op.h"

namespace tbx::extern_kernels {

/// A copy of what the library registered; its functions live as long as the process.
class CustomOperator {
public:
  CustomOperator(const TbxOperator& op, std::string file)
      : domain_(op.domain), name_(op.name), file_(std::move(file)), op_(op) {
    op_.domain = domain_.c_str();
    op_.name = name_.c_str();
  }
  CustomOperator(const CustomOperator&) = delete;
  CustomOperator& operator=(const CustomOperator&) = delete;

  const TbxOperator& descriptor() const { return op_; }
  const std::string& domain() const { return domain_; }
  const std::string& name() const { return name_; }
  const std::string& file() const { return file_; }
  std::string description() const {
    return fmt::format("custom operator {}.{} of {}", domain_, name_, file_);
  }

private:
  std::string domain_, name_, file_;
  TbxOperator op_;
};

inline constexpr size_t kMessageSize = 1024;

/// Calls `f`, a function of the library that takes a context with `message`. Throws Error of the kind that
/// the status says.
template <class Context, class F>
void call_operator(const CustomOperator& op, const char* what, Context& ctx, F&& f) {
  char message[kMessageSize] = "";
  ctx.message = message;
  ctx.message_size = sizeof message;
  TbxStatus status = TBX_BACKEND_ERROR;
  try {
    status = f(&ctx);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    throw_backend_error("{}: {} threw a C++ exception: {}", op.description(), what, e.what());
  } catch (...) {
    throw_backend_error("{}: {} threw a C++ exception", op.description(), what);
  }
  ctx.message = nullptr;
  if (status == TBX_OK) return;
  message[sizeof message - 1] = '\0';
  ErrorKind kind = status == TBX_MODEL_ERROR   ? ErrorKind::model
                   : status == TBX_UNSUPPORTED ? ErrorKind::unsupported
                                               : ErrorKind::backend;
  throw Error(kind, fmt::format("{}: {}", op.description(),
                                message[0] ? std::string(message) : fmt::format("{} failed", what)));
}

struct CustomNode::Impl {
  std::shared_ptr<const CustomOperator> op;
  Shape shape;
  // What `attributes` and `node` point at.
  std::vector<std::vector<float>> floats;
  std::vector<std::vector<TbxString>> strings;
  std::vector<TbxTensor> tensors;
  std::vector<TbxAttribute> attributes;
  TbxNode node{};
};

} // namespace tbx::extern_kernels
