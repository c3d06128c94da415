"""Networks on graphs and clouds of points: messages added at their targets, neighbours found by distance."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .case import Case

WIDTH = 8


class GraphConvolution(nn.Module):
    """As GCN: neighbours weighted by degrees."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, 12), nn.Linear(12, 5)])

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        source, target = edges[0], edges[1]
        degree = 1 + torch.zeros(x.shape[0]).index_add(0, target, torch.ones(target.shape[0]))
        scale = degree.rsqrt()
        for layer in self.layers:
            h = layer(F.relu(x))
            messages = h[source] * (scale[source] * scale[target])[:, None]
            x = torch.zeros_like(h).index_add(0, target, messages) + h * (scale * scale)[:, None]
        return F.log_softmax(x, -1)


class GraphAttention(nn.Module):
    """As GAT: a softmax over the edges that end in one node."""

    def __init__(self, heads: int = 2):
        super().__init__()
        self.project, self.heads = nn.Linear(WIDTH, heads * WIDTH, bias=False), heads
        self.source, self.target = nn.Parameter(torch.randn(heads, WIDTH)), nn.Parameter(torch.randn(heads, WIDTH))

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        h = self.project(x).view(-1, self.heads, WIDTH)
        source, target = edges[0], edges[1]
        score = F.leaky_relu((h * self.source).sum(-1)[source] + (h * self.target).sum(-1)[target], 0.2)
        at = target[:, None].expand(-1, self.heads)
        best = torch.full((x.shape[0], self.heads), -1e30).scatter_reduce(0, at, score, "amax")
        weight = (score - best[target]).exp()
        total = torch.zeros(x.shape[0], self.heads).scatter_add(0, at, weight)
        weight = weight / (total[target] + 1e-16)
        return torch.zeros_like(h).index_add(0, target, h[source] * weight[..., None]).flatten(1)


class EdgeConvolution(nn.Module):
    """As DGCNN: the nearest neighbours of every point, the greatest of what they give."""

    def __init__(self, neighbours: int = 4):
        super().__init__()
        self.neighbours, self.conv = neighbours, nn.Conv2d(6, 10, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, c, points = x.shape
        squares = (x * x).sum(1, keepdim=True)
        nearness = 2 * x.transpose(1, 2) @ x - squares - squares.transpose(1, 2)
        at = nearness.topk(self.neighbours, -1)[1] + torch.arange(n).view(-1, 1, 1) * points
        rows = x.transpose(1, 2).reshape(n * points, c)
        near = rows[at.view(-1)].view(n, points, self.neighbours, c)
        here = rows.view(n, points, 1, c).expand(-1, -1, self.neighbours, -1)
        return F.leaky_relu(self.conv(torch.cat([near - here, here], -1).permute(0, 3, 1, 2)), 0.2).amax(-1)


def graph(n: int):
    return {"x": torch.randn(5 * n, WIDTH), "edges": torch.randint(0, 5 * n, (2, 17 * n))}


EDGES = {"x": {0: "nodes"}, "edges": {1: "edges"}}
#: The exporter on TorchScript keeps one of the messages to a target; ONNX Runtime's ScatterElements loses maxima.
CASES = [
    Case("graph_convolution", GraphConvolution, graph, EDGES, exporters=("dynamo",), reference="torch"),
    Case("graph_attention", GraphAttention, graph, EDGES, exporters=("dynamo",), reference="torch"),
    Case("edge_convolution", EdgeConvolution, lambda n: {"x": torch.randn(n, 3, 12)}, {"x": {0: "batch"}}),
]
