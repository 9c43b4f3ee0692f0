"""growth_bench on short attentions: what docs/sparse_attention.md shows of long ones."""
import json
import pathlib
import subprocess
import sys
import tempfile

with tempfile.TemporaryDirectory() as folder:
    out = pathlib.Path(folder) / "growth.json"
    subprocess.run([sys.argv[1], "--attention", "--processor-time", "--threads", "1", "--steps", "1", "--longest", "1024",
                    "--out", str(out)], check=True, stdout=subprocess.DEVNULL)
    growth = json.loads(out.read_text())

assert list(growth) == ["attention length", "window of 256", "window, 16 global", "BigBird"], list(growth)
for axis, points in growth.items():
    assert [point["value"] for point in points] == [512, 1024], (axis, points)
    short, long = (point["bytes"] for point in points)
    assert 1.5 < long / short < 2.5, f"{axis}: {short} bytes became {long} where rows doubled"
    assert all(point["least"] > 0 for point in points), axis
