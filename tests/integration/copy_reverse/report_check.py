#!/usr/bin/env python3
"""Trains a small model, once as a whole and once killed and resumed, and reads what it reports: all of it well-formed,
with the numbers of metrics.jsonl.

    report_check.py COPY_REVERSE                report.html as a file
    report_check.py COPY_REVERSE --browser      the same in headless Chromium
    report_check.py COPY_REVERSE --tensorboard  the event file, by TensorBoard's own reader

Exit code 77 where Chromium or TensorBoard is not installed.
"""
import html.parser
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time

VOID = {"meta", "link", "br", "img", "input"}
HOSTILE = "<img src=x onerror=\"document.title='run'\"><b>&amp;.tsv"  # a name that a file can have


class Page(html.parser.HTMLParser):
    """Checks that elements close in order, and keeps the scripts and attributes."""

    def __init__(self, text):
        super().__init__()
        self.open, self.attributes, self.scripts = [], [], []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        self.attributes += [name for name, _ in attributes]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> within {self.open}"
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)


def command(program, folder, out, *options):
    """A small model to be trained on a file whose name is hostile."""
    pairs = [((3 + i % 7, 3 + i % 5, 3 + i % 4), (3 + i % 4, 3 + i % 5, 3 + i % 7)) for i in range(120)]
    data = folder / HOSTILE
    data.write_text("".join(" ".join(map(str, s)) + "\t" + " ".join(map(str, t)) + "\n" for s, t in pairs))
    return [program, "train", "--data", data, "--valid", data, "--vocab", "12", "--d-model", "16", "--heads", "2",
            "--layers", "2", "--d-ff", "32", "--warmup", "1", "--threads", "1", "--out", out, *options]


QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def train(program, folder):
    """A model that has learned some of it; the folder, and its epochs."""
    out = folder / "model"
    subprocess.run(command(program, folder, out, "--epochs", "3"), check=True, **QUIET)
    return out, 3


def interrupt(program, folder):
    """The same, killed long after its last checkpoint, seven steps in; and resumed until two epochs later."""
    out = folder / "killed"
    options = ["--schedule", "constant", "--save-every"]
    run = subprocess.Popen(command(program, folder, out, "--epochs", "100000", *options, "7"), **QUIET)
    while run.poll() is None and not list(out.glob("checkpoint-*.safetensors")):
        time.sleep(0.01)
    run.kill()
    run.wait()
    checkpoints = len(list(out.glob("checkpoint-*.safetensors")))
    command_line = command(program, folder, out, "--epochs", "100000", *options, "1000000", "--resume")
    begun, run = len(metrics(out)), subprocess.Popen(command_line, **QUIET)
    while run.poll() is None and len(metrics(out)) < begun + 4:
        time.sleep(0.01)
    assert run.poll() is None, f"the resumed run ended with code {run.returncode}"
    run.kill()
    run.wait()
    assert len(list(out.glob("checkpoint-*.safetensors"))) == checkpoints
    data = report(out)
    epochs = len(metrics(out))
    # The report is written for each of the first epochs, later for each thirty-second part more of them.
    assert data["epochs"] == metrics(out)[:len(data["epochs"])]
    assert 0 < len(data["steps"]) <= 1000
    assert epochs - 1 - epochs // 32 <= len(data["epochs"]) <= epochs
    assert data["result"] is None and data["failures"] == [] and len(data["examples"]) == 5 and data["attention"]
    subprocess.run(command(program, folder, out, "--epochs", str(epochs + 2), *options, "7", "--resume"),
                   check=True, **QUIET)
    return out, epochs + 2


def metrics(out):
    file = out / "metrics.jsonl"
    lines = file.read_text().splitlines(True) if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]  # the last may be half written


def report(out):
    return json.loads(Page((out / "report.html").read_text()).scripts[0])


def check_file(out, epochs):
    text = (out / "report.html").read_text()
    page = Page(text)
    assert not {"src", "href", "onerror"} & set(page.attributes), page.attributes
    data = json.loads(page.scripts[0])
    lines = metrics(out)
    assert data["epochs"] == lines[:-1] and [line["epoch"] for line in lines[:-1]] == list(range(1, epochs + 1))
    points = [json.loads(line) for line in (out / "steps.jsonl").read_text().splitlines()]
    assert data["steps"] == [[p[key] for key in ("step", "loss", "lr", "grad_norm")] for p in points]
    assert points[-1]["step"] <= lines[-2]["step"] and all(p["steps"] <= p["step"] - before
                                                           for before, p in zip([0, *(p["step"] for p in points)], points))
    if len(points) == lines[-2]["step"]:  # each is a step; the means of epochs then are theirs
        first = [p["loss"] for p in points if p["step"] <= lines[0]["step"]]
        assert min(first) <= lines[0]["loss"] <= max(first)
    assert all(line["valid_loss"] > 0 for line in lines[:-1])
    final = {key: value for key, value in lines[-1].items() if key != "final"}
    assert data["result"] == final, (data["result"], final)
    assert HOSTILE in data["title"] and any(HOSTILE in value for _, value in data["settings"])
    assert sum(count for _, count in data["components"]) == sum(count for *_, count in data["parameters"])
    assert len(data["examples"]) == 5
    wrong = round((1 - final["sequence_accuracy"]) * final["pairs"])
    assert len(data["failures"]) == min(20, wrong) and not any(e["right"] for e in data["failures"])
    for example in data["examples"]:
        assert example["right"] == (example["finished"] and example["output"] == example["target"])
    for kind in (kind for example in data["attention"] for kind in example["kinds"]):
        assert len(kind["layers"]) == 2 and all(len(heads) == 2 for heads in kind["layers"])
        for rows in (rows for heads in kind["layers"] for rows in heads):
            assert len(rows) == len(kind["queries"])
            for row in rows:
                assert len(row) == len(kind["keys"]) and abs(sum(row) - 1) < 1e-3
    return data


