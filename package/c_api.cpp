// The C interface (include/tensorbox/c.h) but for tbx_compile, which needs the compiler.
#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <optional>

#include "package/c_handles.h"

struct tbx_outputs {
  std::vector<tbx::OutputTensor> tensors;
  std::vector<std::vector<const char*>> strings; ///< by tensor
};

namespace tbx::package {

[[noreturn]] void refuse(const std::string& why) {
  throw Exception({Failure::model_error, "ModelError: " + why});
}

void set_error(tbx_error** error, Failure failure) {
  if (error) *error = new (std::nothrow) tbx_error{std::move(failure)};
}

namespace {

std::vector<std::vector<const char*>> dims_of(const std::vector<TensorInfo>& all) {
  std::vector<std::vector<const char*>> dims;
  for (const TensorInfo& info : all) {
    dims.emplace_back();
    for (const std::string& d : info.dims) dims.back().push_back(d.c_str());
  }
  return dims;
}

tbx_info info_of(const std::vector<TensorInfo>& all, const std::vector<std::vector<const char*>>& dims,
                 size_t number) {
  if (number >= all.size()) return {};
  const TensorInfo& info = all[number];
  return {info.name.c_str(), info.type, info.any_rank ? -1 : static_cast<int32_t>(info.dims.size()),
          info.type_name.c_str(), dims[number].data()};
}

[[noreturn]] void refuse_input(const char* name, const char* why) {
  refuse(std::string("input '") + name + "' has " + why);
}

/// Below 0 where the dimensions are none.
int64_t numel_of(const tbx_tensor& t) {
  int64_t n = 1;
  for (int32_t d = 0; d < t.rank; ++d)
    if (t.dims[d] < 0 || __builtin_mul_overflow(n, t.dims[d], &n)) return -1;
  return n;
}

/// Views of the inputs; strings are copied into `kept`.
Session::Inputs views(const tbx_tensor* inputs, size_t count, std::vector<std::vector<std::string>>& kept,
                      const int32_t* devices = nullptr) {
  if (count > 0 && !inputs) refuse("there are inputs, and the pointer to them is NULL");
  Session::Inputs all;
  kept.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const tbx_tensor& t = inputs[i];
    if (!t.name) refuse("an input has no name");
    TensorView view = checked_view(t, t.name, kept[i]);
    if (devices) view.device = devices[i];
    all.emplace_back(t.name, std::move(view));
  }
  return all;
}

/// Views of the outputs of the model; none where all is usual.
std::vector<TensorView> output_views(const tbx_run_options& o, const Session& session) {
  std::vector<TensorView> all;
  if (!o.outputs && !o.output_devices) return all;
  for (size_t i = 0; i < session.outputs().size(); ++i) {
    TensorView& view = all.emplace_back();
    if (o.output_devices) view.device = o.output_devices[i];
    if (!o.outputs || !o.outputs[i].data) continue;
    const tbx_tensor& t = o.outputs[i];
    if (t.rank < 0 || (t.rank > 0 && !t.dims)) refuse("an output has no dimensions");
    if (t.type == TBX_STRING) refuse("outputs of strings are not written into memory of the caller");
    if (numel_of(t) < 0) refuse("an output has odd dimensions");
    view.data = const_cast<void*>(t.data);
    view.type = t.type;
    if (t.rank > 0) view.dims.assign(t.dims, t.dims + t.rank);
  }
  return all;
}

/// As what C reads it as.
std::unique_ptr<tbx_outputs> outputs_of(std::vector<OutputTensor> tensors) {
  auto made = std::make_unique<tbx_outputs>();
  made->tensors = std::move(tensors);
  for (const OutputTensor& t : made->tensors) {
    made->strings.emplace_back();
    if (t.strings)
      for (const std::string& s : *t.strings) made->strings.back().push_back(s.c_str());
  }
  return made;
}

} // namespace

