"""The three runs of a check, each of use by itself: their parts with their seconds."""
import benchmarks
import comparisons
import correct
import profiler
import sanitizer

# A first contact: what is wrong, and how fast it is about.
FIRST = (("device", correct.device, 10), ("goldens", correct.goldens, 12), ("tests", correct.tests, 98),
         ("benchmarks", benchmarks.first, 58))
# How fast it is, beside PyTorch.
MEASURE = (("device", correct.device, 8), ("PyTorch", comparisons.begin, 2), ("benchmarks", benchmarks.all_of_them, 80),
           ("comparisons", comparisons.compare, 125), ("benchmarks again", comparisons.again, 25))
# What NVIDIA's tools say.
INSPECT = (("device", correct.device, 10), ("sanitizer", sanitizer.sanitize, 160), ("profiles", profiler.profile, 110))

RUNS = dict(first=(FIRST, 180), measure=(MEASURE, 240), inspect=(INSPECT, 280))
ALL = "all"


def parts_of(word):
    """The parts of a run and its limit; the device is looked at once."""
    if word != ALL:
        return RUNS[word]
    parts = list(FIRST) + [part for part in (*MEASURE, *INSPECT) if part[0] != "device"]
    named = tuple(("first benchmarks" if function is benchmarks.first else name, function, seconds)
                  for name, function, seconds in parts)
    return named, sum(limit for _, limit in RUNS.values())
