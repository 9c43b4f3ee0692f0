#include <algorithm>
#include <link.h>

#include <heed/kernels/simt/host/machine.h>
#include <heed/kernels/simt/race/shadow.h>

namespace heed::emulator {
Shadow::Shadow() : shared_(kMaxBlocks * kArenaBytes), piece_(kMaxBlocks * kArenaBytes, 0) {}

Region& Shadow::add_region(unsigned char* start, size_t bytes, bool device_only) {
  return regions_.insert_or_assign(start, Region{start, bytes, device_only, Cells(bytes)}).first->second;
}

Region* Shadow::region_near(const unsigned char* address) {
  if (last_ != nullptr && static_cast<size_t>(address - last_->start) < last_->bytes) return last_;
  const auto after = regions_.upper_bound(address);
  Region* near = nullptr;
  if (after != regions_.end() && static_cast<size_t>(after->first - address) <= kGuard) near = &after->second;
  if (after != regions_.begin()) {
    Region& before = std::prev(after)->second;
    const size_t offset = static_cast<size_t>(address - before.start);
    if (offset < before.bytes || (offset < before.bytes + kGuard && near == nullptr)) near = &before;
    // Between two allocations, the nearer one.
    else if (near != nullptr && offset - before.bytes <= static_cast<size_t>(near->start - address))
      near = &before;
  }
  if (near != nullptr) last_ = near;
  return near;
}

void Shadow::clear_pieces() {
  for (const auto& [offset, bytes] : pieces_)
    std::fill_n(piece_.begin() + static_cast<std::ptrdiff_t>(offset), bytes, 0);
  pieces_.clear();
}

void Shadow::add_piece(size_t offset, size_t bytes) {
  std::fill_n(piece_.begin() + static_cast<std::ptrdiff_t>(offset), bytes, 1);
  pieces_.emplace_back(offset, bytes);
}

bool Shadow::inside(const Ranges& ranges, const void* address) {
  const char* p = static_cast<const char*>(address);
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const auto& range) { return p >= range.first && p < range.second; });
}

void Shadow::set_program(const void* kernel) {
  if (inside(readable_, kernel)) return;
  program_ = kernel;
  writable_.clear();
  readable_.clear();
  variables_.clear();
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* self) {
        Shadow& shadow = *static_cast<Shadow*>(self);
        Ranges writable, readable;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& header = info->dlpi_phdr[i];
          if (header.p_type != PT_LOAD) continue;
          const char* start = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
          (header.p_flags & PF_W ? writable : readable).emplace_back(start, start + header.p_memsz);
        }
        if (!inside(readable, shadow.program_)) return 0;
        shadow.writable_ = writable;
        shadow.readable_ = readable;
        return 1;
      },
      this);
}

}  // namespace heed::emulator
