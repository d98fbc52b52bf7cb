"""A training loop whose ranges name parts of its steps, and no step: the interpreter names those around them."""

import contextlib

import torch
from sitecustomize import noted
from torch import nn

WIDTH, BATCH, STEPS = 512, 64, 30
part = torch.cuda.nvtx.range


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


model = nn.Sequential(*(Block() for _ in range(4)), nn.Linear(WIDTH, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(STEPS * BATCH, WIDTH)), BATCH)
batches = iter(data)
for step in range(STEPS):
    with noted("step"), part("batch") if step % 3 == 0 else contextlib.nullcontext():
        (x,) = next(batches)
        with part("data"):
            x = x.cuda()
        with part("forward"):
            loss = model(x).square().mean()
        with part("backward"):
            loss.backward()
        with part("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
    if step % 5 == 4:
        model.eval()
        with torch.no_grad(), part("eval"):
            model(x)
        model.train()
torch.cuda.synchronize()
print("done")
