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


class YoloDistribution(nn.Module):
    """As YOLOv8 to v11: distances to the sides as distributions over bins; two scales; the export that selects boxes
    in the model, always `limit` rows per image."""

    def __init__(self, select: bool, limit: int = 6):
        super().__init__()
        self.select, self.limit, self.bins = select, limit, 8
        self.box = nn.ModuleList(nn.Conv2d(8, 4 * self.bins, 3, s, 1) for s in (1, 2))
        self.kind = nn.ModuleList(nn.Conv2d(8, 3, 3, s, 1) for s in (1, 2))
        self.project = nn.Conv2d(self.bins, 1, 1, bias=False)
        self.project.weight.data[:] = torch.arange(self.bins, dtype=torch.float32).view(1, self.bins, 1, 1)

    def forward(self, x: torch.Tensor):
        n = x.shape[0]
        maps = [torch.cat([box(x), kind(x)], 1) for box, kind in zip(self.box, self.kind)]
        points, strides = [], []
        for stride, y in zip((8.0, 16.0), maps):
            h, w = y.shape[2:]
            rows, columns = torch.meshgrid(torch.arange(h) + 0.5, torch.arange(w) + 0.5, indexing="ij")
            points.append(torch.stack([columns, rows], -1).view(-1, 2))
            strides.append(torch.full((h * w, 1), stride))
        points, strides = torch.cat(points).T[None], torch.cat(strides).T
        box, kind = torch.cat([y.flatten(2) for y in maps], 2).split((4 * self.bins, 3), 1)
        sides = self.project(box.view(n, 4, self.bins, -1).transpose(2, 1).softmax(1)).view(n, 4, -1)
        first, second = sides.chunk(2, 1)
        corner, other = points - first, points + second
        centre, size = (corner + other) / 2, other - corner
        y = torch.cat([torch.cat([centre, size], 1) * strides, kind.sigmoid()], 1)
        if not self.select:
            return y
        boxes, scores = y.transpose(-1, -2).split((4, 3), -1)
        boxes = torch.cat([boxes[..., :2] - boxes[..., 2:] / 2, boxes[..., :2] + boxes[..., 2:] / 2], -1)
        rows = []
        for i in range(2):
            best, which = scores[i].max(-1)
            likely = best > 0.3
            box, score, number = boxes[i][likely], best[likely], which[likely]
            keep = torchvision.ops.nms(box + number[:, None].to(box.dtype) * 7680, score, 0.45)[: self.limit]
            found = torch.cat([box[keep], score[keep][:, None], number[keep][:, None].to(box.dtype)], 1)
            rows.append(F.pad(found, (0, 0, 0, self.limit - found.shape[0])))
        return torch.stack(rows)


