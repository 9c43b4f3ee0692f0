// The server of a build without cpp-httplib.
#include <heed/core/base/check.h>

#include "apps/common/serve/json_server.h"

namespace heed::apps {

class JsonServer::Implementation {};

JsonServer::JsonServer(const JsonServerOptions&) {
  throw ConfigError(
      "a server needs cpp-httplib, which this heed was built without; install libcpp-httplib-dev and build "
      "it "
      "again");
}
JsonServer::~JsonServer() = default;
int JsonServer::port() const { return 0; }
std::string JsonServer::url() const { return {}; }
void JsonServer::page(const std::string&, std::string) {}
void JsonServer::get(const std::string&, std::function<Json()>) {}
void JsonServer::post(const std::string&, std::function<Json(const Json&)>) {}
void JsonServer::run(const std::function<bool()>&) {}

}  // namespace heed::apps
