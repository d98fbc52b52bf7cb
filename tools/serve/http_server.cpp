#include "tools/serve/http_server.h"
#include "core/base/printable.h"

#include <arpa/inet.h>
#include <civetweb.h>
#include <strings.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

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

/// Takes what is before `separator` off `text`.
std::string_view next_part(std::string_view* text, char separator) {
  const std::size_t end = text->find(separator);
  const std::string_view part = trimmed(text->substr(0, end));
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  return part;
}

/// Accept-Encoding of RFC 9110, section 12.5.3: gzip by its own weight, else by that of `*`; a weight of 0 refuses.
bool accepts_gzip(const char* header) {
  bool others = false;
  for (std::string_view list = header != nullptr ? header : ""; !list.empty();) {
    std::string_view part = next_part(&list, ',');
    const std::string coding(next_part(&part, ';'));
    part = trimmed(part);
    const bool refused = part.starts_with("q=0") && part.find_first_not_of("0.", 2) == std::string_view::npos;
    if (::strcasecmp(coding.c_str(), "gzip") == 0 || ::strcasecmp(coding.c_str(), "x-gzip") == 0) return !refused;
    if (coding == "*") others = !refused;
  }
  return others;
}

bool host_is_allowed(const char* header, const std::vector<std::string>& names) {
  if (header == nullptr) return true;  // HTTP/1.0: no browser
  std::string_view rest = header;
  if (rest.starts_with('[')) return true;  // an address: nothing that a name server answers
  std::string host(next_part(&rest, ':'));
  if (host.ends_with('.')) host.pop_back();
  ::in_addr address{};
  if (::inet_pton(AF_INET, host.c_str(), &address) == 1) return true;
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return name == "*" || ::strcasecmp(name.c_str(), host.c_str()) == 0;
  });
}

int send(::mg_connection* connection, const HttpAnswer& answer, bool head = false) {
  const bool packed = !answer.body->gzip.empty() && accepts_gzip(::mg_get_header(connection, "Accept-Encoding"));
  const std::string& body = packed ? answer.body->gzip : answer.body->plain;
  // The page is one file: its scripts and styles are inside, and it asks only this server whether there is a newer one.
  const char* inside =
      answer.type.starts_with("text/html")
          ? "script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
          : "";
  ::mg_printf(connection,
              "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
              "X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\n"
              "Content-Security-Policy: default-src 'none'; %sbase-uri 'none'; form-action 'none'; frame-ancestors "
              "'none'\r\nVary: Accept-Encoding\r\n%sConnection: close\r\n\r\n",
              answer.status, ::mg_get_response_code_text(connection, answer.status), answer.type.c_str(), body.size(),
              inside, packed ? "Content-Encoding: gzip\r\n" : "");
  if (!head) ::mg_write(connection, body.data(), body.size());
  return answer.status;
}

int send_text(::mg_connection* connection, int status, std::string text) {
  return send(connection, http_answer(status, "text/plain; charset=utf-8", std::move(text)));
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
    const std::vector<std::string>& names;
  };
  std::vector<std::string> names;  ///< that `Host` may have
  std::vector<std::unique_ptr<Path>> paths;
  ::mg_context* context = nullptr;

  static int answer(::mg_connection* connection, void* data) {
    const auto& path = *static_cast<const Path*>(data);
    const ::mg_request_info* request = ::mg_get_request_info(connection);
    try {
      if (!host_is_allowed(::mg_get_header(connection, "Host"), path.names))
        return send_text(connection, 421, "mfu serve does not answer to this name: start it with --allow-host NAME.\n");
      // CivetWeb takes a handler for everything below its path.
      if (request->local_uri == nullptr || path.path != request->local_uri)
        return send_text(connection, 404, "There is / (the live page) and /metrics.\n");
      const bool head = std::strcmp(request->request_method, "HEAD") == 0;
      if (!head && std::strcmp(request->request_method, "GET") != 0) return send_text(connection, 405, "GET only.\n");
      return send(connection, path.handler(), head);
    } catch (const std::exception& e) {
      return send_text(connection, 500, std::string(e.what()) + "\n");
    }
  }
};

HttpServer::HttpServer(const std::vector<std::string>& allow) : state_(std::make_unique<State>()) {
  state_->names = allow;
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) == 0) state_->names.emplace_back(host.data());
  state_->names.emplace_back("localhost");
  ::mg_init_library(0);
}

HttpServer::~HttpServer() {
  if (state_->context != nullptr) ::mg_stop(state_->context);
  ::mg_exit_library();
}

void HttpServer::handle(std::string path, Handler handler) {
  state_->paths.push_back(
      std::make_unique<State::Path>(State::Path{std::move(path), std::move(handler), state_->names}));
}

Result<int> HttpServer::listen(const std::string& at) {
  // Half a request holds a thread until the timeout: there are many threads, and they wait in the kernel.
  std::array<const char*, 9> options{"listening_ports",  at.c_str(), "num_threads", "256", "request_timeout_ms", "2000",
                                     "connection_queue", "256",      nullptr};
  std::array<char, 256> text{};
  ::mg_error_data error{};
  error.text = text.data();
  error.text_buffer_size = text.size();
  ::mg_callbacks callbacks{};
  // Requests that no handler sees: malformed ones.
  callbacks.http_error = [](::mg_connection* connection, int status, const char* what) {
    send_text(connection, status, std::string(what) + "\n");
    return 0;
  };
  callbacks.log_message = [](const ::mg_connection*, const char*) { return 1; };  // `error` has the cause
  ::mg_init_data init{&callbacks, nullptr, options.data()};
  state_->context = ::mg_start2(&init, &error);
  if (state_->context == nullptr) return Error{text[0] != '\0' ? text.data() : "the server cannot start"};
  for (const auto& path : state_->paths)
    ::mg_set_request_handler(state_->context, path->path.c_str(), &State::answer, path.get());
  ::mg_server_port port{};
  return ::mg_get_server_ports(state_->context, 1, &port) == 1 ? port.port : 0;
}

}  // namespace mfu
