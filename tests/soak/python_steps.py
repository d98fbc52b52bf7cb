"""Trains STEPS steps over the stand-in for torch, each of LAUNCHES launches at full speed, and rests now and then:
python3 python_steps.py LAUNCH_MANY STEPS"""

import ctypes
import sys
import time

import torch
from torch import nn

BURST = 200  # launches for one of the stand-in's
LAUNCHES = BURST * (2 * (2 + 4) + 2)
many = ctypes.CDLL(sys.argv[1]).launch_many
cuda = ctypes.CDLL("libcuda.so.1")
STEPS = int(sys.argv[2])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(16, 8), nn.Linear(8, 16)

    def forward(self, input_ids):
        return self.out(self.table(input_ids))


def launch(count=1):
    assert many(cuda.cuLaunchKernel, kernel, count * BURST) == 0


torch.start()
module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
image = b".version 8.0\n.target sm_90\n.address_size 64\n// simgpu: gemm_k ns=300\n.visible .entry gemm_k()\n{ ret; }\n"
assert cuda.cuModuleLoadData(ctypes.byref(module), image) == 0
assert cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"gemm_k") == 0
torch.launch = launch
time.sleep(0.5)  # the library's part in the interpreter begins
net = Net()
optimizer = torch.optim.SGD(net.parameters())
ids = torch.Tensor(2, 8, floating=False)
for step in range(STEPS):
    for _ in range(2):
        net(ids).backward()
    optimizer.step()
    if step % 200 == 0:
        torch.synchronize()
        time.sleep(0.1)
torch.synchronize()
print(STEPS * LAUNCHES)
