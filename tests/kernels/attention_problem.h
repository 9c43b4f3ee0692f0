// Attention problems for the tests: operands with odd strides and NaN around them, and plain loops over them.
#pragma once

#include <memory>

#include <heed/core/base/segments.h>
#include <heed/kernels/attention.h>

#include "error_bound.h"

namespace heed::test {

struct Lengths {
  int32_t queries, keys;
};

/// What the problem looks like; everything else is drawn from it.
struct AttentionCase {
  std::vector<Lengths> sequences;
  int64_t heads = 2, key_heads = 2, width = 16;
  Visibility visibility = {};
  bool gaps = false;                       // rows between the segments
  bool bias = false, shared_bias = false;  // shared: broadcast over sequences and heads
  bool mask = false, alibi = false;
  int32_t relative_limit = -1;  // a relative table if >= 0
  double dropout = 0;
  double logit_cap = 0;
  int64_t query_padding = 3, key_padding = 1;  // elements after each row of q, and of k and v
  bool hidden_nan = true;                      // NaN in keys that no query sees
  uint32_t blocks = 0;  // a pattern of these blocks: bit (i, j) is bit (5 i + j) % 23; 0: none
};

/// The pattern of AttentionCase::blocks.
struct BlockPatternLines {
  static constexpr int32_t kBlocks = 37;  // so that a line has two words
  std::vector<uint32_t> lines;

  static bool seen(uint32_t bits, int64_t i, int64_t j) {
    return i < kBlocks && j < kBlocks && (bits >> ((5 * i + j) % 23) & 1);
  }

  explicit BlockPatternLines(uint32_t bits) : lines(size_t{4} * kBlocks) {
    for (int32_t i = 0; i < kBlocks; ++i)
      for (int32_t j = 0; j < kBlocks; ++j) {
        if (!seen(bits, i, j)) continue;
        lines[static_cast<size_t>(2 * i + j / 32)] |= 1u << (j % 32);
        lines[static_cast<size_t>(2 * (kBlocks + j) + i / 32)] |= 1u << (i % 32);
      }
  }

  /// With the lines at `at`, here or on a device.
  static BlockPatternView view(const uint32_t* at) {
    return {.of_queries = at, .of_keys = at + 2 * kBlocks, .query_blocks = kBlocks, .key_blocks = kBlocks};
  }
};

/// What attention computes, in storage type Store; statistics in Acc.
template <class Store, class Acc>
struct AttentionResult {
  std::vector<Store> out, gq, gk, gv;
  std::vector<Acc> lse, gbias, grelative;
  double term_q = 0, term_k = 0, term_v = 0, term_bias = 0;  // the largest terms of the gradients' sums
};

template <class T>
struct AttentionProblem {
  using A = accumulator_t<T>;
  AttentionCase c;
  std::vector<int64_t> query_first, key_first;
  std::vector<int32_t> query_length, key_length;
  SegmentsView segments;
  int64_t query_rows = 0, key_rows = 0, max_query = 0, max_key = 0;
  int64_t q_stride, kv_stride;  // rows; k and v lie in one matrix
  std::vector<T> q, kv, gout, bias, relative;
  std::vector<bool> visible_to_some;  // a row a key
  std::unique_ptr<bool[]> mask;
  std::vector<float> slopes;
  int64_t bias_stride[4], mask_stride[4];
  double scale;
  Dropout dropout;
  BlockPatternLines pattern;

  explicit AttentionProblem(const AttentionCase& shape) : c(shape), pattern(shape.blocks) {
    const int64_t gap = c.gaps ? 2 : 0;
    int64_t total_query = 0, total_key = 0;
    for (const Lengths& l : c.sequences) {
      query_first.push_back(query_rows);
      key_first.push_back(key_rows);
      query_length.push_back(l.queries);
      key_length.push_back(l.keys);
      query_rows += l.queries + gap;
      key_rows += l.keys + gap;
      total_query += l.queries;
      total_key += l.keys;
      max_query = std::max<int64_t>(max_query, l.queries);
      max_key = std::max<int64_t>(max_key, l.keys);
    }
    segments = {static_cast<int64_t>(c.sequences.size()),
                query_first.data(),
                key_first.data(),
                query_length.data(),
                key_length.data(),
                static_cast<int32_t>(max_query),
                static_cast<int32_t>(max_key),
                total_query,
                total_key,
                true};
    q_stride = c.heads * c.width + c.query_padding;
    kv_stride = 2 * c.key_heads * c.width + c.key_padding;
    scale = 1 / std::sqrt(static_cast<double>(c.width));
    q = random_values<T>(query_rows * q_stride, 1, 1.5);
    kv = random_values<T>(key_rows * kv_stride, 2);
    gout = random_values<T>(query_rows * q_stride, 3);
    draw_bias();
    dropout = make_dropout(c.dropout, {99887766554433ull, nullptr, (7ull << 32) + 5});
    poison();
  }

