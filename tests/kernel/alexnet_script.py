"""Trains a small AlexNet for two steps under MindSpore's own kernel dump (run by test_mindspore_read.py).

Usage: alexnet_script.py FOLDER JIT_LEVEL, also under msrun. Leaves FOLDER/dump, and in FOLDER/truth<rank>.npz the
network's own values.
"""

import contextlib
import json
import os
import sys

out = os.path.abspath(sys.argv[1])
settings = {
    "common_dump_settings": {
        "dump_mode": 0,
        "path": out + "/dump",
        "net_name": "AlexNet",
        "iteration": "all",
        "saved_data": "tensor",
        "input_output": 0,
        "kernels": [],
        "support_device": [0, 1],
    },
    "e2e_dump_settings": {"enable": True, "trans_flag": True},
}
path = f"{out}/settings{os.getpid()}.json"
with open(path, "w") as file:
    json.dump(settings, file)
os.environ["MINDSPORE_DUMP_CONFIG"] = path

import mindspore as ms  # noqa: E402
import numpy as np  # noqa: E402
from mindspore import Tensor, nn  # noqa: E402

with contextlib.suppress(SystemError):  # the first use of numpy in MindSpore 2.10 on CPU fails once
    Tensor(np.ones((2, 2), np.float32)).reshape(4, 1)
rank = 0
if "MS_WORKER_NUM" in os.environ:
    from mindspore import communication

    communication.init()
    rank = communication.get_rank()
ms.set_context(jit_config={"jit_level": sys.argv[2]})


class AlexNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 5, stride=2, pad_mode="same")
        self.conv2 = nn.Conv2d(4, 6, 3, pad_mode="same", has_bias=True)
        self.relu = nn.ReLU()
        self.max_pool2d = nn.MaxPool2d(kernel_size=3, stride=2)
        self.flatten = nn.Flatten()
        self.fc1 = nn.Dense(6 * 3 * 3, 16)
        self.fc2 = nn.Dense(16, 10)

    def construct(self, x):
        x = self.conv1(x)  # line: conv1
        x = self.relu(x)  # line: relu1
        x = self.max_pool2d(x)  # line: pool1
        x = self.conv2(x)  # line: conv2
        x = self.relu(x)  # line: relu2
        x = self.max_pool2d(x)  # line: pool2
        x = self.flatten(x)  # line: flatten
        x = self.fc1(x)  # line: fc1
        x = self.relu(x)  # line: relu3
        x = self.fc2(x)  # line: fc2
        return x


ms.set_seed(1 + rank)
net = AlexNet()
rng = np.random.default_rng(0)
images = rng.normal(size=(2, 3, 32, 32)).astype(np.float32)
labels = np.array([1, 2], np.int32)
truth = {"images": images, "labels": labels}


def remember(step):
    for parameter in net.get_parameters():
        truth[f"{step}.{parameter.name}"] = parameter.asnumpy().copy()


# The network's own intermediate values, call by call, in PyNative mode with the weights before the first step.
ms.set_context(mode=ms.PYNATIVE_MODE)
seen = []


def hook(cell, inputs, output):
    seen.append(output.asnumpy())


handles = [cell.register_forward_hook(hook) for _, cell in net.cells_and_names() if cell is not net]
net(Tensor(images))
names = ["conv1", "relu1", "pool1", "conv2", "relu2", "pool2", "flatten", "fc1", "relu3", "fc2"]
assert len(seen) == len(names), len(seen)
truth.update({f"out.{name}": value for name, value in zip(names, seen, strict=True)})
for handle in handles:
    handle.remove()

ms.set_context(mode=ms.GRAPH_MODE)
loss = nn.WithLossCell(net, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"))
step = nn.TrainOneStepCell(loss, nn.SGD(net.trainable_params(), 0.1))
step.set_train()
for number in range(2):
    remember(f"before{number}")
    truth[f"loss{number}"] = step(Tensor(images), Tensor(labels)).asnumpy()
remember("before2")
np.savez(f"{out}/truth{rank}.npz", **truth)
