// wgmma: products by warpgroups in the background. They are computed as they are issued or at the first wait
// that needs them, whichever the schedule says; in the second case registers hold NaN until their warp's
// wait.
#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>

#include <heed/kernels/simt/host/builtins.h>
#include <heed/kernels/simt/host/machine.h>
#include <heed/kernels/simt/host/memory.h>
#include <heed/kernels/simt/host/monitor.h>
#include <heed/kernels/simt/host/ptx_hopper.h>
#include <heed/kernels/simt/host/warpgroup.h>

namespace heed::emulator {
namespace {

constexpr int kRows = 64, kInner = 16, kMaxColumns = 176, kWarpRows = 16;
constexpr unsigned kGroupWarps = 4;
constexpr uint32_t kPoison = 0x7fa5a5a5;  // a signaling NaN: arithmetic on it changes it

// The sums of a warp into whose registers products may be writing.
struct Sums {
  float* d[32];
  int columns;
  unsigned last_product;
  Location at;
  float value[kWarpRows][kMaxColumns];
};

struct Product {
  ProductOperands operands;  // those of the first thread
  const uint32_t* a[kGroupThreads];
  uint32_t a_issued[kGroupThreads][4];
  Sums* sums[kGroupWarps];
  Location at;
};

struct WarpState {
  bool fenced;
  unsigned waited;               // the last product that is over as far as this warp knows; they count from 1
  std::vector<unsigned> groups;  // committed and not waited for: the last product of each
  std::vector<std::unique_ptr<Sums>> sums;
};

struct GroupState {
  unsigned issued, computed;
  std::deque<Product> products;  // the last ones, back to the first that some warp has not waited for
  Product& product(unsigned number) { return products[products.size() - 1 - (issued - number)]; }
};

GroupState groups[kMaxThreads / kGroupThreads];
WarpState warps[kMaxWarps];
bool in_use;

// Descriptors: 16-byte units of the start in bits 0-13, of the leading offset in 16-29, of the stride in
// 32-45.
struct Descriptor {
  size_t start, leading, stride;
  unsigned base_offset, swizzle;

  explicit Descriptor(uint64_t bits)
      : start((bits & 0x3fff) << 4),
        leading((bits >> 16 & 0x3fff) << 4),
        stride((bits >> 32 & 0x3fff) << 4),
        base_offset(bits >> 49 & 7),
        swizzle(static_cast<unsigned>(bits >> 62)) {}

