// A small HTTP server for `mfu serve`: CivetWeb with two paths.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace mfu {

struct HttpBody {
  std::string plain;
  std::string gzip;  ///< the same, for those who accept it; empty: too small to be worth it
};

/// The answer of a path: many who ask at once share one body. [any thread of the server]
struct HttpAnswer {
  int status = 200;
  std::string type;  ///< Content-Type
  std::shared_ptr<const HttpBody> body;
};
[[nodiscard]] HttpAnswer http_answer(int status, std::string type, std::string text);

/// Listens until it is destroyed. Bodies are sent with gzip where it is accepted. A request is answered only if its
/// `Host` is an IP address, localhost, this machine's name or one of `allow`: a page elsewhere whose name is made to
/// resolve to this server (DNS rebinding) cannot read it through a browser. No answer may be framed or sniffed.
class HttpServer {
 public:
  using Handler = std::function<HttpAnswer()>;

  /// \param allow further names for `Host`, without a port; `*`: any.
  explicit HttpServer(const std::vector<std::string>& allow);
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
