"""What the trainings in PyTorch that are timed beside heed's have in common."""
import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional as F

import peer

PAD = 0


class Attention(nn.Module):
    def __init__(self, d_model, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.in_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, memory=None, causal=False, mask=None):
        d = x.shape[-1]
        if memory is None:
            q, k, v = self.in_proj(x).chunk(3, -1)
        else:
            w, b = self.in_proj.weight, self.in_proj.bias
            q = F.linear(x, w[:d], b[:d])
            k, v = F.linear(memory, w[d:], b[d:]).chunk(2, -1)
        p = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(self.split(q), self.split(k), self.split(v), mask, p, causal)
        return self.out_proj(y.transpose(1, 2).flatten(-2))


def ids(rows, length, vocab, seed):
    return torch.tensor(peer.ids(rows, length, vocab, seed))


def parse(parser):
    """The options that all trainings share; sets threads and seed. From here on memory counts."""
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--weights", required=True, help="the first weights, written by heed's program")
    c = parser.parse_args()
    torch.set_num_threads(c.threads)
    torch.manual_seed(1)
    c.memory = peer.ResidentMemory()
    return c


def load(model, path, renamed):
    """Takes the weights that heed wrote; every one of them, and no other is there."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
    from heed_torch import load_safetensors

    state = dict(model.named_buffers())
    for name, value in load_safetensors(path).items():
        for old, new in {**renamed, "in_proj_": "in_proj."}.items():
            name = name.replace(old, new)
        state[name] = value
    model.load_state_dict(state)


class Training:
    """Forward, loss, backward, clipping and the optimizer's step."""

    def __init__(self, c, model, optimizer):
        self.c, self.model, self.optimizer = c, model, optimizer
        self.forward = torch.compile(model) if c.compile else model

    def loss_of(self, inputs, labels):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.c.dtype == "bf16"):
            logits = self.forward(*inputs)
        return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), ignore_index=PAD)

    def step(self, inputs, labels):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss_of(inputs, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=True)
        self.optimizer.step()
        return loss.item()

    def loss_without_dropout(self, inputs, labels):
        with torch.no_grad():
            self.model.eval()
            loss = self.loss_of(inputs, labels).item()
            self.model.train()
        return loss

    def about(self):
        return dict(name="PyTorch " + torch.__version__ + (" compiled" if self.c.compile else " eager"),
                    parameters=sum(p.numel() for p in self.model.parameters()))


def take_turns(c, model, optimizer, inputs, labels, warm_up):
    """Steps on one batch, when the driver asks."""
    training = Training(c, model, optimizer)
    loss = training.loss_without_dropout(inputs, labels)
    for _ in range(warm_up):
        training.step(inputs, labels)
    about = dict(training.about(), loss=loss, peak_mebibytes=c.memory.peak())
    peer.take_turns(about, lambda: training.step(inputs, labels))