  void draw_bias() {
    const int64_t plane = max_query * max_key, sequences = segments.count;
    if (c.shared_bias)
      std::copy_n(std::begin({int64_t{0}, int64_t{0}, max_key, int64_t{1}}), 4, bias_stride);
    else
      std::copy_n(std::begin({c.heads * plane, plane, max_key, int64_t{1}}), 4, bias_stride);
    bias = random_values<T>(c.shared_bias ? plane : sequences * c.heads * plane, 4);
    for (size_t i = 5; i < bias.size(); i += 11) bias[i] = T(-std::numeric_limits<float>::infinity());
    std::copy_n(std::begin({plane, int64_t{0}, max_key, int64_t{1}}), 4, mask_stride);
    mask = std::make_unique<bool[]>(static_cast<size_t>(sequences * plane));
    std::mt19937 engine(5);
    for (int64_t i = 0; i < sequences * plane; ++i) mask[i] = engine() % 3 != 0 && i / max_key % 5 != 3;
    for (int64_t h = 0; h < c.heads; ++h) slopes.push_back(0.5f / static_cast<float>(h + 1));
    relative = random_values<T>(c.heads * (2 * std::max(c.relative_limit, 0) + 1), 6);
  }

  bool visible(int64_t s, int64_t i, int64_t k) const {
    if (c.mask && !mask[s * mask_stride[0] + i * mask_stride[2] + k * mask_stride[3]]) return false;
    const int64_t place = c.visibility.diagonal(i, query_length[s], key_length[s]);
    if (c.blocks && (place < 0 || !BlockPatternLines::seen(c.blocks, place / 64, k / 64))) return false;
    return c.visibility.visible(i, k, query_length[s], key_length[s]);
  }

  int64_t bias_index(int64_t s, int64_t h, int64_t i, int64_t k) const {
    return s * bias_stride[0] + h * bias_stride[1] + i * bias_stride[2] + k * bias_stride[3];
  }

  /// NaN in gap rows, between the rows and perhaps in keys that no query sees.
  void poison() {
    std::vector<bool> query_row(query_rows), key_seen(key_rows);
    for (int64_t s = 0; s < segments.count; ++s) {
      for (int64_t i = 0; i < query_length[s]; ++i) {
        query_row[query_first[s] + i] = true;
        for (int64_t k = 0; k < key_length[s]; ++k) {
          if (!c.hidden_nan || visible(s, i, k)) key_seen[key_first[s] + k] = true;
        }
      }
    }
    for (int64_t r = 0; r < query_rows; ++r) {
      for (int64_t i = query_row[r] ? c.heads * c.width : 0; i < q_stride; ++i)
        q[r * q_stride + i] = gout[r * q_stride + i] = quiet_nan<T>();
    }
    for (int64_t r = 0; r < key_rows; ++r) {
      for (int64_t i = key_seen[r] ? kv_stride - c.key_padding : 0; i < kv_stride; ++i)
        kv[r * kv_stride + i] = quiet_nan<T>();
    }
  }

  /// Where the operands are: here, or copied to a device.
  struct Operands {
    const T *q, *kv, *gout, *bias, *relative;
    const bool* mask;
    const float* slopes;
    const uint32_t* pattern;
    SegmentsView segments;
  };
  Operands operands() const {
    return {q.data(),   kv.data(),     gout.data(),          bias.data(), relative.data(),
            mask.get(), slopes.data(), pattern.lines.data(), segments};
  }

