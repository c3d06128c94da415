#include <tensorbox/tensorbox.h>

#include <iostream>

int main() {
  auto session = tbx::Session::compile("examples/digits/digits.onnx").value();
  std::vector<float> image(64); // 8x8 grey values; a vertical bar
  for (int i = 0; i < 64; ++i) image[i] = i % 8 == 3 || i % 8 == 4;
  auto outputs = session.run({{"image", tbx::TensorView::of(image, {1, 1, 8, 8})}}).value();
  auto probability = outputs[0].values<float>();
  for (int digit = 0; digit < 10; ++digit) std::cout << digit << ": " << probability[digit] << "\n";
}
