// tensorbox: compile an ONNX model once, run it many times, from any thread.
//
//   auto session = tbx::Session::compile("model.onnx").value();
//   std::vector<float> pixels(3 * 224 * 224);
//   auto outputs = session.run({{"input", tbx::TensorView::of(pixels, {1, 3, 224, 224})}}).value();
//   std::span<const float> scores = outputs[0].values<float>();
//
// Memory: inputs are views of the caller's memory, used during `run` only. Outputs own theirs, or are written
// into views the caller gives. Errors: every call returns Result<T>; `.value()` throws tbx::Exception,
// `.error()` does not.
#pragma once

#if __cplusplus <= 201703L
#error "tensorbox/tensorbox.h is C++20 (-std=c++20); C, and C++ before 20, include tensorbox/c.h"
#endif

#include <atomic>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#if defined(_WIN32)
#define TBX_API
#else
#define TBX_API __attribute__((visibility("default")))
#endif

namespace tbx {

/// Element type of a C++ type: float -> float32, bool -> bool, int64_t -> int64, ...
template <class T> constexpr int32_t onnx_type_of();

/// Why a call gave no result.
struct TBX_API Failure {
  enum Kind { model_error, unsupported_error, backend_error, internal_error } kind = internal_error;
  std::string message; ///< names node, operator, cause and way out
};

/// A Failure, thrown by what has no other way to say it.
class TBX_API Exception : public std::runtime_error {
public:
  explicit Exception(Failure f) : std::runtime_error(f.message), failure(std::move(f)) {}
  Failure failure;
};

/// A value or a Failure.
template <class T> class [[nodiscard]] Result {
public:
  Result(T value) : data_(std::move(value)) {}           // NOLINT: returns read naturally
  Result(Failure failure) : data_(std::move(failure)) {} // NOLINT
  bool ok() const { return std::holds_alternative<T>(data_); }
  explicit operator bool() const { return ok(); }
  /// Throws Exception when this holds a failure.
  T& value() & {
    check();
    return std::get<T>(data_);
  }
  const T& value() const& {
    check();
    return std::get<T>(data_);
  }
  T value() && {
    check();
    return std::get<T>(std::move(data_));
  }
  /// Of what is not ok(): else std::bad_variant_access.
  const Failure& error() const { return std::get<Failure>(data_); }

private:
  void check() const {
    if (!ok()) throw Exception(std::get<Failure>(data_));
  }
  std::variant<T, Failure> data_;
};

namespace detail {
/// Number of elements. Throws Exception where there are fewer than the dims need; `have` is their number.
TBX_API size_t numel_within(const std::vector<int64_t>& dims, size_t have);
[[noreturn]] TBX_API void throw_on_device(int32_t device);
/// Number of elements of a tensor of this type, read as T. Throws Exception where T is another type.
template <class T> size_t numel_as(int32_t type, const std::vector<int64_t>& dims);
} // namespace detail

/// The device of memory that is no GPU's.
inline constexpr int32_t kHost = -1;

/// A dense row-major tensor in the caller's memory.
struct TBX_API TensorView {
  void* data = nullptr;
  int32_t type = 0; ///< onnx.TensorProto.DataType
  std::vector<int64_t> dims;
  int32_t device = kHost; ///< number of the GPU whose memory `data` is: that of the session (docs/gpu.md)

  /// A view of the memory of a vector, array or span, which is read only, and written only as an output.
  /// Throws Exception when it has fewer elements than the dims.
  template <class Container> static TensorView of(Container& values, std::vector<int64_t> dims) {
    using T = std::remove_cvref_t<decltype(*std::data(values))>;
    detail::numel_within(dims, std::size(values));
    return {const_cast<T*>(std::data(values)), onnx_type_of<T>(), std::move(dims), kHost};
  }
};

/// An output: owns its memory.
struct TBX_API OutputTensor {
  std::string name;
  int32_t type = 0;
  std::vector<int64_t> dims;
  void* data = nullptr;
  std::shared_ptr<void> owner;
  std::shared_ptr<std::vector<std::string>> strings; ///< string tensors only
  /// Number of the GPU whose memory `data` is; to_host (tensorbox/device.h) copies it.
  int32_t device = kHost;

