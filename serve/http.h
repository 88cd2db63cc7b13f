// HTTP for the browsers of one machine: loopback only, one thread, everything bounded. What is not for it
// (other hosts' names, other sites' pages, bodies, methods that change something) is refused here; a client
// that is slow, silent or too many costs a socket for a while and nothing else.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace boost::asio {
class io_context;
}

namespace orrery::serve {

// Names and values, decoded, in order.
using Query = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string path;  // of the target, as it was sent: nothing is decoded in it
  Query query;
  bool head_only = false;       // of the answer no more than its head is sent
  bool from_elsewhere = false;  // the browser says that another site's page asks
};

// The answer to one request: whole, or piece by piece. What is sent to a client that has gone is dropped.
class Reply {
 public:
  virtual ~Reply() = default;
  virtual void send(int status, std::string_view type, std::string body) = 0;
  virtual void begin(std::string_view type) = 0;
  virtual void write(std::string piece) = 0;
  virtual void end() = 0;
  // Called once when the client goes before the end.
  virtual void when_gone(std::function<void()> call) = 0;
};

using Handler = std::function<void(const HttpRequest&, const std::shared_ptr<Reply>&)>;

struct HttpLimits {
  int connections = 256;           // beyond it the one that has been silent longest gives way
  int head_bytes = 16 * 1024;      // of a request
  int read_ms = 5'000;             // for all of a request's head, however it drips
  int write_ms = 20'000;           // for each piece
  std::size_t unsent = 64u << 20;  // bytes of a reply that its client does not take
};

// Listens from its construction on, until it goes. Port 0: any that is free. Throws UserError where the port
// cannot be had.
class HttpServer {
 public:
  HttpServer(boost::asio::io_context& context, std::uint16_t port, Handler handler, HttpLimits limits = {});
  ~HttpServer();
  std::uint16_t port() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

// A query as a URL has it. False where it is none: an escape that is not whole, a control character.
bool parse_query(std::string_view text, Query& query);

}  // namespace orrery::serve
