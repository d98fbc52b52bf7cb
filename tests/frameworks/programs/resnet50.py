"""ResNet-50 of torchvision, trained on random pictures. Convolutions go PyTorch's own way (unfolded, then one product): cuDNN cannot start
on the simulated GPU."""

import argparse

import torch
import torchvision

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--batch", type=int, default=4)
args = parser.parse_args()

torch.manual_seed(1)
torch.backends.cudnn.enabled = False
model = torchvision.models.resnet50().cuda().train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(args.steps):
    pictures, labels = torch.randn(args.batch, 3, 224, 224).cuda(), torch.randint(1000, (args.batch,)).cuda()
    with torch.cuda.nvtx.range(f"step batch={args.batch}"):
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(pictures), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
torch.cuda.synchronize()
print("done")