  /// The elements, row-major, valid while `owner` lives. Types that C++ lacks are read as their bits: float16
  /// and bfloat16 as uint16_t, narrower ones as uint8_t or int8_t. Throws Exception when T is another type,
  /// or the tensor is in memory of a GPU.
  template <class T> std::span<const T> values() const {
    if (device != kHost) detail::throw_on_device(device);
    return {static_cast<const T*>(data), detail::numel_as<T>(type, dims)};
  }
};

/// What the elements of an integer input may be as far as the graph tells, for inputs that are made up: token
/// ids are below the length of the table they are looked up in, an axis is below a rank, a mask that is
/// summed is 1.
struct TBX_API IntegerRange {
  int64_t least = 0;
  std::vector<std::string> below; ///< numbers and names of dimensions, each a bound; none: nothing is known
  bool distinct = false;          ///< no two elements are equal
};

/// One input or output of the model: dims are numbers or symbol names ("batch"), none where `any_rank`.
struct TBX_API TensorInfo {
  std::string name;
  int32_t type = 0; ///< onnx.TensorProto.DataType; 0: no tensor, but a value of the type `type_name`
  /// "float32", "sequence(tensor(int64))", "optional(tensor(float32))", "map(string, ...)".
  std::string type_name;
  std::vector<std::string> dims;
  std::string node;         ///< outputs: "name (OpType)" of the ONNX node that computes it, where one does
  IntegerRange range;       ///< inputs of integers
  bool any_rank = false;    ///< a tensor whose number of dims the model leaves open
  bool has_default = false; ///< inputs: may be left out of a run, for the model's initializer
};

/// A value of any ONNX type. An optional is either its element or `none`.
struct TBX_API OnnxValue {
  enum Kind { none, tensor, sequence, map };
  Kind kind = none;
  int32_t type = 0; ///< tensor: onnx.TensorProto.DataType
  std::vector<int64_t> dims;
  void* data = nullptr;                              ///< dense, row-major; unused for strings
  std::shared_ptr<void> owner;                       ///< empty: `data` is the caller's
  std::shared_ptr<std::vector<std::string>> strings; ///< string tensors: the elements, row-major
  std::vector<OnnxValue> elements; ///< sequence; map: its keys and its values, two 1-D tensors

  /// A view of the container's memory.
  template <class Container> static OnnxValue of(Container& values, std::vector<int64_t> dims) {
    TensorView view = TensorView::of(values, std::move(dims));
    return {tensor, view.type, std::move(view.dims), view.data, nullptr, nullptr, {}};
  }
  static OnnxValue of_strings(std::vector<std::string> values, std::vector<int64_t> dims) {
    auto strings = std::make_shared<std::vector<std::string>>(std::move(values));
    return {tensor, 8, std::move(dims), nullptr, nullptr, std::move(strings), {}};
  }
  static OnnxValue of_sequence(std::vector<OnnxValue> elements) {
    return {sequence, 0, {}, nullptr, nullptr, nullptr, std::move(elements)};
  }

