"""Modules such as users write by accident: they print, read, hang, crash, change. Used
by test_worker.py.
"""

from __future__ import annotations

import os
import sys
import time

import torch
from torch import Tensor, nn

print("a print at import")


class Plain(nn.Module):
    def __init__(self, dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(dim, hidden_dim), nn.Linear(hidden_dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(x)))


class Changes(Plain):
    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        x.mul_(1.01)
        return y


class Chatty(Plain):
    def forward(self, x: Tensor) -> Tensor:
        print('{"value": 1}')
        os.write(1, b"raw bytes on stdout\n")
        assert sys.stdin.read() == ""
        return super().forward(x)


class Later(Plain):
    """Behaves for a while on real data, then `misbehave`s."""

    def __init__(self, dim: int, hidden_dim: int) -> None:
        super().__init__(dim, hidden_dim)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += x.device.type == "cpu"
        if self.calls > 8:
            self.misbehave()
        return super().forward(x)


class Raises(Later):
    def misbehave(self) -> None:
        raise ValueError("two\nlines")


class Exits(Later):
    def misbehave(self) -> None:
        sys.exit(1)


class Dies(Later):
    def misbehave(self) -> None:
        os._exit(7)


class Hangs(Later):
    def misbehave(self) -> None:
        time.sleep(1000)


class Greedy(Later):
    def misbehave(self) -> None:
        torch.ones(10**13)


class Hungry(Plain):
    """Takes 1 GiB that it never touches: any machine gives that, a worker with less to
    spare does not.
    """

    def forward(self, x: Tensor) -> Tensor:
        torch.empty(2**30, dtype=torch.uint8)
        return super().forward(x)


class Drifts(Later):
    def misbehave(self) -> None:
        with torch.no_grad():
            self.up.weight.add_(0.01)


class NotFinite(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / 0


class BadShape(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return self.up(x)


class Tuple(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x), None


class Packed(nn.Module):
    """hidden_features is the packed width, as in timm's GluMlp."""

    def __init__(self, in_features: int, hidden_features: int) -> None:
        super().__init__()
        self.both = nn.Linear(in_features, hidden_features, bias=False)
        self.down = nn.Linear(hidden_features // 2, in_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.both(x).chunk(2, dim=-1)
        return self.down(torch.sigmoid(gate) * up)


class Configured(Plain):
    """Takes one config object, as Hugging Face's modules do."""

    def __init__(self, config) -> None:
        super().__init__(config.hidden_size, config.intermediate_size)
        self.act = config.hidden_act
        self.special = config.special


class Needy(Plain):
    def __init__(self, dim: int, hidden_dim: int, heads: int) -> None:
        super().__init__(dim, hidden_dim)


def not_a_module(d_model: int, d_ff: int) -> int:
    return 3


def broken(d_model: int, d_ff: int) -> nn.Module:
    raise RuntimeError("no GPU here")


an_instance = Plain(4, 4)


class Counts(Plain):
    """Its forward depends on how often it was called: no compiled code fits twice."""

    def __init__(self, dim: int, hidden_dim: int) -> None:
        super().__init__(dim, hidden_dim)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x) + 0.0 * self.calls


class TwoGraphs(Plain):
    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.up(x))
        torch._dynamo.graph_break()
        return self.down(hidden)


class Closed(Plain):
    """Not to be compiled. Said when it is built: it loads the compiler, which the
    others here can do without.
    """

    def __init__(self, dim: int, hidden_dim: int) -> None:
        super().__init__(dim, hidden_dim)
        self.forward = torch.compiler.disable(self.forward)
