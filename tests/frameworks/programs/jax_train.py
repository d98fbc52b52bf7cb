"""A transformer of Flax trained by optax, as the guides of Flax write it, with an evaluation after every fourth step."""

import argparse

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from sitecustomize import noted

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=24)
parser.add_argument("--devices", type=int, default=1)
args = parser.parse_args()

VOCABULARY, WIDTH, HEADS, BLOCKS, BATCH, LENGTH = 1024, 512, 8, 4, 8, 256


class Block(nnx.Module):
    def __init__(self, rngs):
        self.norm, self.norm2 = nnx.LayerNorm(WIDTH, rngs=rngs), nnx.LayerNorm(WIDTH, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(HEADS, WIDTH, decode=False, rngs=rngs)
        self.up, self.down = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs), nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        x = x + self.attention(self.norm(x), mask=nnx.make_causal_mask(x[..., 0]))
        return x + self.down(nnx.gelu(self.up(self.norm2(x))))


class Model(nnx.Module):
    def __init__(self, rngs):
        self.embedding = nnx.Embed(VOCABULARY, WIDTH, rngs=rngs)
        self.blocks = nnx.List([Block(rngs) for _ in range(BLOCKS)])
        self.head = nnx.Linear(WIDTH, VOCABULARY, rngs=rngs)

    def __call__(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def loss_of(model, tokens):
    logits = model(tokens)
    return optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], tokens[:, 1:]).mean()


@nnx.jit
def train_step(model, optimizer, tokens):
    loss, gradients = nnx.value_and_grad(loss_of)(model, tokens)
    optimizer.update(model, gradients)
    return loss


@nnx.jit
def eval_step(model, tokens):
    return loss_of(model, tokens)


model = Model(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)
tokens = jnp.zeros((BATCH, LENGTH), jnp.int32)
if args.devices > 1:
    mesh = jax.make_mesh((args.devices,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    tokens = jax.device_put(tokens, jax.NamedSharding(mesh, jax.P("data")))
for step in range(args.steps):
    with noted("step"):
        train_step(model, optimizer, tokens).block_until_ready()
    if step % 4 == 3:
        with noted("eval"):
            eval_step(model, tokens).block_until_ready()
print("done")