  /// The elements, row-major, valid while `owner` lives. Types that C++ lacks are read as their bits: float16
  /// and bfloat16 as uint16_t, narrower ones as uint8_t or int8_t. Throws Exception when T is another type.
  template <class T> std::span<const T> values() const {
    return {static_cast<const T*>(data), detail::numel_as<T>(type, dims)};
  }
};

/// Options of a session. Values that cannot be are a model_error of `compile`.
struct TBX_API CompileOptions {
  int threads = 0;     ///< 0: least of CPU quota, affinity mask, OMP_NUM_THREADS; to 4096
  bool compile = true; ///< false: the evaluator runs everything, no compiler is used
  /// First runs by the evaluator at once, while the C++ compiler builds what the cache of kernels lacks
  /// behind them, at a lower priority; runs after that by the compiled kernels. Where that fails, a note in
  /// the log says so once, and the evaluator goes on. Not with a device.
  bool tiered = false;
  bool reference = false; ///< plain loops that add in double compute everything: no compiler, library, tuned
                          ///< kernel or fusion. Slow; what results are compared with
  /// Empty or "cpu": the CPU. "cuda" or "cuda:1": an NVIDIA GPU does all that it has kernels for
  /// (docs/gpu.md), and a library that is missing is a backend_error. $TBX_FAKE_CUDA=1 makes it a device that
  /// runs on the CPU.
  std::string device;
  std::string isa;       ///< "avx512", "avx2", "sse"; empty: the CPU's best, or $TBX_ISA
  std::string cache_dir; ///< of kernels; empty: $TBX_CACHE_DIR or ~/.cache/tensorbox/kernels. Limit of its
                         ///< size: $TBX_CACHE_LIMIT ("512mb"; 0: none) or 1 GiB
  /// What is compiled is kept beside the kernels, and the next session of the same model, options and machine
  /// starts with it (docs/kernels.md). $TBX_CACHE_PLANS=0 is the same as false.
  bool keep_plans = true;
  /// Of random operators without a seed of their own: with equal seeds the n-th run of a session gives what
  /// the n-th of another gives. None: that of set_seed, else one from the operating system.
  std::optional<int64_t> seed;
  bool fuse = true;                         ///< generated kernels of several operators
  bool fuse_extern = true;                  ///< post-operations inside library kernels
  std::vector<std::string> disabled_passes; ///< unknown names are errors
  /// Shared libraries with operators of the user's own (tensorbox/custom_op.h). Their code runs in this
  /// process.
  std::vector<std::string> operator_libraries;
  /// Of a model given as bytes: the folder that its external data lies in or below. A model from a file has
  /// its own folder.
  std::string external_data_dir;
  std::map<std::string, int64_t> dims; ///< fixes dimension symbols ("batch" -> 1); unknown ones are errors
  /// Initializers that the model declares as inputs, too, and that are to be inputs, with the initializer as
  /// default. All others are constants, which is faster. Other names are errors.
  std::vector<std::string> overridable;
  /// Of float32 models: "strict" as they are; "tf32" (device "cuda"): operands of products are rounded to it;
  /// "bf16" or "f16": memory holds and products multiply that type, where the CPU is faster with it (else
  /// only weights of single rows are narrow, and a note in the log says so), sums and sensitive operators are
  /// float32; "any": bf16 where that is faster (docs/precision.md).
  std::string precision = "strict";
  /// Inputs that are what an output of the run before was, as the caches of a decoder: input -> output
  /// ("past_key_values.0.key" -> "present.0.key"; a "*" on both sides stands for the same text). The session
  /// keeps them, in memory with room for `state_capacity` along the dimension that grows: a run writes behind
  /// what is there, nothing is copied, and callers see neither (docs/decoding.md). With `state_limit` the
  /// room grows as runs need it, up to that, and without either as far as memory and `max_memory` go.
  std::map<std::string, std::string> state;
  int64_t state_capacity = 0;
  int64_t state_limit = 0;
  bool all_dims_dynamic = false; ///< forgets static input dimensions (testing)
  bool every_value = false;      ///< what nodes compute for each other is an output too, in order
  /// The model comes from a stranger: every limit below holds, with the second of the two values that
  /// docs/security.md has for it; no operator_libraries, no links to external data.
  bool untrusted = false;
  // Limits. 0: the value of docs/security.md, which for time and memory is none unless `untrusted`. An error
  // names the one to raise.
  int64_t max_memory = 0;    ///< bytes that a run may take for its results
  int64_t time_limit_ms = 0; ///< a longer run ends with an error
  int64_t load_memory = 0;   ///< bytes of what loading makes of a model; 0: max_memory, where that is given
  int64_t load_time_limit_ms = 0;    ///< without the C++ compiler; 0: time_limit_ms, where that is given
  int64_t max_model_bytes = 0;       ///< of the file, or of the bytes given, without external data
  int64_t max_nodes = 0;             ///< with bodies, and functions inlined
  int64_t max_nesting = 0;           ///< bodies, types and calls of functions inside each other
  int64_t max_tensors = 0;           ///< initializers, constants and tensors of attributes
  int64_t max_tensor_bytes = 0;      ///< of one tensor in the model
  int64_t max_dense_bytes = 0;       ///< of all sparse tensors together, made dense
  int64_t compile_time_limit_ms = 0; ///< of the C++ compiler for all kernels of a model
  int64_t compile_memory = 0;        ///< bytes of address space of the C++ compiler
  bool strict_links = false;         ///< external data must not be a symbolic or hard link
  bool private_threads = false;      ///< own thread arena instead of the process-wide one
  std::function<void(const std::string& stage, int done, int total)> progress;
  std::function<void(const std::string& message)> log; ///< fallbacks and warnings; default: none
  /// Asked some twenty times a second while the C++ compiler works, in the calling thread, which with
  /// `tiered` does not wait for it; true: it is stopped, and the call ends with an error.
  std::function<bool()> interrupted;
};

/// One step of a session, as `tbx explain` and the profile of a run show it.
struct TBX_API KernelReport {
  std::string name, kind;             ///< kind: "generated", "extern", "evaluated", "copy"
  std::string device;                 ///< where it runs: "cpu", "cuda"
  std::vector<std::string> nodes;     ///< ONNX nodes computed here
  std::vector<std::string> decisions; ///< why fused or not, which library kernel, refusals
  int64_t bytes = 0;                  ///< moved at the size hints (or of the profiled run)
  double flops = 0;
  int64_t time_ns = 0; ///< profiled runs only
  int64_t start_ns = 0;
  int threads = 1;
  std::vector<int>
      reads_from; ///< kernels of the same list that computed what it reads, by their places there
};

/// What compiling a session made, and how long each stage took.
struct TBX_API CompileStats {
  int nodes = 0, generated_kernels = 0, extern_kernels = 0, compiled_units = 0, cached_units = 0;
  int evaluated_kernels = 0;        ///< of the generated ones, those that the evaluator runs
  int device_steps = 0, copies = 0; ///< kernels on the device; copies between it and the host
  double import_ms = 0, optimize_ms = 0, lower_ms = 0, schedule_ms = 0, build_ms = 0, total_ms = 0;
  std::vector<std::pair<std::string, double>> passes_ms; ///< graph passes, steps of the schedule
  /// The session started with a kept plan: nothing was imported, lowered or scheduled, build_ms is the time
  /// that its kernels and constants took, total_ms that with finding and reading it.
  bool kept_plan = false;
  std::string not_kept; ///< why the next session finds no plan of this model; empty: it does
  /// Why kernels run in the evaluator that were to be native, which is slower: no C++ compiler works, or a
  /// package has none for this CPU. Empty: none does for such a reason.
  std::string not_compiled;
};

/// What the model file says of itself; empty where it says nothing.
struct TBX_API ModelMetadata {
  std::string producer_name, producer_version, graph_name, domain, description, graph_description;
  std::optional<int64_t> version;            ///< model_version
  std::map<std::string, std::string> custom; ///< metadata_props
};

/// What a package (docs/packages.md) holds. It has all kernels in a form for the evaluator, too, for CPUs
/// that run none of the native ones.
struct TBX_API PackageOptions {
  /// Native kernels for CPUs of these instruction sets: "avx512", "avx2", "sse". Empty: for the session's
  /// own.
  std::vector<std::string> isas;
  /// Of a session on a GPU: machine code for these architectures ("sm_90"). Empty: for the session's own. Its
  /// text is there, too, from which NVRTC makes that of others when the package is loaded there.
  std::vector<std::string> architectures;
  /// Where code depends on values or shapes that only a run brings, there is code for the inputs of the runs
  /// so far alone, as Session::made_for says. Without it, a package that would lack code for inputs that the
  /// model takes is an unsupported error of `save`.
  bool for_inputs_seen = false;
};

/// What was written.
struct TBX_API PackageReport {
  int64_t bytes = 0;                            ///< of the file
  int64_t constant_bytes = 0, kernel_bytes = 0; ///< of its constants and native kernels
  int programs = 0;                       ///< parts of the model, and variants of them for kinds of inputs
  std::vector<std::string> isas;          ///< with native kernels
  std::vector<std::string> architectures; ///< of GPUs, with machine code
};

/// Options of a session of a package. Values that cannot be are a model_error of `load`.
struct TBX_API LoadOptions {
  int threads = 0;              ///< as CompileOptions::threads
  bool private_threads = false; ///< as CompileOptions::private_threads
  std::string device;           ///< "cuda", "cuda:1": where a package for GPUs runs; empty or "cpu": the CPU
  std::string isa;       ///< the native kernels to use; empty: the best that the package has for this CPU
  bool evaluate = false; ///< run all kernels in the evaluator
  std::optional<int64_t> seed; ///< as CompileOptions::seed
  int64_t max_memory = 0;      ///< bytes that a run may take for its results; 0: no limit
  int64_t time_limit_ms = 0;   ///< a longer run ends with an error; 0: no limit
  std::function<void(const std::string& message)> log; ///< fallbacks and warnings; default: none
};

/// Runs that this thread begins until the end of the scope end with a model_error when `cancel` has become
/// true, as soon as they would at a limit of time (docs/security.md). Another thread sets it. Or when `asked`
/// gives true, which is called between steps, and by any thread: it has to be fast, and does not throw.
class TBX_API CancelScope {
public:
  explicit CancelScope(const std::atomic<bool>& cancel);
  explicit CancelScope(bool (*asked)());
  ~CancelScope();
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

private:
  const std::atomic<bool>* outer_;
  bool (*outer_asked_)();
};

/// Runs of a session with the same memory for all inputs and outputs: Session::bind looks at them once, and a
/// run does nothing but run. The memory lives as long as this, whose end waits for runs of run_async. One run
/// at a time; calls from other threads wait.
class TBX_API BoundRun {
public:
  /// As those of the session: elements of inputs are those at the time of the run. None: done.
  std::optional<Failure> run() const;
  std::optional<Failure> run_on(void* stream) const;
  std::optional<Failure> run_async(void* stream) const;

