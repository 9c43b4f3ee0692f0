"""Times work in PyTorch: a question in JSON a line on standard input, an answer a line on standard output.

Calls are captured in a CUDA graph, so that Python's own time is not counted; sets of buffers take turns, so that none is found
in the cache. A question with `only_prepare` compiles its work and forgets it: the compiler keeps its results in
TORCHINDUCTOR_CACHE_DIR for another process.
"""
import gc
import json
import os
import statistics
import sys
import time

try:
    import torch
    import torch_work
except ImportError as error:
    print(json.dumps(dict(name="about", error=f"PyTorch cannot be imported: {error}")), flush=True)
    sys.exit(0)

STEPS = ("training_step", "gpt_step")
BATCHES = 10


class Timer:
    def __init__(self, device):
        self.cuda = device == "cuda"

    def seconds(self, run):
        if not self.cuda:
            begin = time.perf_counter()
            run()
            return time.perf_counter() - begin
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        return 1e-3 * start.elapsed_time(end)

    def prepared(self, calls, graph):
        """Something that does all the calls at once, and how: by a graph where that works, or one after the other."""
        def one_by_one():
            for call in calls:
                call()

        for _ in range(3):  # compiles, and warms up
            one_by_one()
        if not self.cuda or not graph:
            return one_by_one, "calls"
        try:
            torch.cuda.synchronize()
            captured = torch.cuda.CUDAGraph()
            with torch.cuda.graph(captured, stream=torch.cuda.current_stream()):
                one_by_one()
            captured.replay()
            torch.cuda.synchronize()
            return captured.replay, "graph"
        except RuntimeError as error:
            print(f"not captured: {error}", file=sys.stderr, flush=True)
            torch.cuda.synchronize()
            return one_by_one, "calls"


def prepare(device, question):
    """How many calls are timed at once, what does them, and how."""
    variant, step = question["variant"], question["work"] in STEPS
    wrap = torch_work.wrapper(variant, step)
    l2 = torch.cuda.get_device_properties(0).L2_cache_size if device == "cuda" else 0
    sets = 1 if step else 4 * l2 // question["bytes"] + 1
    calls = [torch_work.WORK[question["work"]](device, seed, question, wrap) for seed in range(sets)]
    # The launches of a step count, but for the variants that are made of graphs.
    return (len(calls), *Timer(device).prepared(calls, not step or variant in ("graph", "compiled_graph")))


def forget(device):
    torch.compiler.reset()
    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def measure(device, question):
    count, run, how = prepare(device, question)
    if question.get("only_prepare"):
        return dict(prepared=True)
    timer = Timer(device)
    once = timer.seconds(run)
    repeats = max(1, min(200, int(2e-3 / max(once, 1e-7))))

    def batch():
        for _ in range(repeats):
            run()

    times = [timer.seconds(batch) / (repeats * count) for _ in range(BATCHES)]
    return dict(microseconds=1e6 * statistics.median(times), least=1e6 * min(times), most=1e6 * max(times), how=how)


def answer_to(device, question):
    begin = time.perf_counter()
    try:
        answer = measure(device, question)
    except Exception as error:  # an answer in any case: the other rows may work
        answer = dict(error=f"{type(error).__name__}: {error}".splitlines()[0][:300])
    try:
        forget(device)
    except Exception as error:  # the device may be lost
        answer.setdefault("error", f"{type(error).__name__}: {error}".splitlines()[0][:300])
    return dict(answer, name=question["name"], seconds=round(time.perf_counter() - begin, 1))


def main():
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda"
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what compilers print does not belong among the answers

    def say(answer):
        print(json.dumps(answer), file=answers, flush=True)

    if device == "cuda" and not torch.cuda.is_available():
        say(dict(name="about", error=f"PyTorch {torch.__version__} sees no CUDA device"))
        return
    if device == "cuda":
        # Gradients are computed in the stream of what they are of, and the default stream cannot be captured.
        torch.cuda.set_stream(torch.cuda.Stream())
    say(dict(name="about", version=f"PyTorch {torch.__version__}"))
    for line in sys.stdin:
        say(answer_to(device, json.loads(line)))


if __name__ == "__main__":
    main()
