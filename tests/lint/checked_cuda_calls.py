#!/usr/bin/env python3
"""Fails where kernels/cuda drops what a call of CUDA or cuBLASLt returns, or launches other than by its launch()."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CALL = re.compile(r"\b(cuda[A-Z]\w*|cublasLt[A-Z]\w*|simt::launch)\(|<<<")
LOOKED_AT = re.compile(r"\bcheck\(|\b(error|status) =|static_cast<void>\($")
# What gives texts; and where nothing may be thrown, nor is anything left to do if they fail.
FREE = re.compile(r"cudaGetError(Name|String)|cublasLtGetStatusString|cudaFree(Async|Host)?|"
                  r"cuda(Event|Graph|GraphExec)Destroy|cublasLt\w+Destroy|cudaThreadExchangeStreamCaptureMode")
PLANTED = """
void f(float* p) {
  check(cudaMalloc(&p, 4), "f");
  cudaMemsetAsync(p, 0, 4, nullptr);
  const cudaError_t error =
      cudaMemset(p, 0, 4);
  if (error == cudaSuccess) cudaFree(p);
  simt::launch(kernel, 1, 1, 0, nullptr, p);
  kernel<<<1, 1>>>(p);
}
"""


def unchecked(text):
    """(line number, call) of each call whose result nothing looks at."""
    code = re.sub(r"//[^\n]*", "", text)
    for match in CALL.finditer(code):
        name = match.group(1) or "<<<"
        start = max(code.rfind(mark, 0, match.start()) for mark in ";{}")
        before, after = code[start + 1:match.start()], code[match.start():].split(";")[0]
        if not (FREE.fullmatch(name) or LOOKED_AT.search(before) or "== cudaSuccess" in after):
            yield code.count("\n", 0, match.start()) + 1, name


def main():
    found = [name for _, name in unchecked(PLANTED)]
    if found != ["cudaMemsetAsync", "simt::launch", "<<<"]:
        print(f"of the planted calls this finds {found}")
        return 1
    files = sorted(path for path in (ROOT / "kernels" / "cuda").iterdir() if path.suffix in (".cu", ".cuh"))
    wrong = [f"{path.relative_to(ROOT)}:{line}: the result of {name} is dropped"
             for path in files for line, name in unchecked(path.read_text())]
    print("\n".join(wrong) if wrong else f"{len(files)} files look at what each call returns")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