  kernels::AttentionBias<T> bias_args(const Operands& at) const {
    kernels::AttentionBias<T> b{};
    if (c.bias) b.bias = at.bias;
    std::copy_n(bias_stride, 4, b.bias_stride);
    if (c.mask) b.mask = at.mask;
    std::copy_n(mask_stride, 4, b.mask_stride);
    if (c.alibi) b.alibi_slopes = at.slopes;
    if (c.relative_limit >= 0) b.relative = at.relative;
    b.relative_limit = std::max(c.relative_limit, 0);
    return b;
  }

  const T* q_row(int64_t s, int64_t i, int64_t h, const std::vector<T>& from) const {
    return from.data() + (query_first[s] + i) * q_stride + h * c.width;
  }
  int64_t key_offset(int64_t s, int64_t k, int64_t h) const {
    return (key_first[s] + k) * kv_stride + h * c.key_heads / c.heads * c.width;
  }

  /// Straightforward loops. Every matrix that a composition of plain ops would hold is rounded to Store.
  template <class Store, class Acc>
  AttentionResult<Store, Acc> plain() const {
    AttentionResult<Store, Acc> r;
    r.out.assign(q.size(), Store(0.0f));
    r.gq = r.out;
    r.gk.assign(kv.size(), Store(0.0f));
    r.gv = r.gk;
    r.lse.assign(c.heads * query_rows, -std::numeric_limits<Acc>::infinity());
    r.gbias.assign(bias.size(), Acc(0));
    r.grelative.assign(relative.size(), Acc(0));
    std::vector<Acc> gq(q.size()), gk(kv.size()), gv(kv.size());
    for (int64_t s = 0; s < segments.count; ++s) {
      for (int64_t h = 0; h < c.heads; ++h) {
        for (int64_t i = 0; i < query_length[s]; ++i) plain_query(s, h, i, r, gq, gk, gv);
      }
    }
    for (size_t i = 0; i < gq.size(); ++i) r.gq[i] = Store(gq[i]);
    for (size_t i = 0; i < gk.size(); ++i) r.gk[i] = Store(gk[i]), r.gv[i] = Store(gv[i]);
    return r;
  }

