#include "apps/common/serve/json_server.h"

#include <atomic>
#include <cstdio>
#include <httplib.h>
#include <map>
#include <set>
#include <sys/socket.h>
#include <thread>
#include <utility>

#include <heed/core/base/check.h>

#include "apps/common/serve/batch_queue.h"
#include "apps/common/text.h"

namespace heed::apps {
namespace {

constexpr const char* kJsonType = "application/json";
constexpr int kDeepest = 64;  // arrays and objects in each other

std::string to_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void answer_error(httplib::Response& response, int status, const std::string& message) {
  constexpr int kTooMany = 429, kUnavailable = 503;
  response.status = status;
  if (status == kTooMany || status == kUnavailable) response.set_header("Retry-After", "1");
  response.set_content(to_text({{"error", message}}), kJsonType);
}

/// Runs f; what it throws becomes the answer.
template <class F>
void guarded(httplib::Response& response, F&& f) {
  try {
    return f();
  } catch (const HttpError& error) {
    answer_error(response, error.status(), error.what());
  } catch (const QueueFull& error) {
    answer_error(response, 429, error.what());
  } catch (const QueueClosed&) {
    answer_error(response, 503, "the server is stopping");
  } catch (const DataError& error) {
    answer_error(response, 400, error.what());
  } catch (const ConfigError& error) {
    answer_error(response, 400, error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "heed: error in a request: %s\n", printable(error.what()).c_str());
    answer_error(response, 500, "the server could not answer; its log says why");
  }
}

Json parse_body(const std::string& body) {
  bool deep = false;
  Json value;
  try {
    value = Json::parse(body, [&](int depth, Json::parse_event_t, Json&) {
      deep |= depth > kDeepest;
      return !deep;
    });
  } catch (const Json::parse_error& error) {
    throw HttpError(400, concat("the body is no JSON in UTF-8: byte ", error.byte));
  }
  if (deep) throw HttpError(400, concat("the body is nested deeper than ", kDeepest));
  return value;
}

void set_socket_options(socket_t socket) {
  const int on = 1;
  // Not SO_REUSEPORT, the default: another server on the port must be an error.
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
}

}  // namespace

class JsonServer::Implementation : public httplib::Server {
 public:
  explicit Implementation(const JsonServerOptions& options) : options_(options) {
    const int64_t connections = options.connections;
    new_task_queue = [connections] { return new httplib::ThreadPool(static_cast<size_t>(connections)); };
    set_socket_options(heed::apps::set_socket_options);
    set_tcp_nodelay(true);
    set_keep_alive_max_count(size_t{1} << 20);
    set_keep_alive_timeout(options.idle_seconds);
    set_read_timeout(options.timeout_seconds);
    set_write_timeout(options.timeout_seconds);
    set_payload_max_length(static_cast<size_t>(options.max_body));
    set_error_handler([this](const httplib::Request& request, httplib::Response& response) {
      const bool posted = response.status == 404 && posts_.contains(request.path);
      const int status = posted ? 405 : response.status;
      if (response.body.empty()) answer_error(response, status, reason(request, status));
    });
    const auto posted = [this](const httplib::Request& request, httplib::Response& response,
                               const httplib::ContentReader& read) { take(request, response, read); };
    // Any address: the library would keep a body of any length for one that it does not know.
    constexpr const char* kAny = R"([\s\S]*)";
    Post(kAny, posted);
    Put(kAny, posted);
    Patch(kAny, posted);
    Delete(kAny, posted);
    bind();
  }

  std::string reason(const httplib::Request& request, int status) const {
    switch (status) {
      case 404:
        return "there is no such address";
      case 405:
        return concat(request.path, posts_.contains(request.path) ? " takes POST" : " takes GET");
      case 413:
        return concat("the body has more than ", options_.max_body, " bytes");
      case 414:
        return "the address is too long";
      default:
        return "the request cannot be understood";
    }
  }

  void run(const std::function<bool()>& stop_wanted) {
    std::atomic<bool> ended = false;
    std::thread listener([&] {
      listen_after_bind();
      ended = true;
    });
    constexpr std::chrono::milliseconds kPeriod(50);
    while (!ended && !(is_running() && stop_wanted())) std::this_thread::sleep_for(kPeriod);
    stop();
    listener.join();
  }

  JsonServerOptions options_;
  int port_ = 0;
  std::map<std::string, std::function<Json(const Json&)>> posts_;
  std::set<std::string> gets_;

 private:
  void bind() {
    const bool any = options_.port == 0;
    port_ = any ? bind_to_any_port(options_.host) : static_cast<int>(options_.port);
    const bool bound = any ? port_ > 0 : bind_to_port(options_.host, port_);
    HEED_CHECK(bound, IoError, "cannot listen on ", options_.host, " port ", options_.port,
               ": the address is not this machine's, or another program has it");
    // The library waits with five connections in the kernel's queue at most.
    ::listen(svr_sock_, SOMAXCONN);
  }

  // The whole body is read, but no more of it kept than allowed: the next request follows it.
  void take(const httplib::Request& request, httplib::Response& response,
            const httplib::ContentReader& read) {
    if (request.is_multipart_form_data()) {
      read([](const httplib::MultipartFormData&) { return true; }, [](const char*, size_t) { return true; });
      return answer_error(response, 415, "send JSON, not a form");
    }
    std::string body;
    bool too_large = false;
    const bool whole = read([&](const char* data, size_t size) {
      too_large |= body.size() + size > static_cast<size_t>(options_.max_body);
      if (!too_large) body.append(data, size);
      return true;
    });
    if (too_large) return answer_error(response, 413, reason(request, 413));
    if (!whole) return;  // the library has set the status
    guarded(response, [&] {
      const auto found = posts_.find(request.path);
      const int status = found == posts_.end() && !gets_.contains(request.path) ? 404
                         : found == posts_.end() || request.method != "POST"    ? 405
                                                                                : 200;
      if (status != 200) throw HttpError(status, reason(request, status));
      response.set_content(to_text(found->second(parse_body(body))), kJsonType);
    });
  }
};

JsonServer::JsonServer(const JsonServerOptions& options)
    : implementation_(std::make_unique<Implementation>(options)) {}
JsonServer::~JsonServer() = default;

int JsonServer::port() const { return implementation_->port_; }

std::string JsonServer::url() const {
  const std::string& host = implementation_->options_.host;
  const bool v6 = host.find(':') != std::string::npos;
  return concat("http://", v6 ? "[" : "", host, v6 ? "]" : "", ":", port());
}

void JsonServer::page(const std::string& path, std::string html) {
  implementation_->gets_.insert(path);
  implementation_->Get(path, [html = std::move(html)](const httplib::Request&, httplib::Response& response) {
    response.set_content(html, "text/html; charset=utf-8");
  });
}

void JsonServer::get(const std::string& path, std::function<Json()> handler) {
  implementation_->gets_.insert(path);
  implementation_->Get(path,
                       [handler = std::move(handler)](const httplib::Request&, httplib::Response& response) {
                         guarded(response, [&] { response.set_content(to_text(handler()), kJsonType); });
                       });
}

void JsonServer::post(const std::string& path, std::function<Json(const Json&)> handler) {
  implementation_->posts_[path] = std::move(handler);
}

void JsonServer::run(const std::function<bool()>& stop) { implementation_->run(stop); }

}  // namespace heed::apps
