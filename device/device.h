// Device: memory, streams, events, modules and graphs of one accelerator, behind one small interface.
//
// Two implementations: NVIDIA GPUs through the driver (device/cuda), and a fake one for tests (device/fake),
// whose memory is guarded memory of the host and whose kernels run on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tbx::device {

/// What kernels are chosen and compiled by.
struct Properties {
  std::string name;               ///< "NVIDIA H200"
  std::string architecture;       ///< "sm_90"
  int multiprocessors = 0;        ///< blocks run on these side by side
  int64_t memory_bytes = 0;       ///< of the whole device
  int64_t l2_bytes = 0;           ///< cache shared by all multiprocessors
  int64_t shared_bytes_block = 0; ///< largest shared memory that a block may ask for
  int number = 0;                 ///< of "cuda:<number>"
  bool starts_early = false;      ///< can start a kernel before the one before it ends
};

/// A block of device memory, given back with the object. Its address is a multiple of 256. Host code must not
/// touch it.
class Memory {
public:
  virtual ~Memory() = default;
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

protected:
  Memory(void* data, size_t bytes) : data_(data), bytes_(bytes) {}
  void* data_;
  size_t bytes_;
};

/// A kernel of a loaded module. Valid as long as the module.
struct Kernel {
  void* handle = nullptr;
};

/// Loaded machine code.
class Module {
public:
  virtual ~Module() = default;
  /// Throws BackendError when there is none of this name.
  virtual Kernel kernel(const std::string& name) const = 0;
};

/// A kernel of more blocks gains nothing from a start before its predecessor ends: norms between products of
/// few rows have fewer.
inline constexpr int64_t kMostEarlyBlocks = 256;

/// Threads of a launch: `blocks` blocks of `threads` threads, all in one dimension.
struct LaunchShape {
  uint32_t blocks = 1, threads = 1;
  uint32_t shared_bytes = 0; ///< dynamic shared memory of a block
  bool overlap = false; ///< may start before its predecessor ends: the kernel itself waits for its results
  /// Blocks that follow each other and read each other's shared memory, where the kernel's text does not say
  /// so.
  uint32_t cluster = 1;
};

/// A point in a stream's work.
class Event {
public:
  virtual ~Event() = default;
};

/// Recorded work that is started as a whole.
class Graph {
public:
  virtual ~Graph() = default;
  virtual size_t nodes() const = 0;  ///< kernels, copies and fills
  virtual size_t copies() const = 0; ///< those of Stream::copy among them, of more than 0 bytes
  /// Other addresses for copy number `copy`, in the order they were recorded, and another length, which is
  /// not 0, for starts from now on.
  virtual void move_copy(size_t copy, void* to, const void* from, size_t bytes) = 0;
  /// Other memory of the host for upload number `upload`, counted in the same way.
  virtual void move_upload(size_t upload, const void* from_host) = 0;
};

/// What became of a graph whose starts of kernels were to be changed.
struct GraphUpdate {
  size_t given = 0;    ///< starts that have other threads and arguments now
  std::string refused; ///< why it has to be recorded again; empty: it has not
};

/// Work in order. All calls return at once; host memory that a copy uses must live until the stream is there.
/// Errors of the device are thrown as BackendError, by the call that meets them or by synchronize().
class Stream {
public:
  virtual ~Stream() = default;
  virtual void upload(void* to, const void* from_host, size_t bytes) = 0;
  virtual void download(void* to_host, const void* from, size_t bytes) = 0;
  virtual void copy(void* to, const void* from, size_t bytes) = 0;
  virtual void fill(void* to, uint8_t value, size_t bytes) = 0;
  /// `arguments` point at the kernel's parameters, which are copied.
  virtual void launch(Kernel kernel, const LaunchShape& shape, std::span<void* const> arguments) = 0;
  virtual void record(Event& event) = 0;
  virtual void wait(const Event& event) = 0;
  virtual void synchronize() = 0;
  /// From here on work is recorded instead of run. One stream of a device at a time.
  virtual void begin_capture() = 0;
  virtual std::unique_ptr<Graph> end_capture() = 0;
  /// What is recorded from here on is the next piece, numbered from 0. It waits for the pieces `after` and
  /// what was recorded before the first piece, and runs beside all others.
  virtual void begin_piece(std::span<const size_t> after) = 0;
  /// What is recorded from here on waits for all pieces.
  virtual void join_pieces() = 0;
  /// Kernels started since begin_capture(), but for those of libraries.
  virtual size_t recorded_launches() const = 0;
  /// From here on a start of a kernel gives the next one that is recorded in `graph`, from number `first` of
  /// recorded_launches() on, other threads and other arguments, for starts of the graph from now on.
  virtual void begin_update(Graph& graph, size_t first) = 0;
  virtual GraphUpdate end_update() = 0;
  virtual void launch(Graph& graph) = 0;
  /// What the device's own interface calls the stream: a CUstream.
  virtual void* handle() const = 0;
};

class Device {
public:
  virtual ~Device() = default;
  virtual const Properties& properties() const = 0;
  /// Throws BackendError when there is no room. Contents are undefined; 0 bytes give memory of 256.
  virtual std::unique_ptr<Memory> allocate(size_t bytes) = 0;
  /// Host memory from which and into which copies go at full speed.
  virtual std::unique_ptr<Memory> allocate_staging(size_t bytes) = 0;
  virtual std::unique_ptr<Stream> make_stream() = 0;
  /// A stream that somebody else made, by its handle; 0 and 1 are the default stream of CUDA, 2 is that of
  /// the calling thread. It must outlive what is returned. Throws BackendError where there is no such stream.
  virtual std::unique_ptr<Stream> adopt_stream(void* handle) = 0;
  /// Empty where [data, data + bytes) is memory of this device, else what is wrong with it.
  virtual std::string defect_of(const void* data, size_t bytes) = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
  /// An event that was never recorded is reached.
  virtual bool is_reached(const Event& event) = 0;
  virtual void wait(const Event& event) = 0;
  /// All that streams of this device, whoever made them, were asked for until now.
  virtual void record_all(Event& event) = 0;
  /// Milliseconds of device time between two events that were reached.
  virtual double elapsed_ms(const Event& from, const Event& to) = 0;
  /// Loads what compile() made, here or on another device of the same architecture.
  virtual std::shared_ptr<Module> load(std::string_view binary) = 0;
};

/// The device of a name: "cuda", "cuda:1". With TBX_FAKE_CUDA=1 in the environment it is the fake one. The
/// same object for the same name. Throws BackendError, which names what is missing and how to install it.
std::shared_ptr<Device> open(std::string_view name);

} // namespace tbx::device
