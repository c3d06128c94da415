#include "package/device_tensors.h"

#include <fmt/format.h>

#include "base/error.h"
#include "tensorbox/device.h"

namespace tbx {
namespace package {
namespace {

size_t bytes_of(int32_t type, const std::vector<int64_t>& dims) {
  const auto dtype = static_cast<DType>(type);
  TBX_MODEL(dtype != DType::string && size_of(dtype) > 0, "a tensor of type {} cannot be on a device",
            name_of(dtype));
  return static_cast<size_t>(checked_numel(dims) * size_of(dtype));
}

void upload(device::Device& device, void* to, const void* from, size_t bytes) {
  const std::unique_ptr<device::Stream> stream = device.make_stream();
  stream->upload(to, from, bytes);
  stream->synchronize();
}

/// The block behind a tensor of a device that we made.
std::shared_ptr<runtime::OutputBlock> block_of(const OutputTensor& tensor) {
  TBX_MODEL(tensor.device != kHost, "the tensor is in memory of the host");
  TBX_MODEL(tensor.owner != nullptr, "the tensor is in memory of the caller");
  return std::static_pointer_cast<runtime::OutputBlock>(tensor.owner);
}

} // namespace

void throw_not_async() {
  throw Error(ErrorKind::unsupported, "the host has work in every run, which cannot be asynchronous",
              "use run; `tbx explain` has the steps on the host");
}

void set_stream(runtime::RunOptions& options, const device::Device* device, void* stream, bool async) {
  if (!device)
    throw Error(ErrorKind::model, "the session runs on the CPU, which has no streams",
                "compile with the option device");
  options.stream = stream;
  options.async = async;
}

void to_device(const std::shared_ptr<device::Device>& device, const runtime::RunTensor& made,
               runtime::RunTensor& to) {
  OutputTensor t{"", static_cast<int32_t>(made.dtype), made.dims, made.data, made.owner, nullptr};
  t = to_device(device, std::move(t), {to.data, static_cast<int32_t>(to.dtype), to.dims, 0});
  to.data = t.data;
  to.owner = t.owner;
  to.dtype = static_cast<DType>(t.type);
  to.dims = std::move(t.dims);
}

OutputTensor to_device(const std::shared_ptr<device::Device>& device, OutputTensor made,
                       const TensorView& to) {
  const size_t bytes = bytes_of(made.type, made.dims);
  const void* from = made.data;
  const std::shared_ptr<void> keep = std::move(made.owner);
  made.owner = nullptr;
  if (to.data) {
    TBX_MODEL(to.type == made.type && to.dims == made.dims, "output '{}' is {}[{}], its view is {}[{}]",
              made.name, name_of(static_cast<DType>(made.type)), fmt::join(made.dims, ", "),
              name_of(static_cast<DType>(to.type)), fmt::join(to.dims, ", "));
    const std::string defect = device->defect_of(to.data, bytes);
    TBX_MODEL(defect.empty(), "output '{}' is not memory of cuda:{}, where the model runs: {}", made.name,
              device->properties().number, defect);
    made.data = to.data;
  } else {
    const auto block = runtime::OutputBlock::make(device, bytes);
    made.data = block->data();
    made.owner = block;
  }
  made.device = device->properties().number;
  upload(*device, made.data, from, bytes);
  return made;
}

} // namespace package

using package::failure;
using package::guarded;

Result<OutputTensor> to_device(const TensorView& tensor, const std::string& device) {
  return guarded([&] {
    TBX_MODEL(tensor.device == kHost, "the tensor is in memory of cuda:{} already", tensor.device);
    return package::to_device(device::open(device), {"", tensor.type, tensor.dims, tensor.data, {}, {}}, {});
  });
}

Result<OutputTensor> to_host(const OutputTensor& tensor) {
  return guarded([&] {
    if (tensor.device == kHost) return tensor;
    const auto block = package::block_of(tensor);
    device::Device& device = *block->device();
    const std::unique_ptr<device::Stream> stream = device.make_stream();
    block->wait_on(*stream);
    const size_t bytes = package::bytes_of(tensor.type, tensor.dims);
    OutputTensor copy{tensor.name, tensor.type, tensor.dims};
    copy.owner = std::make_shared<std::vector<std::byte>>(bytes);
    copy.data = static_cast<std::vector<std::byte>*>(copy.owner.get())->data();
    stream->download(copy.data, tensor.data, bytes);
    stream->synchronize();
    return copy;
  });
}

std::optional<Failure> assign(const OutputTensor& tensor, const TensorView& host) {
  return failure([&] {
    const auto block = package::block_of(tensor);
    TBX_MODEL(tensor.type == host.type && tensor.dims == host.dims && host.device == kHost,
              "a tensor {}[{}] cannot get the elements of one {}[{}]",
              name_of(static_cast<DType>(tensor.type)), fmt::join(tensor.dims, ", "),
              name_of(static_cast<DType>(host.type)), fmt::join(host.dims, ", "));
    const std::unique_ptr<device::Stream> stream = block->device()->make_stream();
    block->wait_on(*stream);
    stream->upload(tensor.data, host.data, package::bytes_of(tensor.type, tensor.dims));
    stream->synchronize();
  });
}

std::optional<Failure> use_on_stream(const OutputTensor& tensor, void* stream) {
  return failure([&] {
    const auto block = package::block_of(tensor);
    block->wait_on(*block->device()->adopt_stream(stream));
    block->used_on(stream);
  });
}

Result<std::shared_ptr<void>> make_stream(const std::string& device) {
  return guarded([&] {
    auto open = device::open(device);
    std::shared_ptr<device::Stream> stream = open->make_stream();
    void* handle = stream->handle();
    return std::shared_ptr<void>(handle, [stream, open](void*) {});
  });
}

std::optional<Failure> order_streams(const std::string& device, void* earlier, void* later) {
  return failure([&] {
    if (earlier == later) return;
    auto open = device::open(device);
    const auto reached = open->make_event();
    open->adopt_stream(earlier)->record(*reached);
    open->adopt_stream(later)->wait(*reached);
  });
}

Result<std::function<bool()>> mark_stream(const std::string& device, void* stream) {
  return guarded([&]() -> std::function<bool()> {
    auto open = device::open(device);
    std::shared_ptr<device::Event> reached = open->make_event();
    open->adopt_stream(stream)->record(*reached);
    return [open, reached] { return open->is_reached(*reached); };
  });
}

std::optional<Failure> wait_for_stream(const std::string& device, void* stream) {
  return failure([&] { device::open(device)->adopt_stream(stream)->synchronize(); });
}

} // namespace tbx
