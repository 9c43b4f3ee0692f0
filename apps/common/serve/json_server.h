// An HTTP server of JSON endpoints and pages, for one machine rather than for the open net.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "apps/common/json_lines.h"

namespace heed::apps {

struct JsonServerOptions {
  std::string host = "127.0.0.1";
  int64_t port = 0;              // 0: one that is free
  int64_t connections = 64;      // served at once; others wait
  int64_t max_body = 1 << 20;    // bytes of a request's body, at most
  int64_t idle_seconds = 2;      // until a connection without requests is closed
  int64_t timeout_seconds = 10;  // for a client to send or take some bytes
};

/// An answer other than 200, thrown by a handler: the client gets {"error": message}.
class HttpError : public std::exception {
 public:
  HttpError(int status, std::string message) : status_(status), message_(std::move(message)) {}
  int status() const { return status_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  int status_;
  std::string message_;
};

/// Handlers run in the threads of connections, several at once. What they throw becomes an answer: HttpError
/// its own, DataError and ConfigError 400, QueueFull 429, QueueClosed 503 (batch_queue.h), all else 500.
/// A body that is too large is answered 413; one that is no JSON in UTF-8, or nested deeper than 64, 400; an
/// address that is not there 404 or 405. Errors are JSON.
class JsonServer {
 public:
  /// Takes the port. ConfigError in a build without cpp-httplib; IoError where the address cannot be had.
  explicit JsonServer(const JsonServerOptions& options);
  ~JsonServer();
  JsonServer(const JsonServer&) = delete;
  JsonServer& operator=(const JsonServer&) = delete;

  int port() const;
  /// "http://127.0.0.1:8080"
  std::string url() const;

  /// Before run().
  void page(const std::string& path, std::string html);
  void get(const std::string& path, std::function<Json()> handler);
  void post(const std::string& path, std::function<Json(const Json&)> handler);

  /// Serves until stop() is true, which is asked some ten times a second: then takes no more connections, and
  /// returns when those that are open have their answers.
  void run(const std::function<bool()>& stop);

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace heed::apps
