"""Training loops: `python loops.py LOOP [hand FOLDER]`. With "hand" they call Probe where a careful user would.

Prints the weights' digest, and a random number drawn afterwards: equal lines mean equal bits.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

DUMPED = {"level": "mix", "task": "statistics", "step": [1, 2]}


class Nothing:
    def __getattr__(self, name: str) -> Any:
        return lambda *args: None


class Net(nn.Module):
    def __init__(self, inside: int = 8, out: int = 4) -> None:
        super().__init__()
        self.a, self.drop, self.b = nn.Linear(inside, 16), nn.Dropout(0.1), nn.Linear(16, out)

    def forward(self, x: torch.Tensor) -> Any:
        return self.b(self.drop(F.relu(self.a(x))))


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(5, 8), torch.randint(0, 4, (5,))


def between(h: Any) -> list[nn.Module]:
    """Evaluate and schedule between two steps."""
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    criterion = nn.CrossEntropyLoss()
    for _ in range(4):
        x, y = batch()
        h.start(net)
        loss = criterion(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        h.stop()
        h.step()
        scheduler.step()
        net.eval()
        with torch.no_grad():
            net(x)
        net.train()
    return [net]


def uncalled(h: Any) -> list[nn.Module]:
    """The loop uses the weights itself, so that no model is ever called."""
    net = nn.Sequential(nn.Linear(8, 4))
    weight, bias = net.parameters()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(4):
        h.start(net)
        x, y = batch()
        F.cross_entropy(F.linear(x, weight, bias), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        h.stop()
        h.step()
    return [net]


def accumulating(h: Any) -> list[nn.Module]:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(3):
        h.start(net)
        for _ in range(4):
            x, y = batch()
            (F.cross_entropy(net(x), y) / 4).backward()
        optimizer.step()
        h.stop()
        h.step()
        optimizer.zero_grad()
    return [net]


def scaled(h: Any) -> list[nn.Module]:
    """A GradScaler skips the second update."""
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for i in range(4):
        x, y = batch()
        x = x * float("inf") if i == 1 else x
        h.start(net)
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        h.stop()
        h.step()
        scaler.update()
    return [net]


def lbfgs(h: Any) -> list[nn.Module]:
    net = Net()
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)
    for _ in range(3):
        x, y = batch()

        def closure(x: torch.Tensor = x, y: torch.Tensor = y) -> torch.Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            return loss

        h.start(net)
        optimizer.step(closure)
        h.stop()
        h.step()
    return [net]


def gan(h: Any, critic_steps: int = 1, together: bool = False) -> list[nn.Module]:
    g, d = Net(8, 8), Net(8, 1)
    both = torch.optim.Adam(g.parameters(), 1e-3), torch.optim.Adam(d.parameters(), 1e-3)
    for _ in range(3):
        for _ in range(critic_steps):
            x, z = torch.randn(5, 8), torch.randn(5, 8)
            h.start([g, d])
            both[1].zero_grad()
            (F.softplus(-d(x)).mean() + F.softplus(d(g(z).detach())).mean()).backward()
            both[1].step()
            h.stop()
            if not together:
                h.step()
        h.start([g, d])
        both[0].zero_grad()
        F.softplus(-d(g(z))).mean().backward()
        both[0].step()
        h.stop()
        h.step()
    return [g, d]


def gan_as_one(h: Any) -> list[nn.Module]:
    return gan(h, together=True)


def critics(h: Any) -> list[nn.Module]:
    """Take three steps of the critic (WGAN) for one of the generator."""
    return gan(h, 3, together=True)


def frozen(h: Any) -> list[nn.Module]:
    """Train the last layer of a model in evaluation mode."""
    net = Net().eval()
    optimizer = torch.optim.SGD(net.b.parameters(), 0.1)
    for _ in range(4):
        x, y = batch()
        h.start(net)
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
        h.stop()
        h.step()
        optimizer.zero_grad()
    return [net]


def in_backward(h: Any) -> list[nn.Module]:
    net = Net()
    optimizers = {p: torch.optim.SGD([p], 0.1) for p in net.parameters()}

    def consume(p: torch.Tensor) -> None:
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in net.parameters():
        p.register_post_accumulate_grad_hook(consume)
    for _ in range(4):
        x, y = batch()
        h.start(net)
        F.cross_entropy(net(x), y).backward()
        h.stop()
        h.step()
    return [net]


def sam(h: Any) -> list[nn.Module]:
    """Move the weights uphill before the second backward pass."""
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(3):
        x, y = batch()
        h.start(net)
        F.cross_entropy(net(x), y).backward()
        with torch.no_grad():
            moves = [0.01 * p.grad for p in net.parameters()]
            for p, move in zip(net.parameters(), moves, strict=True):
                p.add_(move)
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        with torch.no_grad():
            for p, move in zip(net.parameters(), moves, strict=True):
                p.sub_(move)
        optimizer.step()
        h.stop()
        h.step()
        optimizer.zero_grad()
    return [net]


def evaluated_within(h: Any) -> list[nn.Module]:
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(3):
        x, y = batch()
        h.start(net)
        loss = F.cross_entropy(net(x), y)
        h.stop()
        net.eval()
        with torch.no_grad():
            net(x)
        net.train()
        h.start(net)
        loss.backward()
        optimizer.step()
        h.stop()
        h.step()
        optimizer.zero_grad()
    return [net]


def checkpointed(h: Any) -> list[nn.Module]:
    from torch.utils.checkpoint import checkpoint

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.n, self.m = Net(8, 8), Net()

        def forward(self, x: torch.Tensor) -> Any:
            return self.m(checkpoint(self.n, x, use_reentrant=False))

    net = Outer()
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(3):
        x, y = batch()
        h.start(net)
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
        h.stop()
        h.step()
        optimizer.zero_grad()
    return [net]


def compiled(h: Any) -> list[nn.Module]:
    """Compile the model, and the optimizer's step, which so has no region of the profiler's."""
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    fast: Any = torch.compile(net, backend="eager")
    step = torch.compile(optimizer.step, backend="eager")
    for _ in range(3):
        x, y = batch()
        h.start(fast)
        F.cross_entropy(fast(x), y).backward()
        step()
        h.stop()
        h.step()
        optimizer.zero_grad()
    return [net]


def averaged(h: Any) -> list[nn.Module]:
    """Keep an average of the weights, a copy that no optimizer trains."""
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    average = torch.optim.swa_utils.AveragedModel(net)
    for _ in range(3):
        x, y = batch()
        h.start(net)
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
        h.stop()
        h.step()
        optimizer.zero_grad()
        average.update_parameters(net)
        with torch.no_grad():
            average(x)
    return [net]


def distilled(h: Any) -> list[nn.Module]:
    net, teacher = Net(), Net().eval()
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(3):
        x, _ = batch()
        with torch.no_grad():
            target = teacher(x)
        h.start(net)
        F.mse_loss(net(x), target).backward()
        optimizer.step()
        h.stop()
        h.step()
        optimizer.zero_grad()
    return [net]


def in_two_parts(h: Any) -> list[nn.Module]:
    """Train an encoder and a decoder, which no module holds, by one optimizer."""
    parts = [Net(8, 8), Net(8, 4)]
    optimizer = torch.optim.Adam([p for part in parts for p in part.parameters()], 1e-2)
    for _ in range(3):
        x, y = batch()
        h.start(parts)
        F.cross_entropy(parts[1](parts[0](x)), y).backward()
        optimizer.step()
        h.stop()
        h.step()
        optimizer.zero_grad()
    return list(parts)


def one_step(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    F.cross_entropy(net(x), y).backward()
    with torch.no_grad():
        for p in net.parameters():
            p -= 0.1 * p.grad
            p.grad = None


def without_optimizer(h: Any) -> list[nn.Module]:
    net = Net()
    net(batch()[0])
    for _ in range(3):
        x, y = batch()
        h.start(net)
        one_step(net, x, y)
        h.stop()
        h.step()
    return [net]


def failing(h: Any) -> list[nn.Module]:
    """End by an error in the middle of a step."""
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for i in range(3):
        x, y = batch()
        h.start(net)
        F.cross_entropy(net(x[:, :3] if i == 1 else x), y).backward()
        optimizer.step()
        h.stop()
        h.step()
    return [net]


def main(loop: str, folder: str | None = None) -> None:
    """Run a loop, dumped by hand to ``folder``, or not at all."""
    hand: Any = Nothing()
    if folder is not None:
        from probe_torch import PrecisionDebugger

        hand = PrecisionDebugger(dump_path=folder, **DUMPED)
    torch.manual_seed(0)
    trained = globals()[loop](hand)
    weights = b"".join(p.detach().numpy().tobytes() for net in trained for p in net.parameters())
    print(hashlib.md5(weights).hexdigest(), torch.rand(1).item(), flush=True)
    hand.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[3] if len(sys.argv) > 3 else None)
