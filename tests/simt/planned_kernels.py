"""The main CUDA kernels at the shapes of the GPU check: what they move, how they are launched, and how often a warp goes round
each of its loops, which follows from the two. Numbers of instructions are not here: they are read from the machine code."""
import collections
import heapq
import json
import math
import pathlib
import re

from sass import ALL, Loop

FOLDER = pathlib.Path(__file__).resolve().parent
PYTORCH = json.loads((FOLDER.parents[1] / "docs/performance/h200.json").read_text())["pytorch"]  # microseconds, measured
PASSES = re.findall(r"^HEED_PASSES\((\w+), (\w+), (\d+), (\d+)\)$", (FOLDER / "passes.inc").read_text(), re.M)
MULTIPROCESSORS = 132

Launch = collections.namedtuple("Launch", "object function warps plan")
# `bytes` that have to be moved; `small`: launches besides, of next to no work; `operations` that are of use; `busiest`: how
# much more the busiest multiprocessor has to do than all on average; the goal: a `share` of the copy's rate, or a `time` in
# seconds.
Kernel = collections.namedtuple("Kernel", "title bytes launches small operations busiest share time",
                                defaults=(0, 0, 1.0, None, None))

LOAD, STORE, COPY_ASYNC = r"LDG\.E\.128", r"STG\.E\.128", r"LDGSTS\.E.*128"
EXPONENTIAL = r"MUFU\.EX2"
PHILOX, PHILOX_PRODUCTS = "2daee0ad|326172a9", 20  # what decides on 8 elements


def bytes_of(kernel, elements, without=(), **sizes):
    """What a kernel moves of operands of so many elements, of 2 bytes each where `sizes` has no other."""
    found = [(int(read) + int(written)) * sizes.get(operand, 2) for name, operand, read, written in PASSES
             if name == kernel and operand not in without]
    if not found:
        raise ValueError(f"passes.inc has no {kernel}")
    return elements * sum(found)


def peer(name, variant="at its best"):
    return PYTORCH[name][variant] * 1e-6


def row_layout(threads, width, pieces, full=True):
    return f"9RowLayoutILi{threads}ELi{width}ELi{pieces}ELb{int(full)}E"


NORM_KINDS = ("layer", "rms")  # as NormKind has them
# (threads of a row, 16-byte pieces of each), by width
FORWARD_ROWS = {128: (8, 2), 1024: (32, 4), 8192: (256, 4)}
BACKWARD_ROWS = {128: (8, 2), 1024: (64, 2), 8192: (512, 2)}


def norm_instance(kind, threads, pieces):
    return f"kernelINS_8bfloat16ENS0_{row_layout(threads, 8, pieces)}EELNS_8NormKindE{NORM_KINDS.index(kind)}E"


def norm_title(kind, direction, rows, cols, residual):
    return (f"{'residual + dropout + ' if residual else ''}{'layer' if kind == 'layer' else 'RMS'} norm, {direction}, "
            f"{rows:,} x {cols:,}")


def norm_share(share, kind, cols, residual):
    return share if kind == "layer" and not residual and cols in (1024, 8192) else None


