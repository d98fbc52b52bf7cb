#include "tools/serve/http_server.h"

#include <civetweb.h>
#include <zlib.h>

#include <array>
#include <cstring>
#include <string_view>
#include <vector>

namespace mfu {

namespace {

/// `text` in gzip's format; empty where zlib fails.
std::string gzipped(const std::string& text) {
  ::z_stream stream{};
  constexpr int kGzip = 15 + 16;
  if (::deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) != Z_OK) return "";
  std::string out(::deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const bool done = ::deflate(&stream, Z_FINISH) == Z_STREAM_END;
  out.resize(done ? stream.total_out : 0);
  ::deflateEnd(&stream);
  return out;
}

int send(::mg_connection* connection, const HttpAnswer& answer, bool head = false) {
  const char* accepts = ::mg_get_header(connection, "Accept-Encoding");
  const bool packed = !answer.body->gzip.empty() && accepts != nullptr &&
                      std::string_view(accepts).find("gzip") != std::string_view::npos;
  const std::string& body = packed ? answer.body->gzip : answer.body->plain;
  const char* reason = ::mg_get_response_code_text(connection, answer.status);
  ::mg_printf(connection,
              "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n%sConnection: "
              "close\r\n\r\n",
              answer.status, reason, answer.type.c_str(), body.size(), packed ? "Content-Encoding: gzip\r\n" : "");
  if (!head) ::mg_write(connection, body.data(), body.size());
  return answer.status;
}

}  // namespace

HttpAnswer http_answer(int status, std::string type, std::string text) {
  constexpr std::size_t kWorthIt = 1400;  // below, it fits a packet anyway
  auto body = std::make_shared<HttpBody>();
  if (text.size() > kWorthIt) body->gzip = gzipped(text);
  body->plain = std::move(text);
  return {status, std::move(type), std::move(body)};
}

struct HttpServer::State {
  struct Path {
    std::string path;
    Handler handler;
  };
  std::vector<std::unique_ptr<Path>> paths;
  ::mg_context* context = nullptr;

  static int answer(::mg_connection* connection, void* data) {
    const auto& path = *static_cast<const Path*>(data);
    const ::mg_request_info* request = ::mg_get_request_info(connection);
    try {
      // CivetWeb takes a handler for everything below its path.
      if (request->local_uri == nullptr || path.path != request->local_uri)
        return send(connection,
                    http_answer(404, "text/plain; charset=utf-8", "There is / (the live page) and /metrics.\n"));
      const bool head = std::strcmp(request->request_method, "HEAD") == 0;
      if (!head && std::strcmp(request->request_method, "GET") != 0)
        return send(connection, http_answer(405, "text/plain; charset=utf-8", "GET only.\n"));
      return send(connection, path.handler(), head);
    } catch (const std::exception& e) {
      return send(connection, http_answer(500, "text/plain; charset=utf-8", std::string(e.what()) + "\n"));
    }
  }
};

HttpServer::HttpServer() : state_(std::make_unique<State>()) { ::mg_init_library(0); }

HttpServer::~HttpServer() {
  if (state_->context != nullptr) ::mg_stop(state_->context);
  ::mg_exit_library();
}

void HttpServer::handle(std::string path, Handler handler) {
  state_->paths.push_back(std::make_unique<State::Path>(State::Path{std::move(path), std::move(handler)}));
}

Result<int> HttpServer::listen(const std::string& at) {
  // A connection that sends half a request holds a thread until the timeout: there are more of them than anybody needs,
  // and they wait in the kernel.
  std::array<const char*, 9> options{"listening_ports",  at.c_str(), "num_threads", "256", "request_timeout_ms", "2000",
                                     "connection_queue", "256",      nullptr};
  std::array<char, 256> text{};
  ::mg_error_data error{};
  error.text = text.data();
  error.text_buffer_size = text.size();
  ::mg_callbacks callbacks{};
  callbacks.log_message = [](const ::mg_connection*, const char*) { return 1; };  // what went wrong is in `error`
  ::mg_init_data init{&callbacks, nullptr, options.data()};
  state_->context = ::mg_start2(&init, &error);
  if (state_->context == nullptr) return Error{text[0] != '\0' ? text.data() : "the server cannot start"};
  for (const auto& path : state_->paths)
    ::mg_set_request_handler(state_->context, path->path.c_str(), &State::answer, path.get());
  ::mg_server_port port{};
  return ::mg_get_server_ports(state_->context, 1, &port) == 1 ? port.port : 0;
}

}  // namespace mfu