TensorView checked_view(const tbx_tensor& t, const char* name, std::vector<std::string>& strings) {
  if (t.rank < 0 || (t.rank > 0 && !t.dims)) refuse_input(name, "no dimensions");
  TensorView view{const_cast<void*>(t.data), t.type, {}};
  if (t.rank > 0) view.dims.assign(t.dims, t.dims + t.rank);
  const int64_t n = numel_of(t);
  if (n < 0) refuse_input(name, "odd dimensions");
  if (n > 0 && !t.data) refuse_input(name, "no data");
  if (t.type == TBX_STRING) {
    const auto* texts = static_cast<const char* const*>(t.data);
    for (int64_t k = 0; k < n; ++k) strings.emplace_back(texts[k] ? texts[k] : "");
    view.data = &strings;
  }
  return view;
}

tbx_session* session_or_error(const std::function<Result<Session>()>& make, tbx_error** error) {
  return caught(error, static_cast<tbx_session*>(nullptr), [&]() -> tbx_session* {
    Result<Session> made = make();
    return new tbx_session(std::move(made).value());
  });
}

std::vector<std::string> listed(const char* names) {
  std::vector<std::string> all;
  for (const char* at = names; at && *at;) {
    const char* end = std::strchr(at, ',');
    all.emplace_back(at, end ? static_cast<size_t>(end - at) : std::strlen(at));
    at = end ? end + 1 : nullptr;
  }
  return all;
}

std::function<void(const std::string&)> log_of(const tbx_options& options) {
  if (!options.log) return {};
  return [log = options.log, context = options.log_context](const std::string& message) {
    log(message.c_str(), context);
  };
}

} // namespace tbx::package

using namespace tbx::package;

tbx_session::tbx_session(tbx::Session made)
    : session(std::move(made)), input_dims(dims_of(session.inputs())),
      output_dims(dims_of(session.outputs())) {
  if (const std::optional<int64_t> version = session.metadata().version)
    model_version = std::to_string(*version);
}

tbx_error_code tbx_error_kind(const tbx_error* error) {
  return error ? static_cast<tbx_error_code>(error->failure.kind + 1) : TBX_INTERNAL_ERROR;
}
const char* tbx_error_text(const tbx_error* error) { return error ? error->failure.message.c_str() : ""; }
void tbx_error_free(tbx_error* error) { delete error; }

tbx_session* tbx_load(const char* package_file, const tbx_options* options, tbx_error** error) {
  return session_or_error(
      [&]() -> tbx::Result<tbx::Session> {
        if (!package_file) refuse("the name of the package is NULL");
        const tbx_options o = known_options(options);
        const std::pair<const char*, bool> of_compile[] = {{"state", o.state},
                                                           {"state_capacity", o.state_capacity != 0},
                                                           {"state_limit", o.state_limit != 0},
                                                           {"tiered", o.tiered != 0},
                                                           {"dims", o.dims},
                                                           {"precision", o.precision},
                                                           {"disabled_passes", o.disabled_passes},
                                                           {"untrusted", o.untrusted != 0},
                                                           {"limits", o.limits},
                                                           {"operator_libraries", o.operator_libraries},
                                                           {"cache_dir", o.cache_dir},
                                                           {"no_kept_plans", o.no_kept_plans != 0},
                                                           {"external_data_dir", o.external_data_dir}};
        for (const auto& [name, given] : of_compile)
          if (given)
            refuse(std::string("option ") + name + " is of tbx_compile: what a package holds is compiled");
        tbx::LoadOptions load;
        load.threads = o.threads;
        load.private_threads = o.private_threads != 0;
        load.evaluate = o.evaluate != 0;
        load.isa = o.isa ? o.isa : "";
        load.max_memory = o.max_memory;
        load.time_limit_ms = o.time_limit_ms;
        load.device = o.device ? o.device : "";
        if (o.seed) load.seed = *o.seed;
        load.log = log_of(o);
        return tbx::Session::load(package_file, load);
      },
      error);
}

int tbx_save(const tbx_session* session, const char* package_file, const char* isas, tbx_error** error) {
  tbx_save_options options{};
  options.size = sizeof options;
  options.isas = isas;
  return tbx_save_with(session, package_file, &options, error);
}

int tbx_save_with(const tbx_session* session, const char* package_file, const tbx_save_options* options,
                  tbx_error** error) {
  return caught(error, -1, [&] {
    if (!session || !package_file) refuse("the session or the name of the package is NULL");
    const tbx_save_options o = known_options(options);
    tbx::PackageOptions save;
    save.isas = listed(o.isas);
    save.architectures = listed(o.architectures);
    save.for_inputs_seen = o.for_inputs_seen != 0;
    session->session.save(package_file, save).value();
    return 0;
  });
}