  struct Impl;
  explicit BoundRun(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

private:
  std::shared_ptr<Impl> impl_;
};

/// A compiled model.
class TBX_API Session {
public:
  using Inputs = std::vector<std::pair<std::string, TensorView>>;

  /// A package from `save` is loaded; options that would change what was compiled are errors then.
  static Result<Session> compile(const std::string& onnx_file, const CompileOptions& options = {});
  static Result<Session> compile(std::span<const std::byte> onnx_bytes, const CompileOptions& options = {});

  /// A package from `save` or `tbx compile`. It is native code: load none from a stranger. The file is mapped
  /// and must not be changed while the session lives; one of the same name may take its place.
  static Result<Session> load(const std::string& package_file, const LoadOptions& options = {});

  /// What a run takes and gives, in the model's order.
  const std::vector<TensorInfo>& inputs() const;
  const std::vector<TensorInfo>& outputs() const;
  /// Initializers that the model declares as inputs, too; see CompileOptions::overridable. Empty before IR
  /// version 4, where all initializers had to be declared so.
  const std::vector<TensorInfo>& overridable_initializers() const;
  const ModelMetadata& metadata() const;
  /// Of a package that was saved with for_inputs_seen and needed it: the inputs that its parts are made for,
  /// a line each. Empty: it serves all inputs that the model takes.
  std::vector<std::string> made_for() const;
  CompileStats stats() const; ///< of the latest compilation
  int threads() const;
  /// Number of the GPU that runs the model; kHost: none does.
  int32_t device() const;

