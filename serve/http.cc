#include "serve/http.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <chrono>
#include <deque>
#include <limits>
#include <list>
#include <optional>

#include "base/error.h"

namespace orrery::serve {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr int kLingerMs = 1'000;               // until a client has read the end
constexpr std::size_t kMostIgnored = 1 << 16;  // bytes that a client sends beyond its request
constexpr std::size_t kLongestTarget = 4096;

// No page but ours may be made of what we send, and ours asks nobody but us.
constexpr std::string_view kHeaders =
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n"
    "Cross-Origin-Opener-Policy: same-origin\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cache-Control: no-store\r\n"
    "Connection: close\r\n";

std::string_view reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Payload Too Large";
    case 414:
      return "URI Too Long";
    case 421:
      return "Misdirected Request";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

// A page of another site that a name server sends to this address (rebinding) still says its own name here.
bool is_own_host(std::string_view host, std::uint16_t port) {
  for (const std::string_view name : {"127.0.0.1", "localhost"})
    if (host == fmt::format("{}:{}", name, port) || (port == 80 && host == name)) return true;
  return false;
}

bool is_own_origin(std::string_view origin, std::uint16_t port) {
  constexpr std::string_view kScheme = "http://";
  return origin.starts_with(kScheme) && is_own_host(origin.substr(kScheme.size()), port);
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool decode(std::string_view text, std::string& result) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '+') {
      c = ' ';
    } else if (c == '%') {
      if (i + 2 >= text.size()) return false;
      const int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
      if (high < 0 || low < 0) return false;
      c = static_cast<char>(16 * high + low);
      i += 2;
    }
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
    result += c;
  }
  return true;
}

}  // namespace

bool parse_query(std::string_view text, Query& query) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('&'), text.size());
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (part.empty()) continue;
    const std::size_t equals = std::min(part.find('='), part.size());
    std::pair<std::string, std::string> one;
    if (!decode(part.substr(0, equals), one.first)) return false;
    if (equals < part.size() && !decode(part.substr(equals + 1), one.second)) return false;
    query.push_back(std::move(one));
  }
  return true;
}

namespace {

class Connection;
using Connections = std::list<std::shared_ptr<Connection>>;

// What connections share with their server, which may go before them.
struct Shared {
  Handler handler;
  HttpLimits limits;
  std::uint16_t port = 0;
  Connections connections;  // by age
};

class Connection : public Reply, public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, std::shared_ptr<Shared> shared)
      : socket_(std::move(socket)), timer_(socket_.get_executor()), shared_(std::move(shared)) {
    parser_.emplace();
    // None is read: whoever announces one is told so. (No limit at all refuses every body in Boost 1.74.)
    parser_->body_limit(std::numeric_limits<std::uint64_t>::max());
    parser_->header_limit(static_cast<std::uint32_t>(shared_->limits.head_bytes));
  }

  void start(Connections::iterator place) {
    place_ = place;
    limit(shared_->limits.read_ms);
    http::async_read_header(
        socket_, buffer_, *parser_,
        [self = shared_from_this()](error_code error, std::size_t) { self->read(error); });
  }

  // Neither asked anything yet nor waits for an answer.
  bool idle() const { return state_ != State::answering; }

  void drop() {
    if (state_ == State::closed) return;
    const std::shared_ptr<Connection> self = shared_from_this();  // the list's may be the last
    state_ = State::closed;
    error_code ignored;
    socket_.close(ignored);
    timer_.cancel();
    shared_->connections.erase(place_);
    if (const auto call = std::exchange(gone_, nullptr)) call();
  }

  void send(int status, std::string_view type, std::string body) override {
    head(status, type, fmt::format("Content-Length: {}\r\n", body.size()));
    if (!head_only_) write(std::move(body));
    end();
  }

  void begin(std::string_view type) override { head(200, type, ""); }

  void write(std::string piece) override {
    if (state_ != State::answering || ended_ || piece.empty()) return;
    unsent_ += piece.size();
    if (unsent_ > shared_->limits.unsent) return drop();
    pieces_.push_back(std::move(piece));
    if (pieces_.size() == 1) write_next();
  }

  void end() override {
    if (state_ != State::answering || ended_) return;
    ended_ = true;
    gone_ = nullptr;
    if (pieces_.empty()) linger();
  }

  void when_gone(std::function<void()> call) override {
    if (state_ == State::closed) return call();
    if (!ended_) gone_ = std::move(call);
  }

 private:
  enum class State { reading, answering, lingering, closed };

  void limit(int ms) {
    timer_.expires_after(std::chrono::milliseconds(ms));
    timer_.async_wait([self = shared_from_this()](error_code error) {
      if (!error && self->timer_.expiry() <= asio::steady_timer::clock_type::now()) self->drop();
    });
  }

  void refuse(int status, std::string_view why) {
    send(status, "text/plain; charset=utf-8", fmt::format("{}\n", why));
  }

  void read(error_code error) {
    if (state_ != State::reading) return;
    if (error == http::error::end_of_stream || error == asio::error::connection_reset ||
        error == asio::error::eof || error == asio::error::operation_aborted)
      return drop();
    state_ = State::answering;
    timer_.cancel();
    ignore_more();
    if (error == http::error::header_limit) return refuse(431, "the request's head is too large");
    if (error) return refuse(400, "this is no request of HTTP");
    const auto& message = parser_->get();
    const auto field = [&](http::field name) {
      const auto value = message[name];
      return std::string_view(value.data(), value.size());
    };
    const std::string_view target(message.target().data(), message.target().size());
    head_only_ = message.method() == http::verb::head;
    if (message.count(http::field::host) != 1 || !is_own_host(field(http::field::host), shared_->port))
      return refuse(421, "this server has no such name");
    if (const std::string_view origin = field(http::field::origin);
        message.count(http::field::origin) > 0 && !is_own_origin(origin, shared_->port))
      return refuse(403, "other sites' pages are not answered");
    if (message.method() != http::verb::get && !head_only_) return refuse(405, "expected GET or HEAD");
    if (parser_->chunked() || parser_->content_length().value_or(0) > 0)
      return refuse(413, "expected a request without a body");
    if (target.size() > kLongestTarget) return refuse(414, "the request's target is too long");
    HttpRequest request;
    request.head_only = head_only_;
    const std::size_t mark = std::min(target.find('?'), target.size());
    request.path = target.substr(0, mark);
    if (mark < target.size() && !parse_query(target.substr(mark + 1), request.query))
      return refuse(400, "the request's query cannot be read");
    const auto site = message["Sec-Fetch-Site"];
    request.from_elsewhere = !site.empty() && site != "same-origin" && site != "none";
    try {
      shared_->handler(request, shared_from_this());
    } catch (const UserError& bad) {
      refuse(400, bad.what());
    } catch (const std::exception& failure) {
      refuse(500, failure.what());
    }
  }

  // What a client sends behind its request is of no interest, that it goes is.
  void ignore_more() {
    socket_.async_read_some(asio::buffer(ignored_),
                            [self = shared_from_this()](error_code error, std::size_t bytes) {
                              self->ignored_bytes_ += bytes;
                              if (error || self->ignored_bytes_ > kMostIgnored) return self->drop();
                              self->ignore_more();
                            });
  }

  void head(int status, std::string_view type, std::string_view more) {
    write(fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\n{}{}{}\r\n", status, reason_of(status), type,
                      more,
                      status == 405   ? "Allow: GET, HEAD\r\n"
                      : status == 503 ? "Retry-After: 1\r\n"
                                      : "",
                      kHeaders));
  }

  void write_next() {
    limit(shared_->limits.write_ms);
    asio::async_write(socket_, asio::buffer(pieces_.front()),
                      [self = shared_from_this()](error_code error, std::size_t) { self->wrote(error); });
  }

  void wrote(error_code error) {
    if (state_ != State::answering) return;
    if (error) return drop();
    timer_.cancel();
    unsent_ -= pieces_.front().size();
    pieces_.pop_front();
    if (!pieces_.empty()) return write_next();
    if (ended_) linger();
  }

  // Closed at once, a socket with unread bytes would take back what it has sent.
  void linger() {
    state_ = State::lingering;
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    limit(kLingerMs);
  }

  tcp::socket socket_;
  asio::steady_timer timer_;
  std::shared_ptr<Shared> shared_;
  Connections::iterator place_;
  boost::beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::empty_body>> parser_;
  State state_ = State::reading;
  bool head_only_ = false, ended_ = false;
  std::deque<std::string> pieces_;
  std::size_t unsent_ = 0, ignored_bytes_ = 0;
  std::array<char, 4096> ignored_{};
  std::function<void()> gone_;
};

}  // namespace

