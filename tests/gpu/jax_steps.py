"""Training steps in JAX: blocks of a transformer's shape without attention, and Adam. Prints how many steps, and FLOP of each."""

import json

import jax
import jax.numpy as jnp

BLOCKS, ROWS, WIDTH, INNER, STEPS = 6, 2048, 2048, 8192, 40


def loss(weights, x):
    for up, down in weights:
        normal = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
        x = x + jax.nn.gelu(normal.astype(jnp.bfloat16) @ up.astype(jnp.bfloat16)) @ down.astype(jnp.bfloat16)
    return (x.astype(jnp.float32) ** 2).mean()


@jax.jit
def train_step(weights, first, second, x):
    value, gradients = jax.value_and_grad(loss)(weights, x)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradients)
    weights = jax.tree.map(lambda w, m, v: w - 1e-3 * m / (jnp.sqrt(v) + 1e-8), weights, first, second)
    return weights, first, second, value


def main():
    keys = jax.random.split(jax.random.PRNGKey(0), 2 * BLOCKS)
    weights = [(jax.random.normal(keys[2 * i], (WIDTH, INNER)) / 64, jax.random.normal(keys[2 * i + 1], (INNER, WIDTH)) / 128)
               for i in range(BLOCKS)]
    first, second = jax.tree.map(jnp.zeros_like, weights), jax.tree.map(jnp.zeros_like, weights)
    x = jnp.ones((ROWS, WIDTH))
    for _ in range(STEPS):
        weights, first, second, value = train_step(weights, first, second, x)
        value.block_until_ready()
    # Forward 2mnk of each product, twice that backward; the first input needs no gradient.
    print(json.dumps({"steps": STEPS, "flop_per_step": 2 * ROWS * WIDTH * INNER * (6 * BLOCKS - 1), "jax": jax.__version__}))


if __name__ == "__main__":
    main()
