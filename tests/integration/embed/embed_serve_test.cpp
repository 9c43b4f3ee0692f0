// embed serve as its clients see it: the answers of `search` and `encode`, limits, and every answer out
// before it ends.
#include <atomic>
#include <thread>

#include "../../docs/markdown.h"
#include "../server_run.h"
#include "embed_run.h"

namespace heed {
namespace {

using namespace std::chrono_literals;
using Words = std::vector<std::string>;

class EmbedServe : public ServerTest<EmbedTest> {
 protected:
  EmbedServe() {
    fs::create_directories(texts_);
    std::ofstream(texts_ / "bread.md") << "Flour and water.\n\nThe ship\nmake bread.\n";
    std::ofstream(texts_ / "ship.txt") << "A ship sails by the stars.\n";
  }

  void serve(Words options = {}) {
    options.insert(options.begin(), texts_.string());
    start_server(command("serve", options));
  }
  Answer search(const Json& request) const { return post("/api/search", request.dump()); }

  const fs::path texts_ = dir_ / "texts";
};

TEST_F(EmbedServe, AnswersAsSearchAndEncodeDo) {
  const Json searched =
      run(command("search", {"--json", texts_.string(), "water and bread"})).last().at("found");
  const Json vector = run(command("encode", {"--json", "a ship"})).last().at("embedding");
  serve();
  const Answer a = search({{"question", {"water and bread", "a ship sails by the stars."}}});
  ASSERT_EQ(a.status, 200) << a.body;
  ASSERT_EQ(a.body["results"].size(), 2u);
  EXPECT_EQ(a.body["results"][0]["question"], "water and bread");
  const Json found = a.body["results"][0]["found"];
  ASSERT_EQ(found.size(), searched.size());
  for (size_t i = 0; i < found.size(); ++i) {
    for (const char* key : {"file", "line", "first_line", "last_line", "text"})
      EXPECT_EQ(found[i][key], searched[i][key]) << key;
    EXPECT_NEAR(found[i]["score"], searched[i]["score"], 1e-5);
  }
  EXPECT_EQ(a.body["results"][1]["found"][0]["file"], "ship.txt");
  EXPECT_EQ(search({{"question", "bread"}, {"top", 1}}).body["results"][0]["found"].size(), 1u);

  const Answer encoded = post("/api/encode", R"({"text": ["bread", "a ship"]})");
  ASSERT_EQ(encoded.status, 200) << encoded.body;
  ASSERT_EQ(encoded.body["embeddings"].size(), 2u);
  ASSERT_EQ(encoded.body["embeddings"][1].size(), 24u);
  for (size_t i = 0; i < 24; ++i) EXPECT_NEAR(encoded.body["embeddings"][1][i], vector[i], 1e-5);

  httplib::Client c = client();
  EXPECT_EQ(answer(c.Get("/healthz")).body, Json({{"status", "ok"}}));
  const Json info = answer(c.Get("/api/info")).body;
  EXPECT_EQ(info["model"], "model");
  EXPECT_EQ(info["folder"], "texts");
  EXPECT_EQ(info["paragraphs"], 3);
  EXPECT_EQ(info["files"], 2);
  EXPECT_EQ(info["limits"]["top"], 100);
  const auto page = c.Get("/");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->get_header_value("Content-Type"), "text/html; charset=utf-8");
  for (const char* outside : {"http:", "https:", "src=", "@import"})
    EXPECT_EQ(page->body.find(outside), std::string::npos) << "the page fetches from elsewhere: " << outside;
  EXPECT_EQ(stop(SIGTERM).code, 143);
}

// The request of docs/embed.md, as it stands there.
TEST_F(EmbedServe, TheDocumentationsRequestIsAnswered) {
  serve();
  const std::string page = test::read_file(HEED_EMBED_PAGE), begin = "/api/search -d '";
  const size_t at = page.find(begin) + begin.size();
  const Answer a = post("/api/search", page.substr(at, page.find('\'', at) - at));
  ASSERT_EQ(a.status, 200) << a.body;
  EXPECT_EQ(a.body["results"][0]["found"].size(), 2u);
}

TEST_F(EmbedServe, ClientsAtOnceGetTheirOwnAnswers) {
  const Words questions{"flour and water.", "the ship make bread.", "a ship sails by the stars."};
  const Words files{"bread.md", "bread.md", "ship.txt"};
  serve();
  std::atomic<int> wrong = 0, answered = 0;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 9; ++i) {
        const size_t n = (t + i) % 3;
        const Answer a = search({{"question", questions[n]}, {"top", 1 + i % 2}});
        if (a.status != 200) continue;
        ++answered;
        const Json found = a.body["results"][0]["found"];
        wrong += found.size() != 1 + i % 2 || found[0]["file"] != files[n] || found[0]["score"] < 0.9999;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(answered, 72);
  EXPECT_EQ(stop(SIGINT).code, 130);
}

TEST_F(EmbedServe, RefusesWhatItCannotTake) {
  serve({"--max-text", "20", "--max-texts", "2", "--max-body", "3000", "--max-top", "7"});
  refuse("/api/search", "{\"question\": ", 400, "no JSON");
  refuse("/api/search", "[]", 400, "is an object");
  refuse("/api/search", "{}", 400, "\"question\" must be a text or a list");
  refuse("/api/search", R"({"question": []})", 400, "a text or a list");
  refuse("/api/search", R"({"question": "a", "best": 3})", 400, "\"best\" means nothing");
  refuse("/api/search", R"({"question": "a", "top": 0})", 400, "from 1 to 7");
  refuse("/api/search", R"({"question": "a", "top": 8})", 400, "from 1 to 7");
  refuse("/api/search", R"({"question": ["a", "aaaaaaaaaaaaaaaaaaaaa"]})", 413, "text 2 has 21 characters");
  refuse("/api/search", R"({"question": ["a", "b", "c"]})", 413, "3 texts; at most 2");
  refuse("/api/search", "{\"question\": \"" + std::string(3000, 'a') + "\"}", 413, "more than 3000 bytes");
  refuse("/api/encode", R"({"text": "a", "top": 3})", 400, "\"top\" means nothing");
  refuse("/api/encode", R"({"text": 3})", 400, "a text or a list");
  EXPECT_EQ(answer(client().Get("/api/search")).status, 405);
  EXPECT_EQ(answer(client().Get("/none")).status, 404);
  EXPECT_EQ(search({{"question", "bread"}}).status, 200);  // after all that
}

TEST_F(EmbedServe, AFullQueueSaysSoAndASignalLetsAnswersOut) {
  serve({"--max-waiting", "2", "--gather", "1000"});
  std::thread first([&] { EXPECT_EQ(search({{"question", {"bread", "water"}}}).status, 200); });
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(search({{"question", "a"}}).status, 429);
  refuse("/api/search", R"({"question": ["a", "b", "c"]})", 413, "at most 2 can wait");
  const Result result = stop(SIGTERM);
  first.join();
  EXPECT_EQ(result.code, 143) << result.err;
  EXPECT_FALSE(client().Get("/healthz"));  // nobody listens any more
}

TEST_F(EmbedServe, WhatCannotBeServed) {
  EXPECT_EQ(run(command("serve", {})).code, 2);
  EXPECT_EQ(run(command("serve", {(dir_ / "none").string()})).code, 3);
  EXPECT_EQ(run(command("serve", {texts_.string(), "a question"})).code, 2);
  EXPECT_EQ(run(command("serve", {texts_.string(), "--top", "9", "--max-top", "8"})).code, 2);
}

}  // namespace
}  // namespace heed
