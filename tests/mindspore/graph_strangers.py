"""Networks of everyday kinds, written as their users write them, for the zoo of compiled graphs."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import Normal, initializer
from mindspore_zoo import VOCAB, Case, vectors

__all__ = ["STRANGERS"]
D = 8


class LayerNorm2d(nn.LayerNorm):
    def construct(self, x):
        return super().construct(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


class ConvNeXtBlock(nn.Cell):
    """Depthwise convolution, a norm over channels, an inverted bottleneck and a layer scale."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, 7, group=dim, has_bias=True)
        self.norm = nn.LayerNorm((dim,), epsilon=1e-6)
        self.pwconv1, self.act, self.pwconv2 = nn.Dense(dim, 4 * dim), nn.GELU(), nn.Dense(4 * dim, dim)
        self.gamma = Parameter(Tensor(1e-1 * np.ones(dim), ms.float32), name="gamma")

    def construct(self, x):
        shortcut = x
        x = self.dwconv(x).transpose(0, 2, 3, 1)
        x = self.gamma * self.pwconv2(self.act(self.pwconv1(self.norm(x))))
        return shortcut + x.transpose(0, 3, 1, 2)


class ConvNeXt(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.SequentialCell(nn.Conv2d(1, 4, 2, stride=2, has_bias=True), LayerNorm2d((4,)))
        self.stage = nn.SequentialCell([ConvNeXtBlock(4) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm((4,)), nn.Dense(4, 3)

    def construct(self, x, y):
        x = self.stage(self.stem(x))
        return ops.cross_entropy(self.head(self.norm(x.mean((-2, -1)))), y)


class InvertedResidual(nn.Cell):
    def __init__(self, inp: int, out: int, stride: int, ratio: int) -> None:
        super().__init__()
        hidden = inp * ratio
        self.use_res_connect = stride == 1 and inp == out
        self.layers = nn.SequentialCell(
            nn.Conv2d(inp, hidden, 1), nn.BatchNorm2d(hidden), nn.ReLU6(),
            nn.Conv2d(hidden, hidden, 3, stride, pad_mode="pad", padding=1, group=hidden),
            nn.BatchNorm2d(hidden), nn.ReLU6(), nn.Conv2d(hidden, out, 1), nn.BatchNorm2d(out),
        )  # fmt: skip

    def construct(self, x):
        if self.use_res_connect:
            return x + self.layers(x)
        return self.layers(x)


class MobileNet(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.SequentialCell(
            nn.Conv2d(1, 4, 3), InvertedResidual(4, 4, 1, 2), InvertedResidual(4, 6, 2, 2)
        )
        self.pool, self.classifier = nn.AdaptiveAvgPool2d(1), nn.Dense(6, 3)
        self.loss = nn.CrossEntropyLoss(label_smoothing=0.1)

    def construct(self, x, y):
        x = self.pool(self.features(x))
        return self.loss(self.classifier(x.reshape(x.shape[0], -1)), y)


class DoubleConv(nn.SequentialCell):
    def __init__(self, cin: int, cout: int) -> None:
        super().__init__(
            nn.Conv2d(cin, cout, 3), nn.BatchNorm2d(cout), nn.ReLU(), nn.Conv2d(cout, cout, 3), nn.ReLU()
        )


class UNet(nn.Cell):
    """Skips over a bottleneck, joined by channels."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.bottom = DoubleConv(1, 4), DoubleConv(4, 8), DoubleConv(8, 8)
        self.pool = nn.MaxPool2d(2, 2)
        self.up2, self.up1 = nn.Conv2dTranspose(8, 8, 2, 2), nn.Conv2dTranspose(8, 4, 2, 2)
        self.right2, self.right1, self.out = DoubleConv(16, 8), DoubleConv(8, 4), nn.Conv2d(4, 1, 1)
        self.loss = nn.BCEWithLogitsLoss()

    def construct(self, x, y):
        a = self.down1(x)
        b = self.down2(self.pool(a))
        c = self.up2(self.bottom(self.pool(b)))
        c = self.right2(ops.cat((b, c), axis=1))
        c = self.right1(ops.concat((a, self.up1(c)), 1))
        return self.loss(self.out(c), ops.cast(x > 0, ms.float32) * y.reshape(-1, 1, 1, 1))


class CrossAttention(nn.Cell):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, (dim // heads) ** -0.5
        self.to_q, self.to_kv = nn.Dense(dim, dim, has_bias=False), nn.Dense(dim, 2 * dim, has_bias=False)
        self.proj, self.softmax = nn.Dense(dim, dim), nn.Softmax(-1)

    def construct(self, x, context=None, mask=None):
        context = x if context is None else context
        b, n, d = x.shape
        q = self.to_q(x).reshape(b, n, self.heads, -1).swapaxes(1, 2)
        k, v = self.to_kv(context).chunk(2, axis=-1)
        k = k.reshape(b, -1, self.heads, d // self.heads).swapaxes(1, 2)
        v = v.reshape(b, -1, self.heads, d // self.heads).swapaxes(1, 2)
        scores = ops.BatchMatMul(transpose_b=True)(q, k) * self.scale
        if mask is not None:
            scores = ops.masked_fill(scores, mask, -1e9)
        out = ops.BatchMatMul()(self.softmax(scores), v)
        return self.proj(out.swapaxes(1, 2).reshape(b, n, d))


class DecoderBlock(nn.Cell):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.ln1, self.ln2, self.ln3 = (nn.LayerNorm((dim,)) for _ in range(3))
        self.self_attn, self.cross_attn = CrossAttention(dim, 2), CrossAttention(dim, 2)
        self.ff = nn.SequentialCell([nn.Dense(dim, 2 * dim, activation="relu"), nn.Dense(2 * dim, dim)])

    def construct(self, x, memory, mask):
        x = x + self.self_attn(self.ln1(x), mask=mask)
        x = x + self.cross_attn(self.ln2(x), context=memory)
        return x + self.ff(self.ln3(x))


class Translator(nn.Cell):
    """A decoder with cross attention on what an encoder gives."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, D)
        self.position = Parameter(initializer(Normal(0.02), (1, 8, D)), name="position")
        self.encoder = CrossAttention(D, 2)
        self.blocks = nn.CellList([DecoderBlock(D) for _ in range(2)])
        self.head = nn.Dense(D, VOCAB)
        self.mask = Tensor(np.triu(np.ones((8, 8)), 1).astype(bool))

    def construct(self, ids, labels):
        memory = self.encoder(self.embed(ids) + self.position)
        x = self.embed(labels) + self.position
        for block in self.blocks:
            x = block(x, memory, self.mask)
        return ops.cross_entropy(self.head(x).reshape(-1, VOCAB), ids.reshape(-1))


class SeqToSeq(nn.Cell):
    """An LSTM's states begin a decoder that is fed with its own outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, D)
        self.encoder = nn.LSTM(D, D, batch_first=True)
        self.decoder, self.attend, self.head = nn.LSTMCell(D, D), nn.Dense(2 * D, D), nn.Dense(D, VOCAB)

    def construct(self, ids, labels):
        states, (h, c) = self.encoder(self.embed(ids))
        h, c = h[0], c[0]
        x = self.embed(labels[:, 0])
        loss = 0.0
        for at in range(1, 4):
            h, c = self.decoder(x, (h, c))
            weights = ops.softmax((states * h.expand_dims(1)).sum(-1), axis=-1)
            seen = (weights.expand_dims(-1) * states).sum(1)
            x = ops.tanh(self.attend(ops.cat((h, seen), -1)))
            loss = loss + ops.cross_entropy(self.head(x), labels[:, at])
        return loss / 3


class Gan(nn.Cell):
    """Both losses of a GAN; the discriminator judges three times."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.SequentialCell(
            nn.Dense(D, D), nn.BatchNorm1d(D), nn.ReLU(), nn.Dense(D, D), nn.Tanh()
        )
        self.discriminator = nn.SequentialCell(nn.Dense(D, D), nn.LeakyReLU(0.2), nn.Dense(D, 1))
        self.bce = nn.BCEWithLogitsLoss()

    def construct(self, noise, real):
        fake = self.generator(noise)
        ones, zeros = ops.ones((4, 1), ms.float32), ops.zeros((4, 1), ms.float32)
        judged = self.bce(self.discriminator(real), ones)
        judged = (judged + self.bce(self.discriminator(ops.stop_gradient(fake)), zeros)) * 0.5
        return judged + self.bce(self.discriminator(fake), ones)


class Vae(nn.Cell):
    """Samples by a normal operator with a seed."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.mu, self.logvar = nn.Dense(D, D, activation="relu"), nn.Dense(D, 4), nn.Dense(D, 4)
        self.fc2, self.fc3 = nn.Dense(4, D, activation="relu"), nn.Dense(D, D)
        self.normal = ops.StandardNormal(seed=3)

    def encode(self, x):
        h = self.fc1(x)
        return self.mu(h), self.logvar(h)

    def construct(self, x, y):
        mu, logvar = self.encode(x)
        z = mu + self.normal(mu.shape) * ops.exp(0.5 * logvar)
        kld = -0.5 * ops.reduce_sum(1 + logvar - mu.pow(2) - logvar.exp())
        return ops.mse_loss(self.fc3(self.fc2(z)), y) + kld * 1e-2


class Siamese(nn.Cell):
    """One tower for both, and the contrastive loss."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = nn.SequentialCell(nn.Dense(D, D), nn.ReLU(), nn.Dense(D, 4))
        self.same = Tensor([1, 0, 1, 0], ms.float32)
        self.norm = ops.L2Normalize(axis=-1)

    def construct(self, left, right):
        a, b = self.norm(self.tower(left)), self.norm(self.tower(right))
        distance = ops.sqrt(((a - b) ** 2).sum(-1) + 1e-6)
        apart = ops.maximum(1.0 - distance, ops.zeros_like(distance))
        return (self.same * distance**2 + (1 - self.same) * apart**2).mean()


class TopTwo(nn.Cell):
    """Each row goes to its two best experts."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Dense(D, 3, has_bias=False)
        self.experts = nn.CellList(
            [nn.SequentialCell(nn.Dense(D, D), nn.SiLU(), nn.Dense(D, D)) for _ in range(3)]
        )
        self.top, self.one_hot = ops.TopK(sorted=True), nn.OneHot(depth=3)

    def construct(self, x, y):
        values, indices = self.top(ops.softmax(self.gate(x), -1), 2)
        values = values / values.sum(-1, keepdims=True)
        weights = (self.one_hot(indices) * values.expand_dims(-1)).sum(1)
        total = ops.zeros_like(x)
        for i, expert in enumerate(self.experts):
            total = total + expert(x) * weights[:, i : i + 1]
        balance = (weights.mean(0) ** 2).sum() * 3
        return ops.mse_loss(total, y) + 0.01 * balance


class BasicBlock(nn.Cell):
    def __init__(self, cin: int, cout: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(cin, cout, 3, stride), nn.BatchNorm2d(cout)
        self.conv2, self.bn2 = nn.Conv2d(cout, cout, 3), nn.BatchNorm2d(cout)
        self.relu = nn.ReLU()
        self.down_sample = None
        if stride != 1 or cin != cout:
            self.down_sample = nn.SequentialCell([nn.Conv2d(cin, cout, 1, stride), nn.BatchNorm2d(cout)])

    def construct(self, x):
        identity = x
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        if self.down_sample is not None:
            identity = self.down_sample(x)
        out += identity
        return self.relu(out)


class ResNet18(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.SequentialCell(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        widths = ((4, 4, 1), (4, 4, 1), (4, 8, 2), (8, 8, 1), (8, 8, 2), (8, 8, 1), (8, 8, 2), (8, 8, 1))
        self.layers = nn.SequentialCell([BasicBlock(*one) for one in widths])
        self.fc = nn.Dense(8, 3)
        self.mean = ops.ReduceMean(keep_dims=False)

    def construct(self, x, y):
        return ops.cross_entropy(self.fc(self.mean(self.layers(self.stem(x)), (2, 3))), y)


class Scaled(nn.Cell):
    def construct(self, x, scale):
        return ops.tanh(x * scale)


class Moved(nn.Cell):
    """Changes a Parameter that it is given."""

    def construct(self, x, mean):
        ops.assign_add(mean, ops.stop_gradient(x.mean(0)))
        return x - mean


class Given(nn.Cell):
    """Parameters of the outer Cell are what the inner ones are given, one of them three times."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last, self.moved = nn.Dense(D, D), nn.Dense(D, D), Moved()
        self.one, self.other = Scaled(), Scaled()
        self.scale = Parameter(Tensor(np.linspace(0.5, 2, D), ms.float32), name="scale")
        self.mean = Parameter(Tensor(np.zeros(D), ms.float32), name="mean", requires_grad=False)

    def construct(self, x, y):
        x = self.moved(self.first(x), self.mean)
        x = self.one(x, self.scale) + self.other(x, scale=self.scale * 0.5) * self.other(x, self.scale)
        return ops.mse_loss(self.last(x), y)


class Added(nn.Cell):
    """Adds to what Cells gave, in place and more than once, before and after Cells read it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Dense(D, D), nn.BatchNorm1d(D), nn.Dense(D, D)
        self.relu, self.tanh = nn.ReLU(), nn.Tanh()

    def construct(self, x, y):
        out = self.norm(self.first(x))
        out += x
        before = self.relu(out)
        out += 1.0
        return ops.mse_loss(self.last(before + self.tanh(out)), y)


class Shifted(nn.Cell):
    def construct(self, x, shift):
        return ops.tanh(x + shift)


class Shaped(nn.Cell):
    """Gives Cells a Parameter in another shape, which the step itself updates, and what writes to another one gave."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Dense(D, D), nn.Dense(D, D)
        self.one, self.two, self.three = Scaled(), Shifted(), Shifted()
        self.scale = Parameter(Tensor(np.linspace(0.5, 2, D), ms.float32), name="scale")
        self.seen = Parameter(Tensor(np.ones(D), ms.float32), name="seen", requires_grad=False)
        self.more = Tensor(np.linspace(0.1, 0.3, D), ms.float32)

    def construct(self, x, y):
        x = self.one(self.first(x), self.scale.reshape(1, D))
        x = self.two(x, ops.assign_add(self.seen, self.more))
        x = self.three(x, ops.assign_add(self.seen, self.more))
        return ops.mse_loss(self.last(x), y)


def _images(rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    x = rng.normal(size=(4, 1, 8, 8)).astype(np.float32)
    return Tensor(x), Tensor(rng.integers(0, 3, 4), ms.int32)


def _tokens(rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    one, other = rng.integers(0, VOCAB, (2, 2, 8))
    return Tensor(one, ms.int32), Tensor(other, ms.int32)


STRANGERS: dict[str, Case] = {
    "convnext": (ConvNeXt, _images),
    "mobilenet": (MobileNet, _images),
    "unet": (UNet, _images),
    "translator": (Translator, _tokens),
    "seq2seq": (SeqToSeq, _tokens),
    "gan": (Gan, vectors),
    "vae": (Vae, vectors),
    "siamese": (Siamese, vectors),
    "top two": (TopTwo, vectors),
    "resnet18": (ResNet18, _images),
    "given": (Given, vectors),
    "added": (Added, vectors),
    "shaped": (Shaped, vectors),
}
