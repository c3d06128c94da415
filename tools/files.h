// Tensor files: .npy, .npz (read and written), TensorProto .pb and PNG (read).
#pragma once

#include <string>
#include <vector>

#include "tools/common.h"

namespace tbx::tools {

/// "x.npy", "x.npz" (its only array) or "x.npz:key", "x.pb", "x.png" (grey or RGB scaled to 0..1, in the
/// shape that `wanted` asks for: [..., C, H, W]). Throws std::runtime_error with the reason.
OwnedTensor read_tensor(const std::string& spec, const OwnedTensor& wanted);

/// One member per tensor, stored uncompressed.
void write_npz(const std::string& path, const std::vector<OwnedTensor>& tensors);
std::vector<OwnedTensor> read_npz(const std::string& path);

/// A PNG as rows of `channels` bytes per pixel (1: grey, 3: RGB).
struct Image {
  int width = 0, height = 0, channels = 1;
  std::vector<unsigned char> pixels;
};
Image read_png(const std::string& path, int channels);

} // namespace tbx::tools