class DeformableAttention(nn.Module):
    """As Deformable DETR and RT-DETR: every query looks at sampled places of maps of several sizes."""

    def __init__(self):
        super().__init__()
        self.value, self.offset, self.weight = nn.Linear(8, 8), nn.Linear(8, 2 * 2 * 3 * 2), nn.Linear(8, 2 * 2 * 3)

    def forward(self, queries: torch.Tensor, places: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        n, q, _ = queries.shape
        offsets = self.offset(queries).view(n, q, 2, 2, 3, 2)
        weights = self.weight(queries).view(n, q, 2, 6).softmax(-1).transpose(1, 2).reshape(2 * n, 1, q, 6)
        samples = []
        for level, x in enumerate((a, b)):
            h, w = x.shape[2:]
            value = self.value(x.flatten(2).transpose(1, 2)).view(n, h * w, 2, 4).permute(0, 2, 3, 1)
            where = places[:, :, None, None] + offsets[:, :, :, level] / torch.tensor([w, h])
            grid = (2 * where - 1).transpose(1, 2).flatten(0, 1)
            samples.append(F.grid_sample(value.reshape(2 * n, 4, h, w), grid, "bilinear", "zeros", False))
        y = (torch.cat(samples, -1) * weights).sum(-1)
        return y.view(n, 8, q).transpose(1, 2)


class BestQueries(nn.Module):
    """What follows the decoder of a detection transformer: the best pairs of query and class, boxes gathered and scaled."""

    def forward(self, logits: torch.Tensor, boxes: torch.Tensor, size: torch.Tensor):
        scores, index = torch.topk(logits.sigmoid().flatten(1), 4)
        labels, index = index % logits.shape[2], torch.div(index, logits.shape[2], rounding_mode="floor")
        cx, cy, w, h = boxes.unbind(-1)
        boxes = torch.stack([cx - 0.5 * w, cy - 0.5 * h, cx + 0.5 * w, cy + 0.5 * h], -1) * size.repeat(1, 2)[:, None]
        return labels, boxes.gather(1, index[..., None].repeat(1, 1, 4)), scores


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

class Modulated(nn.Module):
    """As StyleGAN 2: a convolution whose weights each image scales by its style, and norms."""

    def __init__(self, width: int = 8):
        super().__init__()
        self.weight, self.style = nn.Parameter(torch.randn(12, width, 3, 3) / 8), nn.Linear(6, width)

    def forward(self, x: torch.Tensor, style: torch.Tensor) -> torch.Tensor:
        n, c, h, w = x.shape
        weight = self.weight * (self.style(style) + 1)[:, None, :, None, None]
        weight = weight * torch.rsqrt(weight.pow(2).sum((2, 3, 4), keepdim=True) + 1e-8)
        x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False).view(1, n * c, 2 * h, 2 * w)
        y = F.conv2d(x, weight.view(n * 12, c, 3, 3), padding=1, groups=n)
        return F.leaky_relu(y.view(n, 12, 2 * h, 2 * w), 0.2)


class Segmenter(nn.Module):
    """The end of a segmentation network: many classes, then the size of the image."""

    def __init__(self):
        super().__init__()
        self.out = nn.Conv2d(8, 19, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = F.interpolate(self.out(x), scale_factor=4, mode="bilinear", align_corners=False)
        return y, y.argmax(1)


CASES = [
    Case("modulated", Modulated, lambda n: {"x": torch.randn(2, 8, 6, 5), "style": torch.randn(2, 6)}, sizes=(2,)),
    Case("segmenter", Segmenter, lambda n: {"x": torch.randn(1, 8, 5 + n, 9)}, {"x": {2: "height"}}),
    Case(
        "yolo",
        lambda: YoloHead(False),
        lambda n: {"x": torch.randn(1, 8, 3 + n, 4 * n)},
        {"x": {2: "height", 3: "width"}},
    ),
    Case("yolo_suppressed", lambda: YoloHead(True), lambda n: {"x": torch.randn(1, 8, 6, 6)}, exporters=("script",)),
    Case(
        "yolo_distribution",
        lambda: YoloDistribution(False),
        lambda n: {"x": torch.randn(n, 8, 2 + 2 * n, 8)},
        {"x": {0: "batch", 2: "height", 3: "width"}},
    ),
    Case(
        "yolo_selected",
        lambda: YoloDistribution(True),
        lambda n: {"x": torch.randn(2, 8, 2 + 2 * n, 8)},
        {"x": {2: "height"}},
        exporters=("script",),
    ),
    Case(
        "deformable_attention",
        DeformableAttention,
        lambda n: {
            "queries": torch.randn(n, 2 * n, 8),
            "places": torch.rand(n, 2 * n, 2),
            "a": torch.randn(n, 8, 6, 7),
            "b": torch.randn(n, 8, 3, 4),
        },
        {
            "queries": {0: "batch", 1: "queries"},
            "places": {0: "batch", 1: "queries"},
            "a": {0: "batch"},
            "b": {0: "batch"},
        },
    ),
    Case(
        "best_queries",
        BestQueries,
        lambda n: {
            "logits": torch.randn(n, 3 * n, 5),
            "boxes": torch.rand(n, 3 * n, 4),
            "size": torch.randint(10, 90, (n, 2)).float(),
        },
        {"logits": {0: "batch", 1: "queries"}, "boxes": {0: "batch", 1: "queries"}, "size": {0: "batch"}},
    ),
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