  /// Every input without a default by name; outputs in model order. Thread-safe. For models whose inputs and
  /// outputs are tensors; the data of a string tensor is a std::vector<std::string>.
  Result<std::vector<OutputTensor>> run(const Inputs& inputs) const;
  /// Writes into the caller's memory: one view per output, or an empty data pointer to let the session
  /// allocate, in memory of the view's `device`. Inputs and outputs on the GPU must be ready. A view may lie
  /// where an input does, which is copied first; two views with memory in common are a model_error.
  Result<std::vector<OutputTensor>> run(const Inputs& inputs, const std::vector<TensorView>& outputs) const;
  /// run() as work of a stream of CUDA (a cudaStream_t or CUstream; nullptr: the default stream), behind what
  /// it was asked for, and waits for it.
  Result<std::vector<OutputTensor>> run_on(void* stream, const Inputs& inputs,
                                           const std::vector<TensorView>& outputs = {}) const;
  /// run_on() without waiting: outputs are on the GPU, and there when the stream is. No views: the session
  /// allocates all. Inputs on the host are read before this returns, others must live until the stream is
  /// there. unsupported_error where the host has work in every run. An index outside of its axis is an error
  /// of a later run, or of synchronize.
  Result<std::vector<OutputTensor>> run_async(void* stream, const Inputs& inputs,
                                              const std::vector<TensorView>& outputs = {}) const;
  /// Runs that read their inputs and write their outputs in the same memory every time, which costs the least
  /// time of the host: on a GPU, where all of it lies there, one start of a graph. One view with memory per
  /// output. Names, types and shapes are checked here where they do not depend on the data or the model's
  /// code on them, else by each run: model_error where it finds another shape than that of the memory.
  Result<BoundRun> bind(const Inputs& inputs, const std::vector<TensorView>& outputs) const;
  /// Waits for all runs of run_async; the error of one that failed.
  std::optional<Failure> synchronize() const;
  using Values = std::vector<std::pair<std::string, OnnxValue>>;
  /// run() for values of any type: strings, sequences, optionals, maps. An optional input may be left out.
  Result<Values> run_values(const Values& inputs) const;
  /// With CompileOptions::state: how long what the session keeps is along the dimension that grows. 0 before
  /// the first run. Runs of one session happen one after another then.
  int64_t state_length() const;
  /// Another state: all of its inputs, dense, on the host or on the GPU, of equal length. None: an empty one.
  std::optional<Failure> set_state(const Inputs& state) const;
  /// Runs once and reports every kernel with its time; `outputs` receives what the run gave, which are
  /// tensors then. Without it they may be values of any type.
  Result<std::vector<KernelReport>> profile(const Inputs& inputs,
                                            std::vector<OutputTensor>* outputs = nullptr) const;
  /// What was compiled and why, without running.
  std::vector<KernelReport> explain() const;
  /// Text of a stage: "import", "simplify", "lower", "schedule", "source", "cuda", "plan".
  Result<std::string> dump(const std::string& stage) const;

