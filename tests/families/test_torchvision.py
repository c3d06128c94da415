"""Networks of torchvision as its users export them: detection with its suppression and crops, segmentation, video, optical
flow, and classifiers of every design. Weights are random; the numbers of a layer are those of the real one."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from families import Tolerance, check

torch = pytest.importorskip("torch", reason="./dev families installs the tools of these tests")
pytest.importorskip("onnxscript", reason="./dev families installs the tools of these tests")
torchvision = pytest.importorskip("torchvision", reason="./dev families installs the tools of these tests")

torch.backends.mha.set_fastpath_enabled(False)  # a fused operator of torch that no exporter knows
classification, detection, segmentation = (
    torchvision.models,
    torchvision.models.detection,
    torchvision.models.segmentation,
)
swin, video = torchvision.models.swin_transformer, torchvision.models.video
NONE: dict[str, Any] = {"weights": None}
BARE: dict[str, Any] = {"weights": None, "weights_backbone": None}


class Last(torch.nn.Module):
    """Of a model that refines its answer, the last answer."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return self.model(first, second, num_flow_updates=2)[-1]


class Segmentation(torch.nn.Module):
    """The classes of a segmentation network without those of its helper."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x)["out"]


class Detector(torch.nn.Module):
    """A detector of one image, its answers as tensors."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(self.model([image])[0].values())


@dataclass(frozen=True)
class Network:
    make: Callable[[], torch.nn.Module]
    shape: tuple[int, ...]
    dynamic: tuple[int, ...] = (0,)
    count: int = 1
    exporters: tuple[str, ...] = ("script", "dynamo")
    tolerance: Tolerance = Tolerance(relative=1e-3, of_scale=1e-4)


def image(make: Callable[..., torch.nn.Module], size: int = 64, **options: Any) -> Network:
    return Network(lambda: make(**(options or NONE)), (2, 3, size, size))


def detector(make: Callable[..., torch.nn.Module], size: int = 160, **options: Any) -> Network:
    """With few proposals; thresholds that let boxes of random weights through."""
    return Network(lambda: Detector(make(**BARE, num_classes=5, **options)), (3, size, size), (), exporters=("script",))


SMALL = {"min_size": 160, "max_size": 160}
PROPOSALS = {"rpn_post_nms_top_n_test": 20, "box_score_thresh": 0.0, "box_detections_per_img": 10, **SMALL}
NETWORKS = {
    "googlenet": image(classification.googlenet, weights=None, init_weights=False, aux_logits=False),
    "inception_v3": image(classification.inception_v3, 80, weights=None, init_weights=False, aux_logits=False),
    "mnasnet": image(classification.mnasnet0_5),
    "regnet": image(classification.regnet_y_400mf),
    "efficientnet_v2": image(classification.efficientnet_v2_s),
    "squeezenet": image(classification.squeezenet1_1),
    "maxvit": Network(
        lambda: classification.MaxVit((64, 64), 16, 4, [16, 32], [1, 1], 8, 0.0), (2, 3, 64, 64)
    ),
    "swin_v2": Network(
        lambda: classification.SwinTransformer(
            [4, 4], 16, [1, 1], [2, 4], [4, 4], block=swin.SwinTransformerBlockV2, downsample_layer=swin.PatchMergingV2
        ),
        (2, 3, 64, 64),
    ),
    "deeplab": Network(lambda: Segmentation(segmentation.deeplabv3_mobilenet_v3_large(**BARE)), (2, 3, 64, 96), (2, 3)),
    "lraspp": Network(lambda: Segmentation(segmentation.lraspp_mobilenet_v3_large(**BARE)), (2, 3, 64, 96), (2, 3)),
    "fcn": Network(lambda: Segmentation(segmentation.fcn_resnet50(**BARE)), (2, 3, 32, 64)),
    "r3d": Network(lambda: video.r3d_18(**NONE), (2, 3, 4, 32, 32)),
    "r2plus1d": Network(lambda: video.r2plus1d_18(**NONE), (2, 3, 4, 32, 32)),
    "raft": Network(lambda: Last(torchvision.models.optical_flow.raft_small(**NONE)), (1, 3, 128, 128), (), count=2),
    "faster_rcnn": detector(detection.fasterrcnn_mobilenet_v3_large_320_fpn, **PROPOSALS),
    "mask_rcnn": detector(detection.maskrcnn_resnet50_fpn, **PROPOSALS),
    "keypoint_rcnn": detector(detection.keypointrcnn_resnet50_fpn, **PROPOSALS),
    "retinanet": detector(
        detection.retinanet_resnet50_fpn, score_thresh=0.0, detections_per_img=10, topk_candidates=20, **SMALL
    ),
    "fcos": detector(detection.fcos_resnet50_fpn, score_thresh=0.0, detections_per_img=10, topk_candidates=20, **SMALL),
    "ssdlite": detector(
        detection.ssdlite320_mobilenet_v3_large, 320, score_thresh=0.0, detections_per_img=10, topk_candidates=20
    ),
}


def settle(model: torch.nn.Module) -> torch.nn.Module:
    """Statistics of trained layers: random weights alone let activations vanish or grow."""
    generator = torch.Generator().manual_seed(1)
    for module in model.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            module.running_mean.copy_(torch.randn(module.num_features, generator=generator) * 0.1)
            module.running_var.copy_(torch.rand(module.num_features, generator=generator) * 0.5 + 0.5)
    return model.eval()


def export(network: Network, exporter: str) -> onnx.ModelProto:
    torch.manual_seed(3)
    model = settle(network.make())
    inputs = tuple(torch.rand(network.shape) for _ in range(network.count))
    names = [f"x{i}" for i in range(network.count)]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            shapes = tuple({axis: torch.export.Dim.DYNAMIC for axis in network.dynamic} for _ in inputs)
            program = torch.onnx.export(
                model,
                inputs,
                input_names=names,
                dynamo=True,
                verbose=False,
                dynamic_shapes=shapes if network.dynamic else None,
            )
            return program.model_proto
        file = io.BytesIO()
        axes = {name: {axis: f"d{axis}" for axis in network.dynamic} for name in names}
        torch.onnx.export(model, inputs, file, input_names=names, dynamo=False, dynamic_axes=axes, opset_version=17)
        return onnx.load_from_string(file.getvalue())


@pytest.mark.parametrize(
    "exporter,name", [(exporter, name) for name, network in NETWORKS.items() for exporter in network.exporters]
)
def test_network(exporter: str, name: str) -> None:
    network = NETWORKS[name]
    model = export(network, exporter)
    wanted = [info.name for info in model.graph.input]
    random = np.random.default_rng(4)
    shapes = [network.shape]
    if network.dynamic and exporter == "script":
        shapes.append(tuple(n + (32 if n > 8 else 1) * (i in network.dynamic) for i, n in enumerate(network.shape)))
    feeds = [{key: random.random(shape, np.float32) for key in wanted} for shape in shapes]
    check(model, *feeds, tolerance=network.tolerance, compile=(True,))
