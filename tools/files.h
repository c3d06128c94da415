// Tensor files: .npy, .npz (read and written), TensorProto .pb and PNG (read).
#pragma once

#include <string>
#include <vector>

#include "tools/common.h"

namespace tbx::tools {

/// "x.npy", "x.npz" (its only array, or the one with the input's name) or "x.npz:key", "x.pb", "x.png" (grey
/// or RGB in the shape that `wanted` asks for: [..., C, H, W]; float32: scaled to 0..1, uint8: as it is).
/// Types that numpy lacks are read from unsigned integers of the same width. Throws UsageError with the
/// reason.
OwnedTensor read_tensor(const std::string& spec, const TensorInfo& wanted);

/// Writes tensors: to *.npz all, one member each, uncompressed; to *.npy the only one. Throws UsageError.
void write_tensors(const std::string& path, const std::vector<OwnedTensor>& tensors);
/// Empty if tensors can be written to `path` later; otherwise the reason. Cheap: asked before long work.
std::string refuses_output(const std::string& path);
/// The same for a file of any kind, which is not to replace `model`, where that is given.
std::string refuses_file(const std::string& path, const std::string& model = {});
std::vector<OwnedTensor> read_npz(const std::string& path);

/// Throws UsageError: what is wrong with the file.
[[noreturn]] void fail(const std::string& path, const std::string& why);

/// All bytes of a file; throws UsageError.
std::string read_file(const std::string& path);
/// The file has these bytes or is what it was before: written beside it, then renamed. Throws UsageError.
void write_file(const std::string& path, const std::string& bytes);

/// onnx.TensorProto in the wire format; `path` is for messages. Throws UsageError.
OwnedTensor parse_tensor_proto(const std::string& path, const std::string& bytes);

/// A PNG as rows of `channels` bytes per pixel (1: grey, 3: RGB).
struct Image {
  int width = 0, height = 0, channels = 1;
  std::vector<unsigned char> pixels;
};
Image read_png(const std::string& path, int channels);

} // namespace tbx::tools
