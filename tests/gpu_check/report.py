"""The results of a check as text."""

WORST_FIRST = ("failed", "incomplete", "skipped", "passed")
SHOWN = 11000  # characters of the summary at the end


def header(results):
    about = results["about"]
    device = "an emulated device" if about["device"] == "emulated" else "a GPU"
    return f"heed {about['version']} on {device}: {results['status']} after {results['seconds']:.0f} s"


def step_line(step):
    return f"  {step['status']:10s} {step['name']}{'  ' + step['detail'] if step['detail'] else ''}"


def part_line(part):
    return f"{part['name']}: {part['status']} ({part['seconds']:.0f} of {part['limit']:.0f} s)"


def table(results):
    """A line for each part and each of its steps."""
    lines = [header(results)]
    for part in results["parts"]:
        lines += ["", part_line(part), *map(step_line, part["steps"])]
    return "\n".join(lines)


def summary(results, limit=SHOWN):
    """The table in at most `limit` characters: long lines are cut, and of a long part what passed is left out first."""
    def lines_of(part, width, most):
        steps = sorted(enumerate(part["steps"]), key=lambda item: (WORST_FIRST.index(item[1]["status"]), item[0]))
        kept = sorted(steps[:most])
        left_out = [f"  … {len(steps) - most} more"] if len(steps) > most else []
        return ["", part_line(part), *(step_line(step)[:width] for _, step in kept), *left_out]

    text = ""
    for width, most in ((200, 1000), (150, 60), (120, 40), (110, 20), (100, 10), (100, 3)):
        lines = [header(results)]
        for part in results["parts"]:
            lines += lines_of(part, width, most)
        text = "\n".join(lines)
        if len(text) <= limit:
            break
    return text[:limit]
