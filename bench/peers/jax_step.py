"""One training step of the tutorial's seq2seq Transformer in JAX, jitted whole: the same work as bench/step, from its
weights.

Prints a JSON object with the loss before the first step and without dropout, then the milliseconds of each step asked
for on standard input ("run N" lines), so that a driver can interleave it with other programs.
"""
import argparse
import os
from functools import partial

import peer

parser = argparse.ArgumentParser()
peer.add_integers(parser, dict(peer.MODEL, threads=2, batch=32, source=12, target=21))
parser.add_argument("--dropout", type=float, default=0.1)
parser.add_argument("--dtype", choices=["f32"], default="f32")
parser.add_argument("--weights", required=True, help="the first weights, written by bench/step")
c = parser.parse_args()
# XLA takes as many threads as the process may use.
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:c.threads])

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

PAD = 0
RATE, BETA1, BETA2, EPS, CLIP = 1e-4, 0.9, 0.999, 1e-8, 1.0
jax.config.update("jax_default_prng_impl", "unsafe_rbg")  # the fastest on a CPU


class Keys:
    """One key for each dropout of a step; none without dropout."""

    def __init__(self, key):
        self.key, self.used = key, 0

    def drop(self, x):
        if self.key is None or c.dropout == 0:
            return x
        self.used += 1
        kept = jax.random.bernoulli(jax.random.fold_in(self.key, self.used), 1 - c.dropout, x.shape)
        return jnp.where(kept, x / (1 - c.dropout), 0)


def linear(w, name, x):
    return x @ w[name + ".weight"].T + w[name + ".bias"]


def layer_norm(w, name, x):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w[name + ".weight"] + w[name + ".bias"]


def attention(w, name, keys, x, memory=None, causal=False):
    weight, bias = w[name + ".in_proj_weight"], w[name + ".in_proj_bias"]
    d = x.shape[-1]
    if memory is None:
        q, k, v = jnp.split(x @ weight.T + bias, 3, -1)
    else:
        q = x @ weight[:d].T + bias[:d]
        k, v = jnp.split(memory @ weight[d:].T + bias[d:], 2, -1)
    q, k, v = (t.reshape(*t.shape[:2], c.heads, -1) for t in (q, k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (d // c.heads) ** -0.5
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
    y = jnp.einsum("bhqk,bkhd->bqhd", keys.drop(jax.nn.softmax(scores)), v)
    return linear(w, name + ".out_proj", y.reshape(x.shape))


def layer(w, name, keys, x, memory=None):
    decoder = memory is not None
    x = layer_norm(w, name + ".norm1", x + keys.drop(attention(w, name + ".self_attn", keys, x, causal=decoder)))
    if decoder:
        y = attention(w, name + ".multihead_attn", keys, x, memory)
        x = layer_norm(w, name + ".norm2", x + keys.drop(y))
    hidden = keys.drop(jax.nn.relu(linear(w, name + ".linear1", x)))
    return layer_norm(w, name + (".norm3" if decoder else ".norm2"), x + keys.drop(linear(w, name + ".linear2", hidden)))


def loss_of(w, batch, key):
    source, target, labels = batch
    keys = Keys(key)
    embed = lambda name, ids: keys.drop(w[name][ids] * c.d_model**0.5 + peer.positions(ids.shape[1], c.d_model))
    x = embed("src_embedding.weight", source)
    for i in range(c.encoder_layers):
        x = layer(w, f"encoder.layers.{i}", keys, x)
    y = embed("tgt_embedding.weight", target)
    for i in range(c.decoder_layers):
        y = layer(w, f"decoder.layers.{i}", keys, y, x)
    chosen = jnp.take_along_axis(jax.nn.log_softmax(linear(w, "generator", y)), labels[..., None], -1)[..., 0]
    counted = labels != PAD
    return -jnp.where(counted, chosen, 0).sum() / counted.sum()


@partial(jax.jit, donate_argnums=(0,))
def step(state, batch):
    """Forward, backward, clipping by the norm of all gradients, Adam."""
    w, first, second, count, key = state
    key, used = jax.random.split(key)
    loss, gradients = jax.value_and_grad(loss_of)(w, batch, used)
    norm = jnp.sqrt(sum((g * g).sum() for g in gradients.values()))
    scale = jnp.minimum(1.0, CLIP / (norm + 1e-6))
    count += 1
    correction1, correction2 = 1 - BETA1**count, 1 - BETA2**count
    for name, g in gradients.items():
        g = g * scale
        first[name] = BETA1 * first[name] + (1 - BETA1) * g
        second[name] = BETA2 * second[name] + (1 - BETA2) * g * g
        w[name] -= RATE / correction1 * first[name] / (jnp.sqrt(second[name] / correction2) + EPS)
    return (w, first, second, count, key), loss


def main():
    w = {name: jnp.asarray(value) for name, value in peer.load_f32(c.weights).items()}
    batch = tuple(jnp.asarray(peer.ids(c.batch, length, c.vocab, seed))
                  for seed, length in enumerate((c.source, c.target, c.target), 1))
    loss = float(jax.jit(loss_of)(w, batch, None))
    parameters = sum(value.size for value in w.values())
    zeros = lambda: {name: jnp.zeros_like(value) for name, value in w.items()}
    state = (w, zeros(), zeros(), jnp.zeros((), jnp.int32), jax.random.key(1))
    for _ in range(8):
        state, _ = step(state, batch)
    jax.block_until_ready(state)

    def one_step():
        nonlocal state
        state, loss = step(state, batch)
        float(loss)

    peer.take_turns(dict(name=f"JAX {jax.__version__} jit", parameters=parameters, loss=loss), one_step)


if __name__ == "__main__":
    main()
