// translate serve as its clients see it: answers are the model's whoever asks beside, limits are kept, and a
// signal lets every answer out.
#include <atomic>
#include <thread>

#include <heed/nn/text/text_alignment.h>
#include <heed/nn/text/text_model.h>

#include "../../docs/markdown.h"
#include "../server_run.h"
#include "random_text_model.h"

namespace heed {
namespace {

using namespace std::chrono_literals;
using Texts = std::vector<std::string>;

class Serve : public ServerTest<ProgramTest> {
 protected:
  Serve() : ServerTest(HEED_TRANSLATE) { model_.save(dir_.string()); }

  void serve(Texts options = {}) {
    options.insert(options.begin(), {"serve", "--model", dir_.string()});
    start_server(options);
  }
  Answer post(const std::string& body) const { return ServerTest::post("/api/run", body); }
  void refuse(const std::string& body, int status, const std::string& message) const {
    ServerTest::refuse("/api/run", body, status, message);
  }

  const nn::TextModel model_ = random_text_model();
};

TEST_F(Serve, AnswersWhatTheModelAnswers) {
  serve();
  const Answer a = post(R"({"text": ["abc", "", "h\u00e9"], "beam": 4, "best": 3, "alignment": true})");
  ASSERT_EQ(a.status, 200) << a.body;
  const Texts texts{"abc", "", "h\u00e9"};
  const auto want = model_.run(texts, {.beam = 4, .best = 3});
  for (size_t i = 0; i < texts.size(); ++i) {
    const Json result = a.body["results"][i];
    EXPECT_EQ(result["source"], texts[i]);
    ASSERT_EQ(result["outputs"].size(), want[i].size());
    for (size_t n = 0; n < want[i].size(); ++n) {
      const Json output = result["outputs"][n];
      EXPECT_EQ(output["text"], want[i][n].text);
      EXPECT_NEAR(output["score"], want[i][n].score, 1e-4);
      EXPECT_EQ(output["finished"], want[i][n].finished);
      const nn::TextAlignment alignment = nn::align(model_, {texts[i]}, {want[i][n].tokens}).front();
      EXPECT_EQ(output["alignment"]["source"], alignment.source);
      EXPECT_EQ(output["alignment"]["output"], alignment.output);
      for (size_t o = 0; o < output["alignment"]["weights"].size(); ++o)
        for (size_t s = 0; s < alignment.source.size(); ++s)
          EXPECT_NEAR(output["alignment"]["weights"][o][s],
                      alignment.at(static_cast<int64_t>(o), static_cast<int64_t>(s)), 1e-3);
    }
  }
  const Answer one = post(R"({"text": "abc"})");
  EXPECT_EQ(one.body["results"][0]["outputs"].size(), 1u);
  EXPECT_EQ(one.body["results"][0]["outputs"][0]["text"], model_.run("abc", {.beam = 5}));
  EXPECT_FALSE(one.body["results"][0]["outputs"][0].contains("alignment"));

  httplib::Client c = client();
  EXPECT_EQ(answer(c.Get("/healthz")).body, Json({{"status", "ok"}}));
  const Json info = answer(c.Get("/api/info")).body;
  EXPECT_EQ(info["model"], dir_.filename().string());
  EXPECT_EQ(info["source"]["tokenizer"], "characters");
  EXPECT_EQ(info["target"]["vocab"], 12);
  EXPECT_EQ(info["limits"]["beam"], 16);
  EXPECT_EQ(info["defaults"]["max_length"], 24);
  const auto page = c.Get("/");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->get_header_value("Content-Type"), "text/html; charset=utf-8");
  // It fetches nothing from elsewhere: its one address is the name of a namespace.
  std::string text = page->body;
  const std::string name_space = "http://www.w3.org/2000/svg";
  for (size_t at; (at = text.find(name_space)) != std::string::npos;) text.erase(at, name_space.size());
  for (const char* outside : {"http:", "https:", "src=", "@import"})
    EXPECT_EQ(text.find(outside), std::string::npos) << outside;
  EXPECT_EQ(stop(SIGTERM).code, 143);
}

TEST_F(Serve, AnEnsembleAnswers) {
  const nn::TextModel other = random_text_model(56);
  const std::string folder = (dir_ / "other").string();
  fs::create_directory(folder);
  other.save(folder);
  start_server({"serve", "--model", concat(dir_.string(), ",", folder)});
  const nn::TextModel ensemble = nn::TextModel::ensemble({model_, other});
  const Texts texts{"abc", "hgfa"};
  const auto want = ensemble.run(texts, {.beam = 3, .best = 2});
  const Answer a = post(R"({"text": ["abc", "hgfa"], "beam": 3, "best": 2, "alignment": true})");
  ASSERT_EQ(a.status, 200) << a.body;
  for (size_t i = 0; i < texts.size(); ++i)
    for (size_t n = 0; n < 2; ++n) {
      const Json output = a.body["results"][i]["outputs"][n];
      EXPECT_EQ(output["text"], want[i][n].text);
      EXPECT_NEAR(output["score"], want[i][n].score, 1e-4);
      const nn::TextAlignment alignment = nn::align(ensemble, {texts[i]}, {want[i][n].tokens}).front();
      EXPECT_NEAR(output["alignment"]["weights"][0][0], alignment.at(0, 0), 1e-3);
    }
  const Json info = answer(client().Get("/api/info")).body;
  EXPECT_EQ(info["model"], dir_.filename().string() + " + other");
  EXPECT_EQ(info["parameters"], 2 * other.model().parameters().numel());
}

// The request of docs/text.md, as it stands there.
TEST_F(Serve, TheDocumentationsRequestIsAnswered) {
  serve();
  const std::string page = test::read_file(HEED_TEXT_PAGE), begin = "/api/run -d '";
  const size_t at = page.find(begin) + begin.size();
  const Answer a = post(page.substr(at, page.find('\'', at) - at));
  ASSERT_EQ(a.status, 200) << a.body;
  ASSERT_EQ(a.body["results"].size(), 2u);
  EXPECT_EQ(a.body["results"][0]["source"], "good morning");
  EXPECT_EQ(a.body["results"][1]["outputs"].size(), 2u);
}

TEST_F(Serve, ClientsAtOnceGetTheirOwnAnswers) {
  serve({"--max-waiting", "64"});
  std::atomic<int> wrong = 0, answered = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&, t] {
      httplib::Client c = client();
      for (int i = 0; i < 12; ++i) {
        std::string text(static_cast<size_t>(1 + (t * 5 + i * 3) % 9), static_cast<char>('a' + (t + i) % 8));
        text += static_cast<char>('a' + t % 8);
        const int beam = 1 + (t + i) % 3;  // which cannot all be in one batch
        const Answer a =
            answer(c.Post("/api/run", Json({{"text", text}, {"beam", beam}}).dump(), "application/json"));
        if (a.status != 200) continue;
        ++answered;
        wrong += a.body["results"][0]["outputs"][0]["text"] != model_.run(text, {.beam = beam});
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(answered, 16 * 12);
  EXPECT_EQ(stop(SIGINT).code, 130);
}

TEST_F(Serve, RefusesWhatItCannotTake) {
  serve({"--max-text", "20", "--max-texts", "3", "--max-body", "4000", "--max-beam", "6"});
  refuse("", 400, "no JSON");
  refuse("{\"text\": \"a\"", 400, "no JSON");
  refuse("{\"text\": \"\xff\"}", 400, "UTF-8: byte 11");
  refuse("[\"a\"]", 400, "is an object");
  refuse("{}", 400, "a text or a list");
  refuse(R"({"text": []})", 400, "a text or a list");
  refuse(R"({"text": ["a", 3]})", 400, "a text or a list");
  refuse(R"({"text": "a", "beams": 3})", 400, "\"beams\" means nothing");
  refuse(R"({"text": "a", "beam": 7})", 400, "from 1 to 6");
  refuse(R"({"text": "a", "beam": 2, "best": 3})", 400, "from 3 to 6");
  refuse(R"({"text": "a", "beam": 1.5})", 400, "whole number");
  refuse(R"({"text": "a", "beam": 1e99})", 400, "whole number");
  refuse(R"({"text": "a", "beam": 18446744073709551615})", 400, "whole number");
  refuse(R"({"text": "a", "max_length": 25})", 400, "from 1 to 24");
  refuse(R"({"text": "a", "length_penalty": -1})", 400, "from 0 to 100");
  refuse(R"({"text": "a", "alignment": 1})", 400, "true or false");
  refuse(R"({"text": ["a", "aaaaaaaaaaaaaaaaaaaaa"]})", 413, "text 2 has 21 characters; at most 20");
  refuse(R"({"text": ["a", "b", "c", "d"]})", 413, "4 texts; at most 3");
  refuse("{\"text\": \"" + std::string(4000, 'a') + "\"}", 413, "more than 4000 bytes");
  refuse(std::string(200, '[') + std::string(200, ']'), 400, "deeper than 64");

  httplib::Client c = client();
  // Without a length there is a limit too, and the connection goes on.
  std::atomic<int> parts = 0;
  const auto endless = c.Post(
      "/api/run",
      [&](size_t, httplib::DataSink& sink) {
        const std::string part(1000, 'a');
        if (parts++ < 100)
          sink.write(part.data(), part.size());
        else
          sink.done();
        return true;
      },
      "application/json");
  EXPECT_EQ(answer(endless).status, 413);
  EXPECT_EQ(answer(c.Get("/healthz")).status, 200);
  EXPECT_EQ(answer(c.Get("/api/run")).status, 405);
  EXPECT_EQ(answer(c.Post("/api/info", "{}", "application/json")).status, 405);
  EXPECT_EQ(answer(c.Put("/api/run", "{}", "application/json")).status, 405);
  EXPECT_EQ(answer(c.Get("/none")).body, Json({{"error", "there is no such address"}}));
  EXPECT_EQ(answer(c.Post("/none%0a", std::string(9000, 'a'), "application/json")).status, 413);
  EXPECT_EQ(answer(c.Post("/none", "{}", "application/json")).status, 404);
  EXPECT_EQ(answer(c.Get("/" + std::string(8000, 'a'))).status, 404);
  EXPECT_EQ(answer(c.Get("/" + std::string(9000, 'a'))).status, 414);
  EXPECT_EQ(answer(client().Post("/api/run", httplib::MultipartFormDataItems{{"text", "a", "", ""}})).status,
            415);
  EXPECT_EQ(post(R"({"text": "abc"})").status, 200);  // after all that
  EXPECT_EQ(stop(SIGTERM).code, 143);
}

TEST_F(Serve, AFullQueueSaysSo) {
  // Those that come first wait long for others.
  serve({"--max-waiting", "2", "--gather", "1000"});
  std::thread first([&] { EXPECT_EQ(post(R"({"text": ["a", "b"]})").status, 200); });
  std::this_thread::sleep_for(300ms);
  httplib::Client c = client();
  const auto result = c.Post("/api/run", R"({"text": "c"})", "application/json");
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status, 429);
  EXPECT_EQ(result->get_header_value("Retry-After"), "1");
  EXPECT_NE(result->body.find("too many requests"), std::string::npos);
  first.join();
  refuse(R"({"text": ["a", "b", "c"]})", 413, "at most 2 can wait");
}

TEST_F(Serve, ASignalLetsAnswersOut) {
  serve({"--gather", "1000"});
  std::thread waiting([&] { EXPECT_EQ(post(R"({"text": "abc"})").status, 200); });
  std::this_thread::sleep_for(300ms);
  const Result result = stop(SIGTERM);
  waiting.join();
  EXPECT_EQ(result.code, 143) << result.err;
  EXPECT_FALSE(client().Get("/healthz"));  // nobody listens any more
}

TEST_F(Serve, APortIsTakenOnce) {
  serve();
  const std::string port = std::to_string(port_);
  const fs::path other = dir_ / "other";
  const std::string command =
      program_ + " serve --model " + dir_.string() + " --port " + port + " 2>" + other.string();
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 8);
  EXPECT_NE(folder_.get("other").find("cannot listen on 127.0.0.1 port " + port), std::string::npos);
}

}  // namespace
}  // namespace heed
