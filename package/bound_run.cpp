// Session::bind: runs whose inputs and outputs are the same memory each time.
#include <mutex>

#include "base/error.h"
#include "package/device_tensors.h"
#include "package/guarded.h"
#include "package/session_impl.h"

namespace tbx {

struct BoundRun::Impl {
  std::shared_ptr<Session::Impl> session;
  Session::Inputs given;
  std::vector<TensorView> into;
  /// The same as the runtime takes them; none for models with values of any kind.
  std::vector<runtime::RunTensor> in, out;
  runtime::SameRuns same;
  std::mutex mutex; ///< one run at a time: the memory is the same

  ~Impl() {
    for (const auto& end : same.ends) try {
        session->device->wait(*end);
      } catch (const std::exception&) { // who waits for the work is told
      }
  }
  void run(runtime::RunOptions options) {
    std::lock_guard alone(mutex);
    session->run_bound(*this, std::move(options));
  }
};

void Session::Impl::make_bound(BoundRun::Impl& bound) const {
  const std::vector<TensorView>& into = bound.into;
  TBX_MODEL(into.size() == outputs.size(), "{} output views given, the model has {} outputs", into.size(),
            outputs.size());
  for (size_t i = 0; i < into.size(); ++i) {
    check_device("output", outputs[i].name, into[i].device);
    size_t numel = 1;
    for (int64_t d : into[i].dims) numel *= static_cast<size_t>(d);
    TBX_MODEL(into[i].data || (numel == 0 && into[i].type != 0),
              "output '{}' has no memory: a bound run needs that of all outputs", outputs[i].name);
  }
  std::unique_lock<std::mutex> alone;
  if (state) alone = std::unique_lock(state->mutex());
  bound.in = bind(bound.given, {});
  if (value_session) return bound.in.clear();
  bound.out.resize(into.size());
  place_outputs(into, bound.out);
  const std::shared_ptr<const package::Program> program = plain_program();
  if (!program || (device && !program->bound->on_device)) return;
  try {
    if (state) state->expect(*program->bound->executable, bound.in);
    program->session->check(bound.in, bound.out);
  } catch (const runtime::AssumptionError&) { // another program takes these
  }
}

void Session::Impl::run_bound(BoundRun::Impl& bound, runtime::RunOptions run_options) const {
  if (value_session) {
    run_through_host(bound.given, bound.into, run_options);
    return;
  }
  run_options.same = &bound.same;
  std::unique_lock<std::mutex> alone;
  if (state) alone = std::unique_lock(state->mutex());
  for (runtime::RunTensor& t : bound.in)
    if (t.host_copy) t.host_copy->renew(run_options.stream.value_or(nullptr));
  with_program(bound.in, [&](const package::Program& program) {
    const size_t made = program.bound->executable->outputs.size();
    TBX_MODEL(made == bound.out.size(), "{} outputs are bound, the run has {}", bound.out.size(), made);
    prepare_state(program, bound.in, bound.out);
    run_program(program, bound.in, bound.out, run_options);
  });
  if (state) state->grow();
}

Result<BoundRun> Session::bind(const Inputs& inputs, const std::vector<TensorView>& outputs) const {
  return package::guarded([&] {
    auto bound = std::make_shared<BoundRun::Impl>();
    bound->session = impl_;
    bound->given = inputs;
    bound->into = outputs;
    impl_->make_bound(*bound);
    return BoundRun(std::move(bound));
  });
}

std::optional<Failure> BoundRun::run() const {
  return package::failure([&] { impl_->run({}); });
}

std::optional<Failure> BoundRun::run_on(void* stream) const {
  return package::failure([&] {
    runtime::RunOptions options;
    package::set_stream(options, impl_->session->device.get(), stream, false);
    impl_->run(std::move(options));
  });
}

std::optional<Failure> BoundRun::run_async(void* stream) const {
  return package::failure([&] {
    runtime::RunOptions options;
    package::set_stream(options, impl_->session->device.get(), stream, true);
    impl_->run(std::move(options));
  });
}

} // namespace tbx
