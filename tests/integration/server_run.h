// Runs of a program that serves JSON over HTTP.
#pragma once

#include <chrono>
#include <csignal>
#include <httplib.h>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "program_run.h"

namespace heed {

/// On top of ProgramTest or a class derived from it. The server is killed where the test has not stopped it.
template <class Base>
class ServerTest : public Base {
 protected:
  using Base::Base;
  ~ServerTest() override {
    if (server_ <= 0) return;
    kill(server_, SIGKILL);
    this->finish(server_);
  }

  // A command with its options; the port is one that is free.
  void start_server(std::vector<std::string> command) {
    using namespace std::chrono_literals;
    command.insert(command.begin() + 1, {"--port", "0", "--json", "--threads", "2"});
    fs::remove(this->dir_ / "out");  // of a run before
    server_ = this->start(command);
    for (int wait = 0; wait < 600; ++wait) {
      const std::string line = this->folder_.get("out");
      if (line.ends_with('\n')) {
        port_ = Json::parse(line).at("port");
        return;
      }
      std::this_thread::sleep_for(50ms);
    }
    FAIL() << "the server does not come up: " << this->folder_.get("err");
  }

  Result stop(int signal) {
    kill(server_, signal);
    return this->finish(std::exchange(server_, 0));
  }

  httplib::Client client() const {
    using namespace std::chrono_literals;
    httplib::Client c("127.0.0.1", port_);
    c.set_keep_alive(true);
    c.set_read_timeout(60s);
    return c;
  }

  struct Answer {
    int status = 0;
    Json body;
  };
  static Answer answer(const httplib::Result& result) {
    if (!result) return {};
    return {result->status, Json::parse(result->body, nullptr, false)};
  }
  Answer post(const std::string& path, const std::string& body) const {
    return answer(client().Post(path, body, "application/json"));
  }
  void refuse(const std::string& path, const std::string& body, int status,
              const std::string& message) const {
    const Answer a = post(path, body);
    EXPECT_EQ(a.status, status) << body.substr(0, 80);
    ASSERT_TRUE(a.body.contains("error")) << body.substr(0, 80);
    EXPECT_NE(a.body["error"].template get<std::string>().find(message), std::string::npos) << a.body;
  }

  pid_t server_ = 0;
  int port_ = 0;
};

}  // namespace heed