  // The byte of shared memory before its chunk is permuted: of (row, inner) where columns lie along the inner
  // dimension, and where rows do.
  size_t k_major(int row, int inner) const {
    return start + static_cast<size_t>(row / 8) * stride + static_cast<size_t>(row % 8 * 128 + inner * 2);
  }
  size_t mn_major(int column, int inner) const {
    return start + static_cast<size_t>(column / 64) * leading + static_cast<size_t>(inner / 8) * stride +
           static_cast<size_t>(inner % 8 * 128 + column % 64 * 2);
  }
};

float widen_bf16(uint32_t half) { return __builtin_bit_cast(float, half << 16); }

float bf16_at(size_t offset) {
  uint16_t half;
  memcpy(&half, shared_at(swizzled(offset)), sizeof half);
  return widen_bf16(half);
}

// Every 16 bytes that an operand of `count` rows (or columns) takes, in order of the matrix.
template <class F>
void for_each_chunk(const Descriptor& matrix, int count, bool mn_major, F f) {
  if (mn_major) {
    for (int inner = 0; inner < kInner; ++inner)
      for (int column = 0; column < count; column += 8) f(swizzled(matrix.mn_major(column, inner)));
  } else {
    for (int row = 0; row < count; ++row)
      for (int inner = 0; inner < kInner; inner += 8) f(swizzled(matrix.k_major(row, inner)));
  }
}

void check_descriptor(uint64_t bits, const char* which, int count, bool mn_major, Location at) {
  const Descriptor matrix(bits);
  const auto refuse = [&](const std::string& what) {
    fail(std::string("wgmma: the descriptor of ") + which + " " + what, at);
  };
  if (matrix.swizzle != 1 || matrix.base_offset != 0)
    refuse("is not one of matrix_descriptor()'s: 128-byte swizzle, base offset 0");
  const size_t past = matrix.start % 1024, most = mn_major ? 0 : 128 - kInner * 2;
  if (past > most)
    refuse("starts " + std::to_string(past) +
           " bytes past a multiple of 1024, where the permuted chunks repeat" +
           (mn_major ? "" : "; 16 columns begin at most 96 bytes past it"));
  if (matrix.stride % 1024 != 0) refuse("has a stride of " + std::to_string(matrix.stride) + " bytes");
  if (mn_major && count > 64 && (matrix.leading == 0 || matrix.leading % 1024 != 0))
    refuse("has its second 64 columns " + std::to_string(matrix.leading) +
           " bytes on, expected a multiple of 1024 (matrix_descriptor's `next`)");
  for_each_chunk(matrix, count, mn_major, [&](size_t offset) {
    if (offset + 16 > kArenaBytes || !in_piece_of_shared_memory(shared_at(offset), 16))
      refuse("leads to byte " + std::to_string(offset) + ", which is no shared memory of the block");
  });
}

// Element (row, column) of a warp's 16 rows: whose it is, and which of its registers.
unsigned lane_of(int row, int column) { return static_cast<unsigned>(row % 8 * 4 + column % 8 / 2); }
int register_of(int row, int column) { return column / 8 * 4 + row / 8 * 2 + column % 2; }

template <class F>
void for_each_sum(Sums& sums, F f) {
  for (int row = 0; row < kWarpRows; ++row)
    for (int column = 0; column < sums.columns; ++column) {
      const unsigned lane = lane_of(row, column);
      f(sums.d[lane][register_of(row, column)], sums.value[row][column], lane);
    }
}

// What registers hold while a product may be writing to them.
float shown(float value) {
  return config().async == Async::eager ? value : __builtin_bit_cast(float, kPoison);
}

// The sums in the registers of that warp, taken over when the first product into them is issued.
Sums& sums_of(WarpState& warp, ProductOperands* const* operands, Location at) {
  const int columns = operands[0]->columns;
  for (const auto& sums : warp.sums) {
    if (sums->d[0] != operands[0]->d) continue;
    if (sums->columns != columns) fail("wgmma: products of different shapes into the same registers", at);
    return *sums;
  }
  warp.sums.push_back(std::make_unique<Sums>());
  Sums& sums = *warp.sums.back();
  sums.columns = columns;
  for (int lane = 0; lane < 32; ++lane) sums.d[lane] = operands[lane]->d;
  for_each_sum(sums, [](float& in_register, float& value, unsigned) {
    value = in_register;
    in_register = shown(value);
  });
  return sums;
}

void give_back(Sums& sums, unsigned warp) {
  for_each_sum(sums, [&](float& in_register, float& value, unsigned lane) {
    const float expected = shown(value);
    if (memcmp(&in_register, &expected, sizeof expected) != 0)
      fail("wgmma: thread " + std::to_string(warp * 32 + lane) +
               " wrote to its sums before the wgmma_wait() for them",
           sums.at);
    in_register = value;
  });
}

void take_a(const Product& product, float (&a)[kRows][kInner]) {
  if (product.operands.a_registers == nullptr) {
    const Descriptor matrix(product.operands.a);
    const bool rows_inside = product.operands.a_rows_inside;
    for (int row = 0; row < kRows; ++row)
      for (int k = 0; k < kInner; ++k)
        a[row][k] = bf16_at(rows_inside ? matrix.mn_major(row, k) : matrix.k_major(row, k));
    return;
  }
  for (unsigned thread = 0; thread < kGroupThreads; ++thread) {
    const unsigned row = thread / 32 * kWarpRows + thread % 32 / 4, k = thread % 4 * 2;
    for (unsigned i = 0; i < 4; ++i) {
      const uint32_t pair = product.a_issued[thread][i];
      a[row + i % 2 * 8][k + i / 2 * 8] = widen_bf16(pair & 0xffff);
      a[row + i % 2 * 8][k + i / 2 * 8 + 1] = widen_bf16(pair >> 16);
    }
  }
}

void compute(const Product& product) {
  const ProductOperands& o = product.operands;
  const Descriptor matrix(o.b);
  float a[kRows][kInner], b[kInner][kMaxColumns];
  take_a(product, a);
  for (int k = 0; k < kInner; ++k)
    for (int n = 0; n < o.columns; ++n)
      b[k][n] = bf16_at(o.b_rows_inside ? matrix.mn_major(n, k) : matrix.k_major(n, k));
  for (int row = 0; row < kRows; ++row) {
    float* const sums = product.sums[row / kWarpRows]->value[row % kWarpRows];
    if (!o.accumulate) std::fill_n(sums, o.columns, 0.0f);
    for (int k = 0; k < kInner; ++k)
      for (int n = 0; n < o.columns; ++n) sums[n] += a[row][k] * b[k][n];
  }
}

void compute_until(GroupState& group, unsigned product) {
  while (group.computed < product) compute(group.product(++group.computed));
}

void check_operands(unsigned group, ProductOperands* const* operands, Location at) {
  const ProductOperands& first = *operands[0];
  for (unsigned i = 1; i < kGroupThreads; ++i) {
    const ProductOperands& o = *operands[i];
    if (o.a != first.a || o.b != first.b || o.columns != first.columns ||
        o.a_rows_inside != first.a_rows_inside || o.b_rows_inside != first.b_rows_inside ||
        o.accumulate != first.accumulate || (o.a_registers == nullptr) != (first.a_registers == nullptr))
      fail("wgmma: the operands of thread " + std::to_string(group * kGroupThreads + i) +
               " differ from those of the warpgroup's first",
           at);
  }
  for (unsigned warp = group * kGroupWarps; warp < (group + 1) * kGroupWarps; ++warp)
    if (!warps[warp].fenced)
      fail("wgmma: no wgmma_fence() by warp " + std::to_string(warp) +
               (warps[warp].waited == 0 ? " before it" : " between the last wgmma_wait() and it"),
           at);
  if (first.a_registers == nullptr) check_descriptor(first.a, "a", kRows, first.a_rows_inside, at);
  check_descriptor(first.b, "b", first.columns, first.b_rows_inside, at);
}

void note_reads(unsigned group, const ProductOperands& o, Location at) {
  const auto note = [&](size_t offset) {
    monitor->product_read(shared_at(offset), 16, group, groups[group].issued, at);
  };
  if (o.a_registers == nullptr) for_each_chunk(Descriptor(o.a), kRows, o.a_rows_inside, note);
  for_each_chunk(Descriptor(o.b), o.columns, o.b_rows_inside, note);
}

bool issue_for_group(unsigned group, void* const* all, Location at) {
  ProductOperands* operands[kGroupThreads];
  for (unsigned i = 0; i < kGroupThreads; ++i) operands[i] = static_cast<ProductOperands*>(all[i]);
  check_operands(group, operands, at);
  in_use = true;
  GroupState& state = groups[group];
  ++state.issued;
  state.products.emplace_back();
  Product& product = state.products.back();
  product.operands = *operands[0];
  product.at = at;
  for (unsigned i = 0; i < kGroupThreads; ++i) {
    product.a[i] = operands[i]->a_registers;
    if (product.a[i] != nullptr) memcpy(product.a_issued[i], product.a[i], sizeof product.a_issued[i]);
  }
  for (unsigned i = 0; i < kGroupWarps; ++i) {
    Sums& sums = sums_of(warps[group * kGroupWarps + i], operands + 32 * i, at);
    sums.last_product = state.issued;
    sums.at = at;
    product.sums[i] = &sums;
  }
  if (monitor) note_reads(group, product.operands, at);
  if (config().async == Async::eager) {
    compute_until(state, state.issued);
    for (Sums* sums : product.sums)
      for_each_sum(*sums, [](float& in_register, float& value, unsigned) { in_register = value; });
  }
  return true;
}

// By address without AddressSanitizer, since registers that went out of scope are what it looks for.
__attribute__((no_sanitize("address"))) bool same_registers(const uint32_t* now, const uint32_t* issued) {
  return now[0] == issued[0] && now[1] == issued[1] && now[2] == issued[2] && now[3] == issued[3];
}

void check_a(const Product& product, unsigned warp) {
  if (product.operands.a_registers == nullptr) return;
  for (unsigned lane = 0; lane < 32; ++lane) {
    const unsigned i = warp % kGroupWarps * 32 + lane;
    if (!same_registers(product.a[i], product.a_issued[i]))
      fail("wgmma: the registers of a of thread " + std::to_string(warp * 32 + lane) +
               " changed before the wgmma_wait() for it",
           product.at);
  }
}

// The products up to `last` are over for that warp.
void finish(unsigned warp_index, unsigned last) {
  WarpState& warp = warps[warp_index];
  GroupState& group = groups[warp_index / kGroupWarps];
  compute_until(group, last);
  for (unsigned product = warp.waited + 1; product <= last; ++product)
    check_a(group.product(product), warp_index);
  warp.waited = last;
  const auto done = std::stable_partition(warp.sums.begin(), warp.sums.end(),
                                          [&](const auto& sums) { return sums->last_product > last; });
  for (auto sums = done; sums != warp.sums.end(); ++sums) give_back(**sums, warp_index);
  warp.sums.erase(done, warp.sums.end());
  unsigned waited_by_all = last;
  for (unsigned i = warp_index / kGroupWarps * kGroupWarps, end = i + kGroupWarps; i < end; ++i)
    waited_by_all = std::min(waited_by_all, warps[i].waited);
  while (group.issued - waited_by_all < group.products.size()) group.products.pop_front();
}

struct WaitOperand {
  int groups_in_flight;
  std::initializer_list<const float*> results;
};

unsigned require_whole_warp(const char* what, uint32_t mask, Location at) {
  if (mask != ~0u) fail(std::string(what) + ": needs all 32 lanes of the warp", at);
  return machine.current->thread / 32;
}

void wait_for_warp(void* const* operands, uint32_t mask, Location at) {
  const unsigned index = require_whole_warp("wgmma_wait", mask, at);
  WarpState& warp = warps[index];
  const size_t keep = static_cast<size_t>(static_cast<WaitOperand*>(operands[0])->groups_in_flight);
  if (warp.groups.size() > keep) {
    const auto end = warp.groups.end() - static_cast<std::ptrdiff_t>(keep);
    finish(index, *(end - 1));
    warp.groups.erase(warp.groups.begin(), end);
  }
  warp.fenced = false;
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (const float* result : static_cast<WaitOperand*>(operands[lane])->results)
      for (const auto& sums : warp.sums)
        if (sums->d[lane] == result)
          fail("wgmma_wait: leaves the last product into these sums under way, issued at " + text(sums->at),
               at);
    if (monitor) monitor->products_seen(index / kGroupWarps, warp.waited, index * 32 + lane);
  }
}

void commit_for_warp(void* const*, uint32_t mask, Location at) {
  const unsigned warp = require_whole_warp("wgmma_commit", mask, at);
  warps[warp].groups.push_back(groups[warp / kGroupWarps].issued);
  in_use = true;
}

void fence_for_warp(void* const*, uint32_t mask, Location at) {
  warps[require_whole_warp("wgmma_fence", mask, at)].fenced = true;
  in_use = true;
}

}  // namespace