  /// Writes a package of the model as it is compiled here. Where the code depends on values or shapes of
  /// inputs, the package holds what was compiled for the runs so far. unsupported_error for what no package
  /// can hold. `file` appears whole or not at all.
  Result<PackageReport> save(const std::string& file, const PackageOptions& options = {}) const;

  /// Called after every step of a run with the ONNX value name it computed, where it has one.
  using Observer = std::function<void(const std::string& value, const TensorView&)>;
  Result<std::vector<OutputTensor>> run_observed(const Inputs& inputs, const Observer& observer) const;

  struct Impl;
  explicit Session(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

private:
  std::shared_ptr<Impl> impl_;
};

/// How `optimize` simplifies a model.
struct TBX_API OptimizeOptions {
  std::map<std::string, int64_t> dims; ///< fixes dimension symbols ("batch" -> 1); unknown ones are errors
  int opset = 0;                       ///< the ai.onnx version to convert to first; 0: the model's own
  std::vector<std::string> disabled_passes; ///< unknown names are errors
  /// Of which `untrusted`, `strict_links` and the limits of loading hold here, too; nothing else is looked
  /// at.
  CompileOptions limits;
};

/// What optimize() did.
struct TBX_API OptimizeReport {
  int opset = 0; ///< of ai.onnx
  int nodes_before = 0, nodes_after = 0;
  std::map<std::string, int> operators_before, operators_after; ///< nodes by operator, of the outermost graph
  std::vector<std::pair<std::string, int>> rewrites;            ///< by pass, in order
  std::vector<std::string> left_out; ///< passes that would make operators which the model's opset has not
};

/// Writes the model, simplified by the graph passes, as an ONNX file that other runtimes read too: same
/// inputs and outputs, standard operators of one operator set, functions of the model as their nodes. Large
/// constants go into <to>.data. `to` appears whole or not at all, and may be `onnx_file`.
TBX_API Result<OptimizeReport> optimize(const std::string& onnx_file, const std::string& to,
                                        const OptimizeOptions& options = {});

/// True for a file that begins like a package.
TBX_API bool is_package(const std::string& file);

/// "0.1.0"
TBX_API std::string version();
/// The seed of all sessions compiled from now on whose options have none.
TBX_API void set_seed(int64_t seed);
/// Empty when sessions can run on this device ("cuda", "cuda:1"), else why not and the way out.
TBX_API std::string device_problem(const std::string& device);
/// Names of all graph passes, and of the steps of the schedule that can be left out, in order.
TBX_API std::vector<std::string> pass_names();
/// An operator that is supported, in these versions: `how` is "compiled" (into kernels), "values" (on the
/// host, between kernels: strings, sequences, control flow) or "body" (through the function body that ONNX
/// defines).
struct TBX_API OperatorInfo {
  std::string domain, name;
  std::vector<int> since;
  std::string how;
};
TBX_API std::vector<OperatorInfo> operators();

template <class T> constexpr int32_t onnx_type_of() {
  if constexpr (std::is_same_v<T, float>)
    return 1;
  else if constexpr (std::is_same_v<T, uint8_t>)
    return 2;
  else if constexpr (std::is_same_v<T, int8_t>)
    return 3;
  else if constexpr (std::is_same_v<T, uint16_t>)
    return 4;
  else if constexpr (std::is_same_v<T, int16_t>)
    return 5;
  else if constexpr (std::is_same_v<T, int32_t>)
    return 6;
  else if constexpr (std::is_same_v<T, int64_t>)
    return 7;
  else if constexpr (std::is_same_v<T, bool>)
    return 9;
  else if constexpr (std::is_same_v<T, double>)
    return 11;
  else if constexpr (std::is_same_v<T, uint32_t>)
    return 12;
  else if constexpr (std::is_same_v<T, uint64_t>)
    return 13;
  else if constexpr (std::is_same_v<T, std::complex<float>>)
    return 14;
  else if constexpr (std::is_same_v<T, std::complex<double>>)
    return 15;
  else
    static_assert(sizeof(T) == 0, "no ONNX element type for this C++ type");
}

namespace detail {
/// Throws Exception: a tensor of `type` read as one of `as`.
[[noreturn]] TBX_API void throw_other_type(int32_t type, int32_t as);

/// The number of elements of a tensor of `type` that is read as T; Exception where it cannot be.
template <class T> size_t numel_as(int32_t type, const std::vector<int64_t>& dims) {
  constexpr int32_t as = onnx_type_of<T>();
  const bool half = type == 10 || type == 16, narrow = type == 9 || type > 16;
  const bool bits = (half && as == 4) || (narrow && (as == 2 || as == 3));
  if (type != as && !bits) throw_other_type(type, as);
  return numel_within(dims, SIZE_MAX);
}
} // namespace detail

} // namespace tbx
