"""Nsight Compute on the main kernels: its figures in the results, its reports in profiles.zip."""
import collections
import csv
import glob
import pathlib
import re
import tempfile
import zipfile

from frame import FAILED, INCOMPLETE, PASSED, SKIPPED
from sanitizer import find_tool

SECONDS = 40  # for one benchmark
ARCHIVE = 12 << 20  # bytes of reports that are kept
UNABLE = re.compile(r"ERR_NVGPUCTRPERM|LibraryNotLoaded|not supported|Failed to initialize", re.I)

# Kernels by a regular expression, how many launches of them a call makes, and the files of kernels/cuda that define them.
Profile = collections.namedtuple("Profile", "program benchmark kernels launches sources")
# Compute capability 9.0 has kernels of its own for attention over long sequences.
LONG_FORWARD = ("attention/attention_flash.cu", "hopper/attention_forward.cu")
LONG_BACKWARD = ("attention/attention_flash_backward.cu", "hopper/attention_backward.cu")
NORM_FORWARD, NORM_BACKWARD = ("norm/norm.cu",), ("norm/norm_backward.cu",)
PROFILES = (
    Profile("cuda_layer_norm_bench", "layer_norm_forward/bf16/16384/1024", "forward_kernel", 1, NORM_FORWARD),
    Profile("cuda_layer_norm_bench", "layer_norm_backward/bf16/16384/1024", "backward_kernel", 1, NORM_BACKWARD),
    Profile("cuda_attention_bench", "attention_forward/bf16/4/16/4096/128/0", "(flash_)?forward_kernel", 1, LONG_FORWARD),
    Profile("cuda_attention_bench", "attention_backward/bf16/4/16/4096/128/0", "(flash_query|flash_key|key|finish)_kernel", 2,
            LONG_BACKWARD),
    Profile("cuda_attention_bench", "attention_forward/bf16/4/16/4096/64/0", "(flash_)?forward_kernel", 1, LONG_FORWARD),
    Profile("cuda_attention_bench", "attention_backward/bf16/4/16/4096/64/0", "(flash_query|flash_key|key|finish)_kernel", 2,
            LONG_BACKWARD),
    Profile("cuda_memory_bench", "cross_entropy_of_many_rows/bf16/16384/32768", "rows_kernel", 1, ("cross_entropy.cu",)),
    Profile("cuda_layer_norm_bench", "residual_layer_norm_forward/bf16/16384/1024", "forward_kernel", 1, NORM_FORWARD),
    Profile("cuda_attention_bench", "attention_forward/bf16/256/8/64/64/0", "forward_kernel", 1,
            ("attention/attention_short.cu",)),
    Profile("cuda_memory_bench", "gelu_forward/bf16/8192/4096", "vectors_kernel", 1, ("activation.cu",)),
    Profile("cuda_memory_bench", "adam/f32/16384/1024", "step_kernel", 1, ("optimizer.cu",)),
    Profile("cuda_memory_bench", "embedding_backward/bf16/32768/1024", "sum_kernel", 1, ("indexing/sorted_rows.cu",)),
)
SHOWN = ("Duration", "DRAM Throughput", "Compute (SM) Throughput", "Achieved Occupancy", "Registers Per Thread")


def find_profiler():
    newest = sorted(glob.glob("/opt/nvidia/nsight-compute/*/ncu"))
    return find_tool("ncu", "bin", "nsight-compute") or (newest[-1] if newest else None)


def figures(text):
    """[(kernel, {metric: value with its unit})] of a details page in CSV, whatever stands around it."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    kernels = {}
    if start is None:
        return []
    try:
        for row in csv.DictReader(lines[start:]):
            if row.get("Metric Name") and row.get("Kernel Name"):
                metrics = kernels.setdefault((row["ID"], row["Kernel Name"]), {})
                metrics[row["Metric Name"]] = f"{row.get('Metric Value') or ''} {row.get('Metric Unit') or ''}".strip()
    except csv.Error:
        pass  # what came before it counts
    return [(name, metrics) for (_, name), metrics in kernels.items()]


def short_name(kernel):
    """Of a demangled kernel, in whose namespaces brackets may stand too: `void heed::<unnamed>::sum_kernel<float>(int)`."""
    found = re.search(r"\w+_kernel\b", kernel)
    return found[0] if found else kernel


def keep(archive, report, name):
    """Adds a report to the archive while there is room."""
    used = archive.stat().st_size if archive.exists() else 0
    if used + report.stat().st_size <= ARCHIVE:
        with zipfile.ZipFile(archive, "a", zipfile.ZIP_DEFLATED) as file:
            file.write(report, name)


def profile_one(part, profiler, program, profile):
    """False if the profiler does not work here at all."""
    name = profile.benchmark
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "kernel.ncu-rep"
        options = ["--set", "full", "--clock-control", "none", "--kernel-name", f"regex:{profile.kernels}", "--launch-count",
                   profile.launches, "--kill", "yes", "--force-overwrite", "--export", report.with_suffix("")]
        outcome = part.run([profiler, *options, program, f"--benchmark_filter=^{name}/", "--batches=1"], SECONDS)
        if not report.exists():
            unable = UNABLE.search(outcome.output)
            status = SKIPPED if unable else INCOMPLETE if outcome.timed_out else FAILED
            part.record(name, status, f"no report ({outcome.how()}): {outcome.last_line()}")
            return not unable
        keep(part.frame.out / "profiles.zip", report, f"{name.replace('/', '_')}.ncu-rep")
        page = part.run([profiler, "--import", report, "--csv", "--page", "details"], SECONDS)
    kernels = figures(page.output)
    for kernel, metrics in kernels:
        shown = ", ".join(f"{key} {metrics[key]}" for key in SHOWN if key in metrics)
        part.record(f"{name}: {short_name(kernel)}", PASSED, shown, kernel=kernel, metrics=metrics)
    if len(kernels) < profile.launches:
        status = INCOMPLETE if outcome.timed_out or page.timed_out else FAILED
        part.record(name, status, f"its report tells of {len(kernels)} of {profile.launches} kernels ({page.how()}): "
                    f"{page.last_line()}")
    return True


def profile(pack, part):
    if pack.emulated:
        return part.record("Nsight Compute", SKIPPED, "the device is emulated")
    profiler = find_profiler()
    if profiler is None:
        return part.record("Nsight Compute", SKIPPED, "it is not installed")
    programs = {program.name: program for program in pack.programs("bench")}
    for item in PROFILES:
        if part.left() <= 0:
            part.record(item.benchmark, INCOMPLETE, "no time was left")
        elif not profile_one(part, profiler, programs[item.program], item):
            break
    return None
