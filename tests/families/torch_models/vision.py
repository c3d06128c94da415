"""Detection heads, resampling, and torchvision's operators."""

from __future__ import annotations

import torch
import torchvision
from torch import nn
from torch.nn import functional as F

from .case import Case, Function


class YoloHead(nn.Module):
    """Anchors, sigmoid, grid offsets, then non-maximum suppression over classes."""

    def __init__(self, suppress: bool):
        super().__init__()
        self.suppress, self.out = suppress, nn.Conv2d(8, 3 * 7, 1)
        self.register_buffer("anchors", torch.tensor([[8.0, 8.0], [12.0, 20.0], [24.0, 16.0]]))

    def forward(self, x: torch.Tensor):
        n, _, h, w = x.shape
        y = self.out(x).reshape(n, 3, 7, h, w).permute(0, 1, 3, 4, 2).sigmoid()
        rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        grid = torch.stack([columns, rows], -1).view(1, 1, h, w, 2).float()
        centre = (y[..., :2] * 2 - 0.5 + grid) * 8
        size = (y[..., 2:4] * 2) ** 2 * self.anchors.view(1, 3, 1, 1, 2)
        boxes = torch.cat([centre - size / 2, centre + size / 2], -1).reshape(n, -1, 4)
        scores = (y[..., 4:5] * y[..., 5:]).reshape(n, -1, 2)
        if not self.suppress:
            return boxes, scores
        best, kind = scores[0].max(-1)
        keep = torch.where(best > 0.25)[0]
        chosen = torchvision.ops.batched_nms(boxes[0][keep], best[keep], kind[keep], 0.5)
        keep = keep[chosen]
        return boxes[0][keep], best[keep], kind[keep]