class HttpServer::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& context, std::uint16_t port, Handler handler, HttpLimits limits)
      : acceptor_(context), pause_(context), shared_(std::make_shared<Shared>()) {
    const tcp::endpoint here(asio::ip::address_v4::loopback(), port);
    try {
      acceptor_.open(here.protocol());
      acceptor_.set_option(tcp::acceptor::reuse_address(true));
      acceptor_.bind(here);
      acceptor_.listen();
    } catch (const boost::system::system_error& error) {
      throw UserError(fmt::format("`port` {}: {}", port, error.code().message()),
                      "expected one that is free; 0 takes any");
    }
    shared_->port = acceptor_.local_endpoint().port();
    shared_->handler = std::move(handler);
    shared_->limits = limits;
  }

  std::uint16_t port() const { return shared_->port; }

  void accept() {
    acceptor_.async_accept([self = shared_from_this()](error_code error, tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (error) return self->accept_later();
      self->take(std::move(socket));
      self->accept();
    });
  }

  void close() {
    error_code ignored;
    acceptor_.close(ignored);
    pause_.cancel();
    while (!shared_->connections.empty()) shared_->connections.back()->drop();
    shared_->handler = nullptr;  // it may hold what holds this
  }

 private:
  // No file descriptor is left: connections that end free some.
  void accept_later() {
    pause_.expires_after(std::chrono::milliseconds(50));
    pause_.async_wait([self = shared_from_this()](error_code error) {
      if (!error) self->accept();
    });
  }

  void take(tcp::socket socket) {
    Connections& all = shared_->connections;
    if (all.size() >= static_cast<std::size_t>(shared_->limits.connections)) {
      const auto silent = std::find_if(all.begin(), all.end(), [](const auto& one) { return one->idle(); });
      if (silent == all.end()) return;  // all wait for answers: this one is closed
      const std::shared_ptr<Connection> oldest = *silent;
      oldest->drop();
    }
    all.push_back(std::make_shared<Connection>(std::move(socket), shared_));
    all.back()->start(std::prev(all.end()));
  }

  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  std::shared_ptr<Shared> shared_;
};

HttpServer::HttpServer(asio::io_context& context, std::uint16_t port, Handler handler, HttpLimits limits)
    : impl_(std::make_shared<Impl>(context, port, std::move(handler), limits)) {
  impl_->accept();
}

HttpServer::~HttpServer() {
  impl_->close();
}

std::uint16_t HttpServer::port() const {
  return impl_->port();
}

}  // namespace orrery::serve