def norm_forward(kind, rows, cols, residual=False):
    threads, pieces = FORWARD_ROWS[cols]
    block = max(threads, 128)
    resident = 8 if threads < 32 else 6 if residual else None  # blocks a multiprocessor that go over many rows
    warps = (MULTIPROCESSORS * resident if resident else rows * threads // block) * block // 32
    rounds = rows * threads / 32 / warps
    parameters = 2 if kind == "layer" else 1
    needs = {LOAD: (parameters + (resident is None)) * pieces, STORE: (1 + residual) * pieces}
    if residual:
        needs[PHILOX] = PHILOX_PRODUCTS * pieces
    name = f"residual_{kind}_norm_forward/bf16/{rows}/{cols}"
    time = min(peer(name, "eager") / 2.5, peer(name, "compiled") / 1.15) if residual else None
    kernel = f"forward_{norm_instance(kind, threads, pieces)}Lb{residual:d}E"
    return Kernel(norm_title(kind, "forward", rows, cols, residual),
                  bytes_of(f"{'post_' if residual else ''}norm_forward", rows * cols),
                  [Launch("norm", kernel, warps, Loop(loops=[Loop(STORE, rounds=rounds, needs=needs)]))],
                  busiest=math.ceil(rounds) / rounds, share=norm_share(0.88, kind, cols, residual), time=time)


def norm_backward(kind, rows, cols, residual=False):
    threads, pieces = BACKWARD_ROWS[cols]
    warps = MULTIPROCESSORS * 512 // 32
    rounds = rows * threads / 32 / warps
    needs = {"LDGSTS": 2 * pieces, STORE: (1 + residual) * pieces}
    if residual:
        needs[PHILOX] = PHILOX_PRODUCTS * pieces
    kernel = f"backward_{norm_instance(kind, threads, pieces)}"
    return Kernel(norm_title(kind, "backward", rows, cols, residual),
                  bytes_of(f"{'post_' if residual else ''}norm_backward", rows * cols),
                  [Launch("norm_backward", kernel, warps, Loop(loops=[Loop("LDGSTS", rounds=rounds, needs=needs)]))],
                  small=1, busiest=math.ceil(rounds) / rounds,
                  share=norm_share(0.80, kind, cols, residual))


def cross_entropy(rows, classes):
    """512 threads copy a row to shared memory and take it three times: for the maximum, the sums, the gradient."""
    name, vectors = f"cross_entropy_of_many_rows/bf16/{rows}/{classes}", classes // (512 * 8)
    plan = Loop(loops=[Loop(COPY_ASYNC, count=vectors), Loop("FMNMX", count=8 * vectors),
                       Loop(EXPONENTIAL, count=8 * vectors, without="STG"),
                       Loop(STORE, count=vectors, needs={EXPONENTIAL: 8})])
    return Kernel(f"cross-entropy with its gradient, {rows:,} x {classes:,}",
                  bytes_of("cross_entropy", rows * classes),
                  [Launch("cross_entropy", f"rows_kernelINS_8bfloat16ENS0_{row_layout(512, 8, 0, False)}EELb0ELb1E",
                          16 * rows, plan)],
                  small=2, time=peer(name, "compiled") / 1.5)


def gelu(direction, rows, cols):
    """A thread has two vectors of 8 elements."""
    operation = f"{direction.capitalize()}Op"
    return Kernel(f"GELU, {direction}, {rows:,} x {cols:,}",
                  bytes_of(f"gelu_{direction}", rows * cols),
                  [Launch("activation", f"vectors_kernelINS1_{len(operation)}{operation}INS_8bfloat16EEELi8E",
                          rows * cols // (16 * 32), Loop(needs={STORE: 2, r"-0\.21180": 16}))])


def adam(dtype, rows, cols):
    """1,024 blocks take chunks of 4,096 elements, a thread four runs of 4 in each."""
    master = dtype == "bf16"
    runs = Loop(r"MUFU\.RSQ ", rounds=rows * cols / 4096 / 1024, loops=[Loop(r"MUFU\.RSQ ", count=16)])
    sizes = dict.fromkeys(("g", "m", "v", "master"), 4) | dict(value=2 if master else 4)
    return Kernel(f"Adam, {dtype}{' with masters' if master else ''}, {rows:,} x {cols:,}",
                  bytes_of("adam_with_master" if master else "adam", rows * cols, **sizes),
                  [Launch("optimizer", f"step_kernelI.*AdamStepE{'NS_8bfloat16E' if master else 'f'}Li4E", 1024 * 8,
                          Loop(loops=[runs]))])


def softmax(direction, rows, cols):
    return Kernel(f"softmax, {direction}, {rows:,} x {cols:,}",
                  bytes_of(f"softmax_{direction}", rows * cols),
                  [Launch("softmax", f"{direction}_kernelINS_8bfloat16ENS0_{row_layout(32, 8, 4)}E", rows,
                          Loop(needs={STORE: 4}))])


def rotary(rows, heads, width):
    """By halves, all columns turned: a thread has a vector of each half. The table is in caches."""
    elements = rows * heads * width
    return Kernel(f"rotary, {rows:,} x {heads} x {width}", bytes_of("rotary", elements),
                  [Launch("rotary", "elementwise_kernelI.*RotaryOpINS_8bfloat16EEELi8E", elements // (2 * 8 * 32),
                          Loop(needs={STORE: 2, LOAD: 10}))])


def embedding_forward(rows, cols, vocabulary):
    """A thread has four rows."""
    return Kernel(f"embedding, forward, {rows:,} x {cols:,} of {vocabulary:,}",
                  (rows + vocabulary) * cols * 2 + 8 * rows,
                  [Launch("embedding", "forward_kernelINS_8bfloat16ELi8E", rows * cols // (4 * 8 * 32),
                          Loop(loops=[Loop(STORE, rounds=1, needs={STORE: 4})]))])


def bias_gradient(rows, cols):
    """Sums of columns: 64 slices of the rows, in each 8 warps of 256 columns."""
    return Kernel(f"gradient of a bias, {rows:,} x {cols:,}", rows * cols * 2,
                  [Launch("linear", "backward_kernelINS_8bfloat16ELi8E", 64 * 8 * cols // 256,
                          Loop(loops=[Loop(LOAD, rounds=rows / (64 * 8), needs={LOAD: 1})]))], small=1)


def dropout(rows, cols):
    return Kernel(f"residual + dropout, {rows:,} x {cols:,}", 3 * rows * cols * 2,
                  [Launch("dropout", "elementwise_kernelI.*DropoutOpINS_8bfloat16EEELi8E", rows * cols // (8 * 32),
                          Loop(needs={LOAD: 2, STORE: 1, PHILOX: PHILOX_PRODUCTS}))])


# ---- attention


def mean_tiles(length, rows, step, causal, first):
    """Tiles of `step` that a stretch of `rows` sees on average: causal queries what is before them, or ("keys") keys what is
    behind."""
    stretches = math.ceil(length / rows)
    if not causal:
        return math.ceil(length / step)
    if first == "queries":
        return sum(math.ceil(min((i + 1) * rows, length) / step) for i in range(stretches)) / stretches
    return sum(math.ceil(length / step) - i * rows // step for i in range(stretches)) / stretches


Attention = collections.namedtuple("Attention", "sequences heads length width causal")


def hopper_attention(direction, a):
    """132 blocks of two warpgroups, or three, beside the one that loads."""
    forward, planes = direction == "forward", a.sequences * a.heads
    rows = 192 if forward and a.width == 64 else 128
    step = 64 if not forward else 176 if a.width == 128 and not a.causal and a.length >= 1024 else 128
    stretches = math.ceil(a.length / rows)
    tiles = mean_tiles(a.length, rows, step, a.causal, "queries" if forward else "keys")
    if forward:
        ways = [Loop("HGMMA", rounds=tiles - 1)]
        units = planes * (math.ceil(stretches / 2) if a.causal else stretches)  # a long one goes with a short one
        busiest = math.ceil(units / MULTIPROCESSORS) * MULTIPROCESSORS / units
    else:  # at width 64 a warpgroup makes every other tile's product for queries, which takes 8 instructions
        ways = [Loop("HGMMA", rounds=tiles / 2, needs={"HGMMA": count}) for count in (16, 24)] if a.width == 64 else \
            [Loop("HGMMA", rounds=tiles)]
        busiest = busiest_with_tickets(planes, stretches, lambda stretch: tiles_from(a, rows, step, stretch))
    plan = Loop(loops=[Loop("HGMMA", rounds=planes * stretches / MULTIPROCESSORS, loops=ways)])
    launch = Launch(f"hopper/attention_{direction}", f"{'forward' if forward else 'key'}_kernelILi{a.width}E" +
                    (f"Li{step}E" if forward else ""), MULTIPROCESSORS * rows // 16, plan)
    again = 0 if forward else planes * a.length * (2 * a.width * 2 + 2 * a.width * 4)  # output and its gradient; sums in f32
    return attention("Hopper", direction, a, [launch], busiest, small=0 if forward else 2, more=again)


def tiles_from(a, rows, step, stretch):
    """That a stretch of keys is seen by."""
    return math.ceil(a.length / step) - (stretch * rows // step if a.causal else 0)


def busiest_with_tickets(planes, stretches, tiles_of):
    """Blocks take the next stretch of keys, the last of a plane first, when they are done with one."""
    together = max(1, MULTIPROCESSORS // stretches)
    free, total = [0] * MULTIPROCESSORS, 0
    for first in range(0, planes, together):
        for stretch in reversed(range(stretches)):
            for _ in range(min(together, planes - first)):
                tiles = tiles_of(stretch)
                heapq.heapreplace(free, free[0] + tiles)
                total += tiles
    return max(free) * MULTIPROCESSORS / total


def flash_launch(object_, kernel, a, kept, rows, step, needs, loops=()):
    """Blocks of four warps of `rows` rows; every tile of `step` is taken for one that needs no masks."""
    tiles = mean_tiles(a.length, rows, step, a.causal, kept)
    copies = {COPY_ASYNC: 2 * step * a.width // 8 // 128}
    plan = Loop(loops=[Loop("HMMA", rounds=tiles, needs=copies | needs, loops=loops)])
    return Launch(object_, f"{kernel}ILi{a.width}ELb0E", a.sequences * a.heads * math.ceil(a.length / rows), plan)


def flash_attention(direction, a):
    step = 64 if a.width <= 64 else 32
    products = 2 * a.width // 16  # of 16 rows, the width and 16 of a tile: HMMA
    if direction == "forward":
        needs = {"HMMA": 2 * 2 * products * step // 16, EXPONENTIAL: step + 4}
        launch = flash_launch("attention_flash", "flash_forward_kernel", a, "queries", 32, step, needs)
        return attention("portable", direction, a, [launch])
    rows = 32 if a.width <= 64 else 16

    def backward(kernel, kept, times):
        block = Loop("HMMA", rounds=step / 16, needs={"HMMA": times * products * rows // 16, EXPONENTIAL: rows // 2},
                     without="STS")
        return flash_launch("attention_flash_backward", kernel, a, kept, rows, step, {}, [block])

    return attention("portable", direction, a,
                     [backward("flash_query_kernel", "queries", 3), backward("flash_key_kernel", "keys", 4)])


def short_attention(direction, a):
    """A warp has 16 queries, then keys, of a sequence that a block holds whole."""
    blocks, steps = a.length // 16, a.width // 16
    copies = Loop(COPY_ASYNC, count=steps, every=True)
    if direction == "forward":
        plan = Loop(loops=[copies], needs={"HMMA": 4 * steps * blocks, EXPONENTIAL: 8 * blocks + 2})
    else:
        pairs = Loop("HMMA", rounds=blocks, needs={"HMMA": ALL}, every=True)
        plan = Loop(loops=[copies, Loop("HMMA", rounds=1, loops=[copies, pairs])])
    return attention("short", direction, a, [Launch("attention_short", f"{len(direction) + 7}{direction}_kernelILi{a.width}E",
                                                    a.sequences * a.heads * blocks, plan)])


def attention(path, direction, a, launches, busiest=1.0, small=0, more=0):
    """Pairs that are not seen under a causal rule do not count as work. `more`: bytes beside the operands'."""
    name = f"attention_{direction}/bf16/{a.sequences}/{a.heads}/{a.length}/{a.width}/{a.causal:d}"
    planes, forward = a.sequences * a.heads, direction == "forward"
    operations = planes * a.length ** 2 * a.width * 2 * (2 if forward else 5) / (2 if a.causal else 1)
    moved = planes * a.length * ((4 if forward else 8) * a.width * 2 + 4) + more
    title = (f"{path}, {direction}, {a.sequences} x {a.heads} x {a.length:,}, width {a.width}{', causal' if a.causal else ''}")
    ahead = 1 if a.length > 128 else 1.3 if forward else 2
    time = peer(name) / ahead if (path != "portable" or a.length <= 128) and name in PYTORCH else None
    return Kernel(title, moved, launches, small=small, operations=operations, busiest=busiest, time=time)


def short_attentions():
    """Those of 128 tokens and fewer; on Hopper those of 128 are not short."""
    return [make(direction, Attention(*shape))
            for direction, of_128 in (("forward", hopper_attention), ("backward", flash_attention))
            for make, shape in ((short_attention, (1024, 8, 16, 16, False)), (short_attention, (512, 8, 32, 16, False)),
                                (short_attention, (256, 8, 64, 64, False)), (of_128, (128, 8, 128, 64, True)))]


def attentions(make):
    return [make(direction, Attention(sequences, 16, length, width, causal))
            for direction in ("forward", "backward") for sequences, length in ((4, 4096), (1, 16384))
            for width in (64, 128) for causal in (False, True)]


def memory_bound():
    return [norm_forward("layer", 16384, 1024), norm_backward("layer", 16384, 1024), norm_forward("layer", 4096, 8192),
            norm_backward("layer", 4096, 8192), norm_forward("layer", 131072, 128), norm_backward("layer", 131072, 128),
            norm_forward("layer", 16384, 1024, residual=True), norm_backward("layer", 16384, 1024, residual=True),
            norm_forward("rms", 16384, 1024), norm_backward("rms", 16384, 1024), cross_entropy(16384, 32768),
            gelu("forward", 8192, 4096), gelu("backward", 8192, 4096), adam("f32", 16384, 1024), adam("bf16", 16384, 1024),
            softmax("forward", 32768, 1024), softmax("backward", 32768, 1024), rotary(16384, 16, 64),
            embedding_forward(32768, 1024, 1000), bias_gradient(16384, 4096), dropout(16384, 1024)]


KERNELS = [*memory_bound(), *attentions(hopper_attention), *attentions(flash_attention), *short_attentions()]
