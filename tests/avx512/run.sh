#!/usr/bin/env bash
# run.sh FOLDER SECONDS PROGRAM…: runs tests one after another on a processor with AVX-512, which Bochs emulates, under
# Debian's kernel; FOLDER is for what that takes. 0 if all pass within that time.
#
# Needs bochs, bochsbios, vgabios, isolinux, syslinux-common, xorriso, cpio and busybox-static, and fetches the kernel's
# package, of which nothing is installed. An instruction takes some 20 to 40 ns, and booting about a minute.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd) limit=$2
shift 2

fetch_kernel() {
  local package
  package=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image-/ { print $2; exit }')
  rm -rf "$folder/kernel" && mkdir -p "$folder/kernel"
  (cd "$folder/kernel" && apt-get -q download "$package" && dpkg-deb -x ./*.deb . && mv boot/vmlinuz-* vmlinuz)
}

# make_image PROGRAM…: a CD that boots into init with the programs and the libraries they need.
make_image() {
  local root=$folder/root cd=$folder/cd program library
  rm -rf "$root" "$cd" && mkdir -p "$root"/{bin,tests} "$cd/isolinux"
  cp "$here/init" "$root/init"
  cp /bin/busybox "$root/bin/"
  for program in "$@"; do
    strip -o "$root/tests/$(basename "$program")" "$program"
    for library in $(ldd "$program" | grep -o '/[^ ]*'); do
      mkdir -p "$root$(dirname "$library")"
      cp -L "$library" "$root$library"
    done
  done
  (cd "$root" && find . | cpio --quiet -o -H newc) >"$cd/initrd"
  cp "$folder/kernel/vmlinuz" /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/ldlinux.c32 "$cd/"
  mv "$cd/isolinux.bin" "$cd/ldlinux.c32" "$cd/isolinux/"
  # Bochs gives the compacted area of XSAVEC a size that the kernel refuses, together with AVX.
  cat >"$cd/isolinux/isolinux.cfg" <<'TEXT'
DEFAULT heed
LABEL heed
 KERNEL /vmlinuz
 APPEND initrd=/initrd console=ttyS0 quiet panic=0 mitigations=off clearcpuid=xsavec,xsaves lsm=yama tsc=reliable random.trust_cpu=on
TEXT
  xorriso -as mkisofs -quiet -o "$folder/boot.iso" -b isolinux/isolinux.bin -c isolinux/boot.cat -no-emul-boot \
    -boot-load-size 4 -boot-info-table "$cd" 2>/dev/null
}

# start: Bochs in the background, on a terminal of its own; its debugger begins by "c".
start() {
  cat >"$folder/bochsrc" <<TEXT
cpu: model=corei7_skylake_x, ips=60000000
memory: guest=2048, host=2048
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/vgabios/vgabios.bin
ata0-master: type=cdrom, path=$folder/boot.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=$folder/serial.txt
display_library: term
clock: sync=none
sound: driver=dummy
log: $folder/bochs.log
TEXT
  echo c >"$folder/commands"
  : >"$folder/serial.txt"
  TERM=xterm setsid script -qec "exec bochs-bin -q -unlock -rc $folder/commands -f $folder/bochsrc" /dev/null \
    >"$folder/terminal.txt" 2>&1 </dev/null &
  emulator=$!
  trap 'kill -9 -- "-$emulator" 2>/dev/null || true' EXIT
}

said() { grep -aq "^heed: $1" "$folder/serial.txt"; }

[[ -e $folder/kernel/vmlinuz ]] || fetch_kernel >"$folder/kernel.log" 2>&1 || {
  cat "$folder/kernel.log" >&2
  exit 1
}
make_image "$@"
start
until said "done" || ((SECONDS > limit)) || ! kill -0 "$emulator" 2>/dev/null; do sleep 1; done
tr -d '\r' <"$folder/serial.txt" | sed -n '/^heed: a processor/,$p'
said "a processor with AVX-512" && said "done" && (($(grep -ac '^heed: .* ended with 0' "$folder/serial.txt") == $#))
