// Heads taken away, and the roles of constructed ones.
#include <functional>

#include <gtest/gtest.h>

#include <heed/core/ops.h>
#include <heed/nn/attention/attention_heads.h>
#include <heed/nn/decoding/decode.h>
#include <heed/nn/models/language_model.h>
#include <heed/nn/models/transformer.h>

#include "expect_error.h"
#include "on_device.h"
#include "op_check.h"

namespace heed::nn {
namespace {

TransformerConfig small_transformer() {
  TransformerConfig config;
  config.source_vocabulary = config.target_vocabulary = 9;
  config.d_model = 8;
  config.heads = 2;
  config.d_ff = 16;
  config.encoder_layers = config.decoder_layers = 2;
  config.set_dropout(0);
  return config;
}

void zero_head(MultiHeadAttention& attention, int64_t head) {
  const NoGrad no_grad;
  const int64_t width = attention.layout.width;
  attention.out_proj.weight.slice(1, head * width, (head + 1) * width).zero_();
}

TEST(HeadAblation, FindsAllAttentions) {
  Transformer model(small_transformer());
  std::vector<std::string> names;
  for (const MultiHeadAttention* attention : attentions(model)) names.push_back(attention->name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"encoder.layers.0.self_attn", "encoder.layers.1.self_attn",
                                      "decoder.layers.0.self_attn", "decoder.layers.0.multihead_attn",
                                      "decoder.layers.1.self_attn", "decoder.layers.1.multihead_attn"}));
  MultiHeadAttention alone(8, 2);
  EXPECT_EQ(attentions(alone), std::vector<MultiHeadAttention*>{&alone});
}

// Without a head, a model is the one in which the head's columns of the output projection are zero: forward,
// and decoding with its cache; afterwards it is what it was.
TEST(HeadAblation, EqualsZerosInTheOutputProjection) {
  for (const Device device : test::devices()) {
    SCOPED_TRACE(concat("on ", device));
    Transformer model(small_transformer());
    model.eval();
    model.to(device);
    const NoGrad no_grad;
    const Tokens source = Tokens::packed({{1, 3, 4, 5, 2}, {1, 6, 2}}, device),
                 target = Tokens::packed({{1, 5, 4}, {1, 6}}, device);
    const auto outputs = [&] { return model.forward(source, target).to(kCpu).to_vector<float>(); };
    const auto written = [&] { return greedy_search(model, source, {.max_length = 6}).front().tokens; };
    const std::vector<float> whole = outputs();
    const auto tokens = written();
    std::vector<float> without;
    std::vector<decltype(written())> written_without;
    for (MultiHeadAttention* attention : attentions(model))
      for (int64_t head = 0; head < 2; ++head) {
        std::vector<float> ablated;
        decltype(written()) decoded;
        {
          const HeadAblation ablation({{attention, head}});
          ablated = outputs();
          decoded = written();
        }
        EXPECT_EQ(outputs(), whole);
        EXPECT_NE(ablated, whole) << attention->name << " " << head;
        const Tensor kept = attention->out_proj.weight.clone();
        zero_head(*attention, head);
        const std::vector<float> zeroed = outputs();
        for (size_t i = 0; i < whole.size(); ++i)
          EXPECT_NEAR(ablated[i], zeroed[i], 1e-5) << attention->name << " " << head;
        EXPECT_EQ(decoded, written()) << attention->name << " " << head;
        attention->out_proj.weight.copy_(kept);
      }
    EXPECT_EQ(written(), tokens);
  }
}

// Heads of a language model, in bf16 too; two at once are as both zeroed.
TEST(HeadAblation, SeveralAddUp) {
  LanguageModelConfig config = LanguageModelConfig::llama();
  config.vocabulary = 11;
  config.d_model = 16;
  config.heads = 4;
  config.key_heads = 2;
  config.d_ff = 16;
  config.layers = 1;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    LanguageModel model(config);
    model.eval();
    model.to(dtype);
    const NoGrad no_grad;
    const Tokens tokens = Tokens::packed({{1, 2, 3, 4, 5}});
    MultiHeadAttention& attention = *attentions(model).at(0);
    std::vector<float> both;
    {
      const HeadAblation first({{&attention, 0}}), second({{&attention, 3}});
      both = model.forward(tokens).to(DType::f32).to_vector<float>();
    }
    EXPECT_FALSE(attention.head_mask.defined());
    {
      const HeadAblation at_once({{&attention, 0}, {&attention, 3}});
      EXPECT_EQ(model.forward(tokens).to(DType::f32).to_vector<float>(), both);
    }
    EXPECT_FALSE(attention.head_mask.defined());
    zero_head(attention, 0);
    zero_head(attention, 3);
    const std::vector<float> zeroed = model.forward(tokens).to(DType::f32).to_vector<float>();
    for (size_t i = 0; i < zeroed.size(); ++i)
      EXPECT_NEAR(both[i], zeroed[i], dtype == DType::f32 ? 1e-5 : 2e-2);
  }
}

TEST(HeadAblation, RefusesHeadsThatAreNotThere) {
  MultiHeadAttention attention(8, 2);
  for (const int64_t head : {-1, 2})
    test::expect_error<IndexError>(
        [&] {
          const HeadAblation ablation({{&attention, 0}, {&attention, head}});
        },
        {"heads 0 to 1"});
  EXPECT_FALSE(attention.head_mask.defined());
}