void tbx_session_free(tbx_session* session) { delete session; }

size_t tbx_num_inputs(const tbx_session* session) { return session ? session->session.inputs().size() : 0; }
size_t tbx_num_outputs(const tbx_session* session) { return session ? session->session.outputs().size() : 0; }
tbx_info tbx_input(const tbx_session* session, size_t number) {
  return session ? info_of(session->session.inputs(), session->input_dims, number) : tbx_info{};
}
tbx_info tbx_output(const tbx_session* session, size_t number) {
  return session ? info_of(session->session.outputs(), session->output_dims, number) : tbx_info{};
}

tbx_outputs* tbx_run(const tbx_session* session, const tbx_tensor* inputs, size_t num_inputs,
                     tbx_error** error) {
  return caught(error, static_cast<tbx_outputs*>(nullptr), [&] {
    if (!session) refuse("the session is NULL");
    std::vector<std::vector<std::string>> kept;
    return outputs_of(session->session.run(views(inputs, num_inputs, kept)).value()).release();
  });
}

tbx_outputs* tbx_run_with(const tbx_session* session, const tbx_tensor* inputs, size_t num_inputs,
                          const tbx_run_options* options, tbx_error** error) {
  return caught(error, static_cast<tbx_outputs*>(nullptr), [&] {
    if (!session) refuse("the session is NULL");
    const tbx_run_options o = known_options(options);
    if (o.async && !o.on_stream) refuse("an asynchronous run needs a stream: set on_stream");
    std::vector<std::vector<std::string>> kept;
    const tbx::Session& run = session->session;
    const tbx::Session::Inputs given = views(inputs, num_inputs, kept, o.input_devices);
    const std::vector<tbx::TensorView> into = output_views(o, run);
    std::optional<tbx::CancelScope> scope;
    if (o.cancellation) scope.emplace(o.cancellation->cancelled);
    auto made = o.async       ? run.run_async(o.stream, given, into)
                : o.on_stream ? run.run_on(o.stream, given, into)
                              : run.run(given, into);
    return outputs_of(std::move(made).value()).release();
  });
}

tbx_cancellation* tbx_cancellation_new(void) { return new (std::nothrow) tbx_cancellation; }
void tbx_cancel(tbx_cancellation* cancellation) {
  if (cancellation) cancellation->cancelled = true;
}
void tbx_cancellation_free(tbx_cancellation* cancellation) { delete cancellation; }

int64_t tbx_state_length(const tbx_session* session) { return session ? session->session.state_length() : 0; }

int tbx_set_state(const tbx_session* session, const tbx_tensor* state, size_t count, tbx_error** error) {
  return caught(error, -1, [&] {
    if (!session) refuse("the session is NULL");
    std::vector<std::vector<std::string>> kept;
    if (const auto failed = session->session.set_state(views(state, count, kept)))
      throw tbx::Exception(*failed);
    return 0;
  });
}

int32_t tbx_device(const tbx_session* session) { return session ? session->session.device() : -1; }

int tbx_synchronize(const tbx_session* session, tbx_error** error) {
  return caught(error, -1, [&] {
    if (!session) refuse("the session is NULL");
    if (const auto failed = session->session.synchronize()) throw tbx::Exception(*failed);
    return 0;
  });
}

int32_t tbx_outputs_device(const tbx_outputs* outputs, size_t number) {
  return outputs && number < outputs->tensors.size() ? outputs->tensors[number].device : -1;
}

size_t tbx_outputs_count(const tbx_outputs* outputs) { return outputs ? outputs->tensors.size() : 0; }

tbx_tensor tbx_outputs_at(const tbx_outputs* outputs, size_t number) {
  if (!outputs || number >= outputs->tensors.size()) return {};
  const tbx::OutputTensor& t = outputs->tensors[number];
  const void* data = t.strings ? static_cast<const void*>(outputs->strings[number].data()) : t.data;
  return {t.name.c_str(), t.type, static_cast<int32_t>(t.dims.size()), t.dims.data(), data};
}

void tbx_outputs_free(tbx_outputs* outputs) { delete outputs; }

const char* tbx_version(void) { return TBX_VERSION; }
