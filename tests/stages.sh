# The stages of `./heed test`, with the functions of heed, which reads this file.

# stage NAME COMMAND…: announces it, runs it, says how long it took; a failure ends everything.
stage() {
  local name=$1 start=$SECONDS
  shift
  printf '== %s\n' "$name"
  "$@" || die "$name failed after $((SECONDS - start)) s"
  printf '   %s: %d s\n' "$name" $((SECONDS - start))
}

check_format() { (cd "$root" && sources | xargs -P "${HEED_JOBS:-$(nproc)}" -n 50 clang-format-14 --dry-run -Werror); }

# Doxygen's warnings about the public headers are errors.
check_reference() { (cd "$root" && mkdir -p "$build" && logged "$build/log/doxygen.log" doxygen docs/Doxyfile); }

# clang-tidy by .clang-tidy: all sources of the libraries and programs, but not those of CUDA kernels, the emulator and
# tests (tests/lint/clang_tidy.py says how).
check_tidy() {
  local folder=$build/tidy
  configure clang -B "$folder" -DHEED_TESTS=OFF -DHEED_UNITY=OFF -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON "$@"
  python3 "$root/tests/lint/clang_tidy.py" "$folder"
}

# Side by side, since Doxygen keeps one core busy.
check_sources() {
  local reference status=0
  check_reference &
  reference=$!
  check_tidy "$@" || status=1
  wait "$reference" || { say "error: the API reference"; status=1; }
  return "$status"
}

# build_preset PRESET [-D…]
build_preset() {
  local preset=$1
  shift
  configure "$preset" -DHEED_TESTS=ON "$@"
  compile "$build/$preset"
}

# What `./heed test` runs, and what --all adds to it at its end: the race checker, benchmarks in a small form, and reports
# again, now in Chromium and TensorBoard.
test_quick() { run_tests "$build/emulated" -LE 'slow|checked|bench'; }
test_rest() { run_tests "$build/emulated" -L 'checked|bench|report'; }

# A failed test prints its output; a passed run only its summary, since test_quick shows all.
test_sanitized() {
  HEED_ALLOCATOR=plain run_tests "$build/asan" -LE slow >"$build/log/test-asan.log" 2>&1 || {
    cat "$build/log/test-asan.log" >&2
    return 1
  }
  tail -n 8 "$build/log/test-asan.log"
}

# Distinct models on distinct threads, under the thread sanitizer.
test_threads() {
  configure tsan
  compile "$build/tsan" parallel_for_test loader_test threads_test
  run_tests "$build/tsan" -L threads
}

# test_consumer PREFIX NAME: a project that finds the heed installed in PREFIX builds and runs.
test_consumer() {
  local folder=$build/consumers/$2
  logged "$build/log/consumer-$2.log" cmake -S "$root/tests/consumers/find_package" -B "$folder" -G Ninja \
    -DCMAKE_BUILD_TYPE=Debug -DCMAKE_PREFIX_PATH="$1" || return 1
  compile "$folder"
  run_tests "$folder"
}

# cpu_seconds: the processor time of what this shell has run.
cpu_seconds() { awk -v tick="$(getconf CLK_TCK)" '{ printf "%.0f", ($16 + $17) / tick }' "/proc/$$/stat"; }

has_nvcc() {
  [[ -n $(find_nvcc) ]] || { say "no nvcc: the CUDA kernels are not compiled for a GPU, and their machine code is not read"; return 1; }
}

# All kernels, those of CUDA for every architecture and within their budgets, compile in 8 minutes on 2 cores where
# `./heed test` takes 12: in that much processor time, which depends little on what else runs. What is compiled already or in
# ccache takes none.
test_kernel_build() {
  local limit=960 tested=${HEED_TESTED:-0} before spent
  if ((tested > 720)); then limit=$((limit * tested / 720)); fi
  configure_cuda_pack -DHEED_ISA=native -DHEED_CHECKED_KERNELS=ON -DHEED_WARNINGS_AS_ERRORS=ON
  before=$(cpu_seconds)
  compile "$build/cuda-pack" heed_kernels ptx_gpu_test ptx_goldens canary
  spent=$(($(cpu_seconds) - before))
  printf '   processor time: %d s of at most %d\n' "$spent" "$limit"
  ((spent <= limit))
}

