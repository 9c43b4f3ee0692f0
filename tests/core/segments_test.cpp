#include <limits>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/attention.h>
#include <heed/core/segments.h>
#include <heed/core/storage.h>

#include "ops/fused_check.h"

namespace heed::test {
namespace {

using Lengths = std::vector<int32_t>;

void expect_rows(const Segments& s, const std::vector<int64_t>& query_first, const Lengths& query_length,
                 const std::vector<int64_t>& key_first, const Lengths& key_length) {
  ASSERT_EQ(s.count(), static_cast<int64_t>(query_first.size()));
  for (int64_t i = 0; i < s.count(); ++i) {
    const size_t at = static_cast<size_t>(i);
    EXPECT_EQ(s.query_first(i), query_first[at]);
    EXPECT_EQ(s.query_length(i), query_length[at]);
    EXPECT_EQ(s.key_first(i), key_first[at]);
    EXPECT_EQ(s.key_length(i), key_length[at]);
  }
}

TEST(Segments, Packed) {
  const Segments s = Segments::packed(Lengths{3, 0, 2});
  expect_rows(s, {0, 3, 3}, {3, 0, 2}, {0, 3, 3}, {3, 0, 2});
  EXPECT_EQ(s.total_query(), 5);
  EXPECT_EQ(s.max_query(), 3);
  EXPECT_EQ(s.query_rows_end(), 5);
  const Segments cross = Segments::packed(Lengths{1, 2}, Lengths{4, 3});
  expect_rows(cross, {0, 1}, {1, 2}, {0, 4}, {4, 3});
  EXPECT_EQ(cross.total_key(), 7);
  EXPECT_EQ(cross.max_key(), 4);
  EXPECT_EQ(cross.key_rows_end(), 7);
}

TEST(Segments, Dense) {
  expect_rows(Segments::dense(2, 3), {0, 3}, {3, 3}, {0, 3}, {3, 3});
  expect_rows(Segments::dense(2, 3, 4), {0, 3}, {3, 3}, {0, 4}, {4, 4});
  expect_rows(Segments::dense(2, 3, 4, Lengths{1, 4}), {0, 3}, {3, 3}, {0, 4}, {1, 4});
  const Segments padded = Segments::dense(2, 5, Lengths{2, 0});
  expect_rows(padded, {0, 5}, {2, 0}, {0, 5}, {2, 0});
  EXPECT_EQ(padded.query_rows_end(), 2);
  EXPECT_EQ(padded.max_key(), 2);
}

TEST(Segments, CrossTakesQueriesOfOneAndKeysOfTheOther) {
  const Segments target = Segments::packed(Lengths{2, 1}), source = Segments::dense(2, 4, 4, Lengths{3, 1});
  expect_rows(Segments::cross(target, source), {0, 2}, {2, 1}, {0, 4}, {3, 1});
}

TEST(Segments, NothingAtAll) {
  const Segments s;
  EXPECT_EQ(s.count(), 0);
  EXPECT_EQ(s.total_query(), 0);
  EXPECT_EQ(s.max_key(), 0);
  EXPECT_EQ(s.view(kCpu).count, 0);
  EXPECT_EQ(Segments::dense(0, 5).count(), 0);
  EXPECT_EQ(Segments::dense(2, 0).total_query(), 0);
}

TEST(Segments, ViewsShowTheArraysOnEachDevice) {
  const Segments s({5, 0}, {2, 3}, {0, 4}, {4, 1});
  for (Device device : devices()) {
    const SegmentsView view = s.view(device);
    EXPECT_EQ(view.count, 2);
    EXPECT_EQ(view.max_query, 3);
    EXPECT_EQ(view.max_key, 4);
    EXPECT_EQ(view.total_query, 5);
    EXPECT_EQ(view.total_key, 5);
    EXPECT_FALSE(view.in_order);
    int64_t first[2] = {};
    int32_t length[2] = {};
    copy_bytes(first, kCpu, view.query_first, device, sizeof first);
    EXPECT_EQ(first[0], 5);
    copy_bytes(first, kCpu, view.key_first, device, sizeof first);
    EXPECT_EQ(first[1], 4);
    copy_bytes(length, kCpu, view.query_length, device, sizeof length);
    EXPECT_EQ(length[1], 3);
    copy_bytes(length, kCpu, view.key_length, device, sizeof length);
    EXPECT_EQ(length[0], 4);
    EXPECT_EQ(s.view(device).query_first, view.query_first);  // copied once
  }
}

TEST(Segments, ManyThreadsMayAskForOneView) {
  const Device device = devices().back();
  const Segments s = Segments::packed(Lengths(100, 3));
  std::vector<const int64_t*> seen(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < seen.size(); ++i)
    threads.emplace_back([&, i] { seen[i] = Segments(s).view(device).key_first; });
  for (std::thread& thread : threads) thread.join();
  for (const int64_t* pointer : seen) EXPECT_EQ(pointer, seen[0]);
}

TEST(Segments, Errors) {
  expect_error<ShapeError>(
      [] {
        Segments::packed(Lengths{2, -1});
      },
      "segments: sequence 1 has -1 query rows");
  expect_error<ShapeError>([] { Segments::packed(Lengths{2}, Lengths{1, 1}); }, "they must agree");
  expect_error<ShapeError>([] { Segments({0}, {2}, {-1}, {2}); },
                           "segments: the key rows of sequence 0 start at -1");
  expect_error<ShapeError>([] { Segments({std::numeric_limits<int64_t>::max() - 1}, {2}, {0}, {2}); },
                           "end before 2^63");
  expect_error<ShapeError>(
      [] {
        Segments({0, 1}, {2, 2}, {0, 2}, {2, 2});
      },
      "segments: the query rows of sequences 0 and 1 overlap in row 1");
  expect_error<ShapeError>(
      [] {
        Segments({4, 0, 2}, {2, 2, 3}, {0, 0, 0}, {0, 0, 0});
      },
      "segments: the query rows of sequences 0 and 2 overlap in row 4");
  EXPECT_TRUE(Segments({0, 1}, {1, 1}, {0, 0}, {2, 2}).keys_shared());
  EXPECT_FALSE(Segments({0, 1}, {1, 1}, {0, 2}, {2, 2}).keys_shared());
  expect_error<ShapeError>(
      [] {
        Segments::dense(2, 3, 4, Lengths{1, 5});
      },
      "segments: length 5 of sequence 1 exceeds the 4 rows");
  expect_error<ShapeError>([] { Segments::dense(2, 3, Lengths{1}); }, "segments: 1 lengths for 2 sequences");
  expect_error<ShapeError>([] { Segments::dense(-1, 3); }, "-1 sequences");
  expect_error<ShapeError>([] { Segments::dense(1, int64_t{1} << 31); }, "it must be in [0, 2147483647]");
  expect_error<ShapeError>([] { Segments::cross(Segments::dense(2, 3), Segments::dense(3, 3)); },
                           "queries of 2 sequences with keys of 3");
  expect_error<IndexError>([] { Segments::dense(2, 3).query_first(2); }, "segments: sequence 2 of 2");
}

TEST(Segments, EmptySequencesOverlapNothing) {
  EXPECT_EQ(Segments({0, 1, 1}, {3, 0, 0}, {0, 0, 0}, {0, 0, 2}).count(), 3);
  EXPECT_EQ(Segments({4, 0}, {2, 4}, {2, 0}, {1, 2}).query_rows_end(), 6);  // any order
}

TEST(SegmentsOnDevice, AttendAsOrdinaryOnesWithGaps) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const Device cuda = cuda_device();
  const auto x = [&](int64_t rows, uint64_t seed) {
    return test::normal({rows, 6}, seed).to(DType::f32).to(cuda);
  };
  const Tensor q = x(12, 1), k = x(12, 2), v = x(12, 3);
  const Tensor first = tensor<int64_t>({1, 6, 10}, cuda), length = tensor<int32_t>({3, 4, 0}, cuda);
  const Segments known({1, 6, 10}, {3, 4, 0}, {1, 6, 10}, {3, 4, 0});
  const Segments on_device = Segments::on_device(first, length, 12, 8);
  const AttentionOptions options{.heads = 2};
  EXPECT_EQ(attention(q, k, v, on_device, options).to_vector<float>(),
            attention(q, k, v, known, options).to_vector<float>());
  EXPECT_EQ(attention(q, k, v, Segments::cross(on_device, on_device), options).to_vector<float>(),
            attention(q, k, v, known, options).to_vector<float>());
  const auto gradients = [&](const Segments& segments) {
    const Tensor qkv = test::normal({12, 18}, 4).to(DType::f32).to(cuda).set_requires_grad();
    sum(attention_qkv(qkv, segments, options)).backward();
    return qkv.grad().to_vector<float>();
  };
  EXPECT_EQ(gradients(on_device), gradients(known));
  EXPECT_EQ(on_device.count(), 3);
  EXPECT_EQ(on_device.max_key(), 8);
  EXPECT_EQ(on_device.query_rows_end(), 12);
  expect_error<StateError>([&] { on_device.query_length(0); },
                           {"the length of queries is known to cuda:0 only"});
  expect_error<StateError>([&] { on_device.total_key(); }, {"the number of keys is known to cuda:0 only"});
  expect_error<DeviceError>([&] { on_device.view(kCpu); }, {"known to cuda:0 only, not to cpu"});
  expect_error<DeviceError>([&] { Segments::cross(on_device, known); }, {"a device alone knows the queries"});
}

TEST(SegmentsOnDevice, AreChecked) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const Tensor first = tensor<int64_t>({0, 5}, cuda_device()),
               length = tensor<int32_t>({5, 4}, cuda_device());
  expect_error<DeviceError>([&] { Segments::on_device(first.to(kCpu), length.to(kCpu), 9, 5); },
                            {"arrays on one CUDA device, got cpu"});
  expect_error<DTypeError>([&] { Segments::on_device(first, first, 9, 5); },
                           {"lengths in i32, got i64 and i64"});
  expect_error<ShapeError>([&] { Segments::on_device(first, tensor<int32_t>({5}, cuda_device()), 9, 5); },
                           {"got [2] and [1]"});
  expect_error<ShapeError>([&] { Segments::on_device(first, length, -1, 5); }, {"-1 rows"});
}

}  // namespace
}  // namespace heed::test
