// A small HTTP server for `mfu serve`: CivetWeb with two paths.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/base/result.h"

namespace mfu {

/// What a path answers. [any thread of the server]
struct HttpAnswer {
  int status = 200;
  std::string type;  ///< Content-Type
  std::string body;
};

/// Listens until it is destroyed. Bodies are sent with gzip to whoever accepts it.
class HttpServer {
 public:
  using Handler = std::function<HttpAnswer()>;

  HttpServer();
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// Answers GET of exactly this path. Before listen().
  void handle(std::string path, Handler handler);
  /// \param at `127.0.0.1:9977`, port 0 for any that is free. \return the port; an Error that says why not.
  [[nodiscard]] Result<int> listen(const std::string& at);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mfu