# cuobjdump_program: the toolkit's, else that of two Python wheels, fetched once.
cuobjdump_program() {
  local tools=$build/cuda-tools fresh=$build/cuda-tools.part wheel
  if command -v cuobjdump && command -v nvdisasm >/dev/null; then return; fi
  if [[ ! -d $tools ]]; then
    rm -rf "$fresh" && mkdir -p "$fresh"
    logged "$build/log/cuda-tools.log" python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$fresh" \
      nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm || return 1
    for wheel in "$fresh"/*.whl; do python3 -m zipfile -e "$wheel" "$fresh" && rm "$wheel"; done
    chmod +x "$fresh"/nvidia/cu13/bin/*
    mv "$fresh" "$tools"
  fi
  echo "$tools/nvidia/cu13/bin/cuobjdump"
}

test_machine_code() {
  local program
  program=$(cuobjdump_program) || return 1
  PATH=$(dirname "$program"):$PATH python3 "$root/tests/simt/machine_code.py" "$build/cuda-pack/kernels" --cuobjdump "$program"
}

# tensorboard_python: a Python that has TensorBoard, whose reader a test uses; nothing where it cannot be had.
tensorboard_python() {
  local venv=$build/tensorboard
  if ! "$venv/bin/python" -c 'import tensorboard' 2>/dev/null; then
    logged "$build/log/tensorboard.log" python3 -m venv "$venv" &&
      logged "$build/log/tensorboard.log" "$venv/bin/python" -m pip install --quiet tensorboard || {
      say "TensorBoard could not be installed: its test will be skipped"
      return 0
    }
  fi
  echo "$venv/bin/python"
}

# The CPU's kernels for all machines: each instruction set is tested, and instructions are counted.
test_isa() {
  configure emulated -DHEED_ISA=amx "$@"
  compile "$build/emulated" isa_tests
  run_tests "$build/emulated" -L isa
}

# Programs for all machines run with the least instruction set.
test_build() {
  logged "$build/log/build.log" "$root/heed" build || return 1
  (mkdir -p "$build/least" && cd "$build/least" && HEED_ISA=baseline "$root/heed" run explain) >/dev/null
}

# What the README shows: the program learns and decodes as it says there, and heed can be installed.
test_readme() {
  local base=$build/readme decoded
  rm -rf "$base" && mkdir -p "$base"
  configure release -DHEED_ISA=native  # as in a fresh checkout
  (cd "$base" && "$root/heed" run copy_reverse) >"$build/log/readme.log" 2>&1 || {
    tail -n 60 "$build/log/readme.log" >&2
    return 1
  }
  python3 - "$base/runs/copy_reverse/metrics.jsonl" <<'PYTHON' || return 1
import json, sys
final = json.loads(open(sys.argv[1]).read().splitlines()[-1])
print(f"   copy_reverse: {100 * final['sequence_accuracy']:.1f} % of {final['pairs']} unseen pairs")
sys.exit(final["sequence_accuracy"] < 0.995 or final["pairs"] != 1000)
PYTHON
  decoded=$(cd "$base" && "$root/heed" run copy_reverse decode --model runs/copy_reverse "3 4 5 6 7")
  [[ $decoded == "3 4 5 6 7  ->  3 4 5 6 7 7 6 5 4 3" ]] || {
    say "decoded: $decoded"
    return 1
  }
  if grep -qsw avx2 /proc/cpuinfo; then  # built for this machine alone
    decoded=$(cd "$base" && HEED_ISA=baseline "$root/heed" run copy_reverse decode --model runs/copy_reverse "3 4 5" 2>&1) || true
    [[ $decoded == *"HEED_ISA is 'baseline'; this build has nothing below avx"* ]] || {
      say "with another instruction set: $decoded"
      return 1
    }
  fi
  compile "$build/release"
  logged "$build/log/install.log" cmake --install "$build/release" --prefix "$base/prefix" || return 1
  test_consumer "$base/prefix" find_package
}

# A project with heed's sources in its tree, as shared libraries, and one that finds those where they were installed.
test_shared() {
  local base=$build/consumers
  logged "$build/log/consumer-add_subdirectory.log" cmake -S "$root/tests/consumers/add_subdirectory" \
    -B "$base/add_subdirectory" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DBUILD_SHARED_LIBS=ON \
    -DHEED_ISA=baseline -DHEED_UNITY=ON || return 1
  compile "$base/add_subdirectory"
  run_tests "$base/add_subdirectory" || return 1
  rm -rf "$base/prefix"
  logged "$build/log/install.log" cmake --install "$base/add_subdirectory" --prefix "$base/prefix" || return 1
  test_consumer "$base/prefix" find_package_shared
}

# highway_sources: a folder of Highway's sources, which Debian has no static library of: HEED_HIGHWAY_SOURCES, or fetched
# once; nothing where they cannot be had.
highway_sources() {
  local folder=$build/highway-sources
  if [[ -n ${HEED_HIGHWAY_SOURCES:-} ]]; then
    folder=$HEED_HIGHWAY_SOURCES
  elif [[ ! -d $folder ]]; then
    logged "$build/log/highway.log" timeout 60 git clone --quiet --depth 1 --branch 1.0.7 https://github.com/google/highway "$folder" || {
      say "Highway's sources could not be fetched: static programs will not be tested"
      return 0
    }
  fi
  echo "$folder"
}

# Fully static programs, as docs/building.md has them; the one with a text model is below 15 MB, stripped.
test_static() {
  local sources base=$build/consumers/static prefix=$build/consumers/static/prefix size
  sources=$(highway_sources)
  [[ -n $sources ]] || return 0
  rm -rf "$prefix"
  logged "$build/log/highway.log" cmake -S "$sources" -B "$base/highway" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DBUILD_SHARED_LIBS=OFF -DBUILD_TESTING=OFF -DHWY_ENABLE_TESTS=OFF -DHWY_ENABLE_EXAMPLES=OFF \
    -DHWY_ENABLE_CONTRIB=OFF || return 1
  compile "$base/highway"
  logged "$build/log/install.log" cmake --install "$base/highway" --prefix "$prefix" || return 1
  configure release -B "$build/static" -DCMAKE_PREFIX_PATH="$prefix" -DHEED_APPS=OFF -DHEED_ONEDNN=OFF \
    -DCMAKE_DISABLE_FIND_PACKAGE_SentencePiece=ON
  compile "$build/static"
  logged "$build/log/install.log" cmake --install "$build/static" --prefix "$prefix" || return 1
  logged "$build/log/consumer-static.log" cmake -S "$root/tests/consumers/static" -B "$base/consumer" -G Ninja \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix" || return 1
  compile "$base/consumer"
  run_tests "$base/consumer" || return 1
  strip -o "$base/pronounce" "$base/consumer/pronounce"
  size=$(stat -c %s "$base/pronounce")
  printf '   a static program with a text model: %d bytes\n' "$size"
  ((size < 15000000)) && ! readelf -l "$base/pronounce" | grep -q INTERP
}

# A project that has kernels of its own and tests them with the emulator, in its three builds.
test_emulator() {
  local folder=$build/consumers/emulator
  logged "$build/log/consumer-emulator.log" cmake -S "$root/tests/consumers/emulator" -B "$folder" -G Ninja \
    -DCMAKE_BUILD_TYPE=Debug -DHEED_UNITY=ON "$@" || return 1
  compile "$folder"
  run_tests "$folder"
}

# The same with an emulator that is installed alone.
test_installed_emulator() {
  local base=$build/consumers/emulator_build folder=$build/consumers/installed_emulator
  logged "$build/log/consumer-installed_emulator.log" cmake -S "$root" -B "$base" -G Ninja -DHEED_CUDA=OFF -DHEED_APPS=OFF \
    -DHEED_EMULATOR=ON -DHEED_UNITY=ON "$@" || return 1
  compile "$base" heed_emulator heed_emulator_address heed_emulator_race
  rm -rf "$base/prefix"
  logged "$build/log/install.log" cmake --install "$base" --component Emulator --prefix "$base/prefix" || return 1
  logged "$build/log/consumer-installed_emulator.log" cmake -S "$root/tests/consumers/installed_emulator" -B "$folder" \
    -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_PREFIX_PATH="$base/prefix" "$@" || return 1
  compile "$folder"
  run_tests "$folder"
}

# The CPU's kernels as AVX-512 runs them: all but the longest tests, which an emulated processor would take hours for.
test_avx512() {
  local names=(box_muller cross_entropy dropout embedding gemm_block layer_norm linear optimizer random residual_layer_norm
    softmax sort)
  names=("${names[@]/%/_kernel_test}")
  "$root/tests/avx512/run.sh" "$build/avx512" 1800 "${names[@]/#/$build/emulated/bin/}"
}

# Parts of --all, each alone. They are given where the CUDA headers are.
part_isa() {
  stage "kernels of all instruction sets" test_isa "$@"
  stage "programs for all machines" test_build
}
part_sources() { stage "API reference and clang-tidy" check_sources "$@"; }
part_sanitizers() {
  stage "build with clang, its sanitizers and warnings as errors" build_preset asan "$@"
  stage "tests with the sanitizers" test_sanitized
}
part_threads() { stage "threads with the thread sanitizer" test_threads; }
part_gpu() {
  stage "GPU check on the emulated device" gpu_check_emulated
  if has_nvcc; then
    stage "kernels compiled by nvcc" test_kernel_build
    stage "machine code of the kernels" test_machine_code
    stage "the pack of the GPU check" gpu_pack -DHEED_ISA=native
  fi
}
part_uses() {
  stage "what the README shows" test_readme
  stage "shared libraries in other projects" test_shared
  stage "static programs" test_static
  stage "the emulator in another project" test_emulator "$@"
  stage "the emulator installed" test_installed_emulator "$@"
}
part_trainings() { stage "whole trainings" run_tests "$build/emulated" -L slow; }

# The parts, with how long each takes where `./heed test` takes 100 s, and how long what is done after them.
all_parts=(isa:45 sources:25 sanitizers:110 threads:15 gpu:50 uses:35 trainings:30)
after_parts=20

# run_parts: all of them or, where HEED_LIMIT says how many seconds there are, those that fit by how long `./heed test` took
# (HEED_TESTED). Which comes first changes with every commit, so that each has its turn.
run_parts() {
  local limit=${HEED_LIMIT:-0} tested=${HEED_TESTED:-0} first=0 i part share left_out=()
  if ((limit > 0)); then first=$(git -C "$root" rev-list --count HEAD); fi
  for i in "${!all_parts[@]}"; do
    IFS=: read -r part share <<<"${all_parts[(i + first) % ${#all_parts[@]}]}"
    if ((limit > 0 && SECONDS + (share + after_parts) * tested / 100 > limit)); then
      left_out+=("$part")
    else
      "part_$part" "$@"
    fi
  done
  if [[ ${#left_out[@]} -gt 0 ]]; then printf '== left out, for lack of time: %s\n' "${left_out[*]}"; fi
}

command_test() {
  local mode=${1:-} cuda=()
  [[ $# -le 1 && $mode =~ ^(--kernels|--avx512|--all)?$ ]] || wrong_usage "test takes only --kernels, --avx512 or --all"
  local packages=("${run_packages[@]}" "${test_packages[@]}")
  if [[ $mode == --all ]]; then packages+=("${all_packages[@]}"); fi
  if [[ ${HEED_ONCE:-0} == 1 ]]; then packages+=(ccache); fi
  if [[ $mode == --avx512 ]]; then packages+=("${avx512_packages[@]}"); fi
  need "${packages[@]}" || exit 1
  need_figures
  local include
  include=$(cuda_include)
  cuda=(-DHEED_CUDA_INCLUDE="$include")
  if [[ $mode == --all ]]; then export HEED_WARNINGS_AS_ERRORS=1; fi
  case $mode in
    '')
      stage "build with the emulated CUDA device" build_preset emulated -DHEED_ISA=native "${cuda[@]}"
      test_quick
      return
      ;;
    --avx512)
      stage "build with the emulated CUDA device" build_preset emulated -DHEED_ISA=amx "${cuda[@]}"
      stage "kernels on an emulated processor with AVX-512" test_avx512
      return
      ;;
    --kernels)
      stage "build with the checked CUDA kernels" build_preset emulated -DHEED_ISA=native \
        -DHEED_CHECKED_KERNELS=ON -DHEED_PART_OF_ALL=OFF "${cuda[@]}"
      if has_nvcc; then
        stage "kernels compiled by nvcc" test_kernel_build
        stage "machine code of the kernels" test_machine_code
      fi
      run_tests "$build/emulated" -L checked
      return
      ;;
  esac
  stage "format" check_format
  stage "build with g++, warnings as errors" build_preset emulated -DHEED_ISA=native -DHEED_CHECKED_KERNELS=ON \
    -DHEED_BENCH=ON -DHEED_PART_OF_ALL=ON -DHEED_TENSORBOARD_PYTHON="$(tensorboard_python)" "${cuda[@]}"
  if [[ ${HEED_TESTED:-0} == 0 ]]; then stage "tests" test_quick; fi
  run_parts "${cuda[@]}"
  printf '== race checker, benchmarks, reports\n'
  test_rest
}