  template <class Store, class Acc>
  void plain_query(int64_t s, int64_t h, int64_t i, AttentionResult<Store, Acc>& r, std::vector<Acc>& gq,
                   std::vector<Acc>& gk, std::vector<Acc>& gv) const {
    const int64_t keys = key_length[s], width = c.width, v_offset = c.key_heads * width;
    const int64_t diagonal = c.visibility.diagonal(i, query_length[s], keys),
                  limit = std::max(c.relative_limit, 0);
    const Acc none = -std::numeric_limits<Acc>::infinity();
    const T *query = q_row(s, i, h, q), *g = q_row(s, i, h, gout);
    const int64_t row = (query_first[s] + i) * q_stride + h * width;
    const auto key_at = [&](auto& of, int64_t k) { return of.data() + key_offset(s, k, h); };
    std::vector<Acc> score(keys, none), weight(keys), kept(keys, Acc(1)), gweight(keys), slope(keys, Acc(1));
    const auto table = [&](int64_t k) {
      return h * (2 * limit + 1) + limit + std::clamp<int64_t>(k - diagonal, -limit, limit);
    };
    Acc most = none, sum = 0, delta = 0;
    for (int64_t k = 0; k < keys; ++k) {
      if (!visible(s, i, k)) continue;
      const T* const key = key_at(kv, k);
      Acc dot = 0;
      for (int64_t d = 0; d < width; ++d) dot += Acc(query[d]) * Acc(key[d]);
      dot *= Acc(scale);
      if (c.logit_cap > 0) {
        const Acc t = std::tanh(Acc(Store(dot)) / Acc(c.logit_cap));
        dot = Acc(c.logit_cap) * t;
        slope[k] = 1 - t * t;
      }
      if (c.bias) dot += Acc(bias[bias_index(s, h, i, k)]);
      if (c.alibi) dot -= Acc(slopes[h]) * Acc(std::abs(k - diagonal));
      if (c.relative_limit >= 0) dot += Acc(relative[table(k)]);
      score[k] = Acc(Store(dot));
      most = std::max(most, score[k]);
    }
    if (most == none) return;
    for (int64_t k = 0; k < keys; ++k) sum += std::exp(score[k] - most);
    r.lse[h * query_rows + query_first[s] + i] = most + std::log(sum);
    const auto plane = static_cast<uint32_t>(s * c.heads + h);
    std::vector<Acc> out(width);
    for (int64_t k = 0; k < keys; ++k) {
      weight[k] = Acc(Store(std::exp(score[k] - most) / sum));
      if (dropout.active()) {
        const auto bits = attention_dropout_bits(dropout.rng, static_cast<uint32_t>(k / 8),
                                                 static_cast<uint32_t>(i), plane);
        kept[k] = bits.bits(k % 8) >= dropout.threshold ? Acc(dropout.scale) : Acc(0);
      }
      if (weight[k] == 0) continue;
      const T* const value = key_at(kv, k) + v_offset;
      Acc* const gvalue = key_at(gv, k) + v_offset;
      const Acc stored = Acc(Store(weight[k] * kept[k]));
      for (int64_t d = 0; d < width; ++d) {
        out[d] += stored * Acc(value[d]);
        gweight[k] += Acc(g[d]) * Acc(value[d]);
        gvalue[d] += stored * Acc(g[d]);
        r.term_v = std::max(r.term_v, std::fabs(double(weight[k] * kept[k] * Acc(g[d]))));
      }
      gweight[k] = Acc(Store(Acc(Store(gweight[k])) * kept[k]));
      delta += weight[k] * gweight[k];
    }
    for (int64_t d = 0; d < width; ++d) r.out[row + d] = Store(out[d]);
    for (int64_t k = 0; k < keys; ++k) {
      if (weight[k] == 0) continue;
      const Acc gscore = Acc(Store(weight[k] * (gweight[k] - delta)));
      const double term =
          std::max(std::fabs(double(weight[k] * gweight[k])), std::fabs(double(weight[k] * delta)));
      r.term_bias = std::max(r.term_bias, term);
      if (c.bias) r.gbias[bias_index(s, h, i, k)] += gscore;
      if (c.relative_limit >= 0) r.grelative[table(k)] += gscore;
      const T* const from = key_at(kv, k);
      Acc* const gkey = key_at(gk, k);
      for (int64_t d = 0; d < width; ++d) {
        const Acc key = Acc(from[d]) * Acc(scale), own = Acc(query[d]) * Acc(scale);
        gq[row + d] += gscore * slope[k] * key;
        gkey[d] += gscore * slope[k] * own;
        r.term_q = std::max(r.term_q, term * std::fabs(double(key)));
        r.term_k = std::max(r.term_k, term * std::fabs(double(own)));
      }
    }
  }

  /// Where v begins in rows of k and v; null where there are none.
  template <class P>
  P* values_of(P* kv) const {
    return kv == nullptr ? nullptr : kv + c.key_heads * c.width;
  }

  kernels::AttentionScores<T> scores(const Operands& at) const {
    return {.q = {at.q, q_stride, c.width},
            .k = {at.kv, kv_stride, c.width},
            .segments = at.segments,
            .query_rows = query_rows,
            .key_rows = key_rows,
            .heads = c.heads,
            .key_heads = c.key_heads,
            .width = c.width,
            .scale = scale,
            .logit_cap = c.logit_cap,
            .visibility = {c.visibility, c.blocks ? BlockPatternLines::view(at.pattern) : BlockPatternView()},
            .bias = bias_args(at)};
  }

  kernels::AttentionForward<T> forward_args(const Operands& at, T* out, A* lse) const {
    return {scores(at), {values_of(at.kv), kv_stride, c.width}, dropout, {out, q_stride, c.width}, lse};
  }

  void forward(std::vector<T>& out, std::vector<A>& lse) const {
    out.assign(q.size(), quiet_nan<T>());
    lse.assign(c.heads * query_rows, std::numeric_limits<A>::quiet_NaN());
    cpu::attention_forward<T>(forward_args(operands(), out.data(), lse.data()));
  }

  /// As where no backward follows.
  std::vector<T> forward_alone() const {
    std::vector<T> out(q.size(), quiet_nan<T>());
    cpu::attention_forward<T>(forward_args(operands(), out.data(), nullptr));
    return out;
  }

  /// Which gradients to ask for and whether to add to what is there.
  struct Wanted {
    bool q = true, k = true, v = true, bias = true, accumulate = false;
  };

  /// Where the gradients go: gq as q, gk and gv each as kv.
  struct Gradients {
    T *gq, *gk, *gv;
    A *gbias, *grelative;
  };

