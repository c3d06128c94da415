import numpy as np
import tensorbox

held_out = np.load("examples/digits/digits.npz")  # 360 scanned digits the network has not seen
session = tensorbox.Session("examples/digits/digits.onnx")
outputs = session.run({"image": held_out["images"].astype(np.float32) / 255})
digits = outputs["probabilities"].argmax(axis=1)
print(f"accuracy {(digits == held_out['labels']).mean():.3f}")