uint64_t matrix_descriptor(const void* tile, uint32_t next, Location at) {
  require_fiber(at);
  const uint64_t start = shared_address(tile, at);
  if (start % 16 != 0 || next % 16 != 0) fail("matrix_descriptor: misaligned, expected multiples of 16", at);
  constexpr uint64_t kEightRows = 1024, kSwizzle128 = uint64_t{1} << 62;
  return start >> 4 | uint64_t{next >> 4} << 16 | kEightRows >> 4 << 32 | kSwizzle128;
}

void issue_product(const ProductOperands& operands, Location at) {
  ProductOperands mine = operands;
  meet("wgmma", issue_for_group, &mine, at);
}

void fence_products(Location at) { warp_collective("wgmma_fence", fence_for_warp, ~0u, nullptr, at); }
void commit_products(Location at) { warp_collective("wgmma_commit", commit_for_warp, ~0u, nullptr, at); }
void wait_products(int groups_in_flight, std::initializer_list<const float*> results, Location at) {
  WaitOperand mine{groups_in_flight, results};
  warp_collective("wgmma_wait", wait_for_warp, ~0u, &mine, at);
}

void reset_products() {
  if (!in_use) return;
  in_use = false;
  for (GroupState& group : groups) group = GroupState{};
  for (WarpState& warp : warps) warp = WarpState{};
}

void check_products_waited_for() {
  for (unsigned warp = 0; in_use && warp < machine.threads / 32; ++warp)
    if (GroupState& group = groups[warp / kGroupWarps]; warps[warp].waited < group.issued)
      throw Error("emulator: threads " + std::to_string(warp * 32 % machine.block_threads) + "-" +
                  std::to_string(warp * 32 % machine.block_threads + 31) + " of block " +
                  text(machine.fibers[warp * 32].block) + " ended without wgmma_wait() for the wgmma at " +
                  text(group.product(warps[warp].waited + 1).at) + ", kernel launched at " +
                  text(machine.launch));
}

}  // namespace heed::emulator