class Nms(nn.Module):
    def forward(self, boxes: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return torchvision.ops.nms(boxes, scores, 0.4)


class RoiHead(nn.Module):
    def __init__(self, aligned: bool):
        super().__init__()
        self.aligned, self.out = aligned, nn.Linear(8 * 9, 4)

    def forward(self, x: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
        return self.out(torchvision.ops.roi_align(x, [boxes], 3, 0.5, 2, self.aligned).flatten(1))


class Deformable(nn.Module):
    def __init__(self):
        super().__init__()
        self.offset, self.mask = nn.Conv2d(4, 18, 3, padding=1), nn.Conv2d(4, 9, 3, padding=1)
        self.body = torchvision.ops.DeformConv2d(4, 6, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x, self.offset(x), torch.sigmoid(self.mask(x)))


class Warp(nn.Module):
    """A spatial transformer: affine grid from a predicted matrix."""

    def __init__(self, mode: str, padding: str, corners: bool):
        super().__init__()
        self.mode, self.padding, self.corners, self.theta = mode, padding, corners, nn.Linear(4, 6)

    def forward(self, x: torch.Tensor, code: torch.Tensor) -> torch.Tensor:
        grid = F.affine_grid(self.theta(code).view(-1, 2, 3), x.shape, self.corners)
        return F.grid_sample(x, grid, self.mode, self.padding, self.corners)


class Pyramid(nn.Module):
    """Feature pyramid: sizes for the upsampling come from another feature map."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(4, 4, 3, 2, 1), nn.Conv2d(4, 4, 3, 2, 1), nn.Conv2d(4, 4, 1)

    def forward(self, x: torch.Tensor):
        p1 = F.relu(self.a(x))
        p2 = F.relu(self.b(p1))
        up = F.interpolate(self.c(p2), size=p1.shape[-2:], mode="nearest")
        return p1 + up, p2, F.interpolate(up, size=x.shape[-2:], mode="bilinear", align_corners=True)


class Centers(nn.Module):
    """CenterNet's decoding: peaks by max-pool, top-k over the plane, gathers by index."""

    def forward(self, heat: torch.Tensor, size: torch.Tensor):
        n, c, h, w = heat.shape
        heat = heat.sigmoid()
        heat = heat * (F.max_pool2d(heat, 3, 1, 1) == heat).float()
        scores, places = torch.topk(heat.view(n, -1), 5)
        kinds, places = places // (h * w), places % (h * w)
        sizes = size.flatten(2).gather(2, places[:, None].expand(-1, 2, -1))
        return scores, kinds, places // w, (places % w).float(), sizes


def resize(**options):
    return lambda: Function(lambda x: F.interpolate(x, **options))


def images(channels: int, height: int, width: int):
    return lambda n: {"x": torch.randn(n, channels, height, width)}


def boxes(count: int, extent: float) -> torch.Tensor:
    corner = torch.rand(count, 2) * extent * 0.6
    return torch.cat([corner, corner + 1 + torch.rand(count, 2) * extent * 0.4], 1)


BATCH = {"x": {0: "batch"}}
PLANE = {"x": {0: "batch", 2: "height", 3: "width"}}

CASES = [
    Case(
        "yolo",
        lambda: YoloHead(False),
        lambda n: {"x": torch.randn(1, 8, 3 + n, 4 * n)},
        {"x": {2: "height", 3: "width"}},
    ),
    Case("yolo_suppressed", lambda: YoloHead(True), lambda n: {"x": torch.randn(1, 8, 6, 6)}, exporters=("script",)),
    Case(
        "nms",
        Nms,
        lambda n: {"boxes": boxes(10 * n, 20), "scores": torch.rand(10 * n)},
        {"boxes": {0: "count"}, "scores": {0: "count"}},
    ),
    *(
        Case(
            f"roi_align_{aligned}",
            lambda aligned=aligned: RoiHead(aligned),
            lambda n: {"x": torch.randn(1, 8, 12, 12), "boxes": boxes(3 * n, 24)},
            {"boxes": {0: "rois"}},
        )
        for aligned in (False, True)
    ),
    Case("deform_conv", Deformable, images(4, 6, 7), BATCH, exporters=("dynamo",)),
    *(
        Case(
            f"warp_{mode}_{padding}_{corners}",
            lambda m=mode, p=padding, c=corners: Warp(m, p, c),
            lambda n: {"x": torch.randn(n, 2, 7, 9), "code": torch.randn(n, 4)},
            {"x": {0: "batch"}, "code": {0: "batch"}},
            opset=opset,
        )
        for mode, padding, corners, opset in (
            ("bilinear", "zeros", False, 20),
            ("bicubic", "border", True, 20),
            ("nearest", "reflection", False, 20),
            ("bilinear", "reflection", True, 20),
        )
    ),
    Case(
        "pyramid", Pyramid, lambda n: {"x": torch.randn(1, 4, 5 + 3 * n, 7 + 2 * n)}, {"x": {2: "height", 3: "width"}}
    ),
    Case(
        "centers",
        Centers,
        lambda n: {"heat": torch.randn(n, 3, 6, 6), "size": torch.rand(n, 2, 6, 6)},
        {"heat": {0: "batch"}, "size": {0: "batch"}},
    ),
    Case("resize_bicubic", resize(size=(13, 9), mode="bicubic", align_corners=False), images(2, 7, 8), BATCH),
    Case(
        "resize_bilinear_scale", resize(scale_factor=(1.5, 0.7), mode="bilinear"), images(2, 9, 8), PLANE, sizes=(2, 3)
    ),
    Case(
        "resize_antialias",
        resize(size=(4, 5), mode="bilinear", antialias=True),
        images(2, 9, 13),
        BATCH,
        exporters=("dynamo",),
    ),
    Case("resize_area", resize(size=(3, 4), mode="area"), images(2, 9, 8), BATCH),
    Case(
        "resize_nearest_exact",
        resize(scale_factor=2, mode="nearest-exact"),
        images(2, 3, 4),
        BATCH,
        exporters=("dynamo",),
    ),
    Case(
        "resize_trilinear", resize(scale_factor=2, mode="trilinear"), lambda n: {"x": torch.randn(n, 2, 3, 4, 3)}, BATCH
    ),
    Case("resize_linear", resize(scale_factor=2.5, mode="linear"), lambda n: {"x": torch.randn(n, 2, 6)}, BATCH),
]