  kernels::AttentionBackward<T> backward_args(const Operands& at, const T* out, const A* lse,
                                              const Wanted& wanted, const Gradients& to) const {
    return {scores(at),
            {values_of(at.kv), kv_stride, c.width},
            dropout,
            {out, q_stride, c.width},
            {at.gout, q_stride, c.width},
            lse,
            {wanted.q ? to.gq : nullptr, q_stride, c.width},
            {wanted.k ? to.gk : nullptr, kv_stride, c.width},
            {wanted.v ? values_of(to.gv) : nullptr, kv_stride, c.width},
            wanted.accumulate,
            wanted.accumulate,
            wanted.accumulate,
            c.bias && wanted.bias ? to.gbias : nullptr,
            c.relative_limit >= 0 && wanted.bias ? to.grelative : nullptr};
  }

  /// Gradients into r's vectors, which have their size and old content if wanted.accumulate.
  void backward(const std::vector<T>& out, const std::vector<A>& lse, const Wanted& wanted,
                AttentionResult<T, A>& r) const {
    if (!wanted.accumulate) {
      r.gq.assign(q.size(), quiet_nan<T>());
      r.gk.assign(kv.size(), quiet_nan<T>());
      r.gv.assign(kv.size(), quiet_nan<T>());
      r.gbias.assign(bias.size(), A(0));
      r.grelative.assign(relative.size(), A(0));
    }
    cpu::attention_backward<T>(
        backward_args(operands(), out.data(), lse.data(), wanted,
                      {r.gq.data(), r.gk.data(), r.gv.data(), r.gbias.data(), r.grelative.data()}));
  }

  /// The elements that belong to heads: [rows, heads, width] at `offset` of rows of `stride`.
  template <class V>
  static std::vector<V> inner(const std::vector<V>& from, int64_t stride, int64_t offset, int64_t count) {
    std::vector<V> values;
    for (int64_t i = 0; i < static_cast<int64_t>(from.size()); ++i) {
      if (i % stride >= offset && i % stride < offset + count) values.push_back(from[i]);
    }
    return values;
  }
};

/// What a kernel got, forward and all gradients, against the plain loops.
template <class T>
void expect_exact(const AttentionProblem<T>& p, const AttentionResult<T, accumulator_t<T>>& got) {
  using A = accumulator_t<T>;
  using R = reference_t<T>;
  const auto exact = p.template plain<R, R>();
  const auto plain = p.template plain<T, A>();
  const int64_t own = p.c.heads * p.c.width, keys = p.c.key_heads * p.c.width;
  const auto inner = [&](const auto& values, int64_t stride, int64_t offset, int64_t count) {
    return AttentionProblem<T>::inner(values, stride, offset, count);
  };
  const auto compare = [&](const auto& a, const auto& b, const auto& c, int64_t stride, int64_t offset,
                           int64_t count, double factor, const char* what, double term) {
    expect_within<T>(inner(a, stride, offset, count), inner(b, stride, offset, count),
                     inner(c, stride, offset, count), factor, what, term);
  };
  compare(got.out, exact.out, plain.out, p.q_stride, 0, own, 2, "out", -1);
  expect_within<A>(got.lse, exact.lse, plain.lse, 2, "lse");
  // Products in f32 by AMX round each term of their sums six times.
  compare(got.gq, exact.gq, plain.gq, p.q_stride, 0, own, 4, "gq", exact.term_q);
  compare(got.gk, exact.gk, plain.gk, p.kv_stride, 0, keys, 4, "gk", exact.term_k);
  compare(got.gv, exact.gv, plain.gv, p.kv_stride, keys, keys, 4, "gv", exact.term_v);
  // Sums in A, of terms that are as exact as `out`, which is a T.
  if (p.c.bias) expect_within<T>(got.gbias, exact.gbias, plain.gbias, 3, "gbias", exact.term_bias);
  if (p.c.relative_limit >= 0)
    expect_within<T>(got.grelative, exact.grelative, plain.grelative, 3, "grelative", exact.term_bias);
  for (const T value : inner(got.out, p.q_stride, own, p.q_stride - own))
    ASSERT_TRUE(std::isnan(double(value))) << "wrote between the rows";
}

}  // namespace heed::test