// The gradient of a loss with respect to the mask says what a head is worth without taking it away.
TEST(HeadAblation, TheMaskHasAGradient) {
  MultiHeadAttention attention(8, 2);
  attention.head_mask = ones({2});
  attention.head_mask.set_requires_grad(true);
  const Tensor x = arange(0.0, 3.2, 0.1).view({4, 8});
  const auto loss = [&] { return sum(attention.self(x, Segments::dense(1, 4))); };
  loss().backward();
  const std::vector<float> gradient = attention.head_mask.grad().to_vector<float>();
  const NoGrad no_grad;
  attention.head_mask = Tensor();
  const double whole = loss().item<double>();
  for (int64_t head = 0; head < 2; ++head) {  // the sum is linear in the mask, bias aside
    const HeadAblation ablation({{&attention, head}});
    EXPECT_NEAR(whole - loss().item<double>(), gradient[static_cast<size_t>(head)], 1e-5);
  }
}

// [sequences, heads, queries, keys], each row with one key.
Tensor sharp_heads(int64_t sequences, int64_t heads, int64_t queries, int64_t keys,
                   const std::function<int64_t(int64_t n, int64_t h, int64_t q)>& key) {
  std::vector<float> values(static_cast<size_t>(sequences * heads * queries * keys), 0);
  for (int64_t n = 0; n < sequences; ++n)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t q = 0; q < queries; ++q)
        values[static_cast<size_t>(((n * heads + h) * queries + q) * keys + key(n, h, q))] = 1;
  return tensor(values, {sequences, heads, queries, keys});
}

std::vector<std::string> names(const std::vector<HeadRole>& roles) {
  std::vector<std::string> result;
  for (const HeadRole& role : roles) result.push_back(role.name);
  return result;
}

TEST(HeadRoles, LinesOfSelfAttention) {
  const int64_t n = 6;
  const Tensor ids = arange(0, n).expand({2, n}).contiguous();
  const Tensor weights = sharp_heads(2, 6, n, n, [](int64_t, int64_t h, int64_t q) -> int64_t {
    switch (h) {
      case 0:
        return q;
      case 1:
        return std::max<int64_t>(q - 1, 0);
      case 2:
        return std::min<int64_t>(q + 1, 5);
      case 3:
        return std::max<int64_t>(q - 3, 0);
      case 4:
        return 5;
      default:
        return 5 - q;
    }
  });
  const std::vector<HeadRole> roles = head_roles(weights, ids, ids);
  // The head that looks three back has no key for its first three rows, which look at the first: that is
  // half.
  EXPECT_EQ(names(roles),
            (std::vector<std::string>{"itself", "previous", "next", "first, 3 back", "last", "mirror 5"}));
  for (const size_t h : {0u, 1u, 2u, 4u, 5u}) EXPECT_DOUBLE_EQ(roles[h].share, 1) << h;
}

// Copy and then reverse a source of 4 with its marks: rows are fed the symbol before, so the first is to
// write place 1. Down the source and back up, one head for each way.
TEST(HeadRoles, DiagonalsAndMirrorsOfCrossAttention) {
  const Tensor queries = arange(0, 9).expand({3, 9}).contiguous(),
               keys = arange(0, 6).expand({3, 6}).contiguous();
  const Tensor weights = sharp_heads(3, 3, 9, 6, [](int64_t, int64_t h, int64_t q) -> int64_t {
    const int64_t down = q + 1, up = 8 - q;
    if (h == 0) return q < 4 ? down : 5;
    if (h == 1) return q < 4 ? 0 : up;
    return q < 4 ? down : up;
  });
  const std::vector<std::string> found = names(head_roles(weights, queries, keys, {.cross = true}));
  EXPECT_EQ(found[0], "diagonal +1, last");
  EXPECT_EQ(found[1], "mirror 8, first");
  EXPECT_EQ(found[2], "mirror 8, diagonal +1");
}

// The symbol 7 stands elsewhere in each sequence; head 0 finds it, head 1 has another favourite place for
// each place without a line, head 2 looks evenly, head 3 at a place that neither explains.
TEST(HeadRoles, WithoutALine) {
  const int64_t n = 5;
  const std::vector<int64_t> place_of_seven{0, 1, 2, 3, 4};
  std::vector<int64_t> ids;
  for (int64_t s = 0; s < 5; ++s)
    for (int64_t p = 0; p < n; ++p) ids.push_back(p == s ? 7 : 3);
  const Tensor symbols = tensor(ids, {5, n});
  const std::vector<int64_t> favourite{3, 1, 4, 2, 0};
  const Tensor sharp = sharp_heads(5, 4, n, n, [&](int64_t s, int64_t h, int64_t q) -> int64_t {
    if (h == 0) return s;
    if (h == 1) return favourite[static_cast<size_t>(q)];
    return (2 * s + q * (s + 3) + 1) % n;
  });
  Tensor weights = sharp.clone();
  weights.slice(1, 2, 3).copy_(full({5, 1, n, n}, 0.2));
  const std::vector<HeadRole> roles = head_roles(weights, symbols, symbols);
  EXPECT_EQ(names(roles), (std::vector<std::string>{"by symbol", "by place", "even", "mixed"}));
  EXPECT_NEAR(roles[0].share, 1, 1e-9);
  EXPECT_NEAR(roles[1].share, 1, 1e-9);
  EXPECT_NEAR(roles[2].share, 1, 1e-6);
  EXPECT_LT(roles[3].share, 0.5);
}

}  // namespace
}  // namespace heed::nn