# Runs after the page's own script: chooses another map, and writes down what the page then shows.
PROBE = """<script>
const seen = {}, all = selector => document.querySelectorAll(selector);
seen.title = document.title;
seen.images = all("img").length;
seen.points = all(".point").length;
seen.curves = all(".curve").length;
seen.examples = all("#examples .example").length;
seen.failures = all("#failures .example").length;
seen.settings = all("#settings tbody tr").length;
const kind = document.getElementById("choose-kind"), layer = document.getElementById("choose-layer");
kind.selectedIndex = 1;
kind.dispatchEvent(new Event("change"));
layer.selectedIndex = 1;
layer.dispatchEvent(new Event("change"));
all(".heads button")[1].click();
seen.map = document.querySelector("#map svg").getAttribute("aria-label");
seen.weights = [...all("#map .cell")].map(cell => Number(cell.getAttribute("fill-opacity")));
document.querySelector("#map .cell").dispatchEvent(new Event("click"));
seen.said = document.querySelector("#map p").textContent;
document.body.style.width = "390px";
seen.width = document.body.scrollWidth;
document.body.replaceChildren(JSON.stringify(seen));
</script></body>"""


def check_in_browser(out, data, chromium):
    text = (out / "report.html").read_text()
    (out / "probe.html").write_text(PROBE.join(text.rsplit("</body>", 1)))
    result = subprocess.run([chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--user-data-dir=" + str(out / "profile"),
                             "--dump-dom", (out / "probe.html").as_uri()], capture_output=True, text=True, timeout=120)
    body = Text(result.stdout).text
    seen = json.loads(body[body.index("{"):body.rindex("}") + 1])
    assert seen["title"] == data["title"], seen["title"]  # shown as text: nothing of it has run
    assert seen["images"] == 0
    assert seen["curves"] == 4 and seen["points"] == len(data["epochs"])  # validation has a mark for each epoch
    assert seen["examples"] == len(data["examples"]) and seen["failures"] == len(data["failures"])
    assert seen["settings"] == len(data["settings"])
    kind = data["attention"][0]["kinds"][1]
    chosen = kind["layers"][1][1]
    assert seen["map"] == f"Attention weights, {kind['name']}, layer 1, head 1", seen["map"]
    assert seen["weights"] == [weight for row in chosen for weight in row]
    assert seen["said"] == f"query {kind['queries'][0]} (row 0) on key {kind['keys'][0]} (column 0): {chosen[0][0]:.3f}"
    assert seen["width"] <= 390, f"wider than a phone: {seen['width']}"


def check_steps(out):
    """The event file has the version, an event for each epoch, and one for the result."""
    (file,) = out.glob("events.out.tfevents.*")
    data, at, steps = file.read_bytes(), 0, []
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        event, step, place = data[at + 12:at + 12 + length], 0, 10  # behind the time and the next field's key
        while True:
            step |= (event[place] & 0x7f) << 7 * (place - 10)
            place += 1
            if event[place - 1] < 0x80:
                break
        steps.append(step)
        at += 16 + length
    *epochs, _ = metrics(out)
    assert steps == [0, *(e["step"] for e in epochs), epochs[-1]["step"]], steps


def check_events(out, event_accumulator):
    events = event_accumulator.EventAccumulator(str(out))
    events.Reload()
    *epochs, final = metrics(out)
    expected = {f"train/{key}": [(e["step"], e[key]) for e in epochs]
                for key in ("loss", "lr", "grad_norm", "samples_per_second")}
    expected |= {f"valid/{key}": [(e["step"], e[f"valid_{key}"]) for e in epochs] for key in ("loss", "token_accuracy")}
    expected |= {f"test/{key}": [(epochs[-1]["step"], final[key])]
                 for key in ("loss", "token_accuracy", "sequence_accuracy")}
    assert set(events.Tags()["scalars"]) == set(expected), events.Tags()
    for tag, values in expected.items():
        read = [(scalar.step, scalar.value) for scalar in events.Scalars(tag)]
        as_f32 = [(step, struct.unpack("f", struct.pack("f", value))[0]) for step, value in values]
        assert read == as_f32, (tag, read, as_f32)


class Text(html.parser.HTMLParser):
    """The text of the body."""

    def __init__(self, page):
        super().__init__()
        self.text, self.inside = "", False
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.inside = self.inside or tag == "body"

    def handle_data(self, data):
        self.text += data if self.inside else ""


def main():
    program, browser = sys.argv[1], "--browser" in sys.argv[2:]
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser and not chromium:
        print("SKIPPED: Chromium is not installed (Debian's package is chromium)")
        sys.exit(77)
    event_accumulator = None
    if "--tensorboard" in sys.argv[2:]:
        try:
            from tensorboard.backend.event_processing import event_accumulator
        except ImportError:
            print("SKIPPED: TensorBoard is not installed (PyPI's package is tensorboard)")
            sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        for make in (train, interrupt):
            out, epochs = make(program, pathlib.Path(folder))
            data = check_file(out, epochs)
            check_steps(out)
            if browser:
                check_in_browser(out, data, chromium)
            if event_accumulator:
                check_events(out, event_accumulator)


if __name__ == "__main__":
    main()
