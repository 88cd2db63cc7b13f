#include "serve/serve.h"

#include <fmt/format.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <list>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/embedded.h"
#include "base/error.h"
#include "base/parallel.h"
#include "report/page.h"
#include "serve/answer.h"
#include "serve/http.h"
#include "serve/lessons.h"
#include "serve/question.h"
#include "serve/workers.h"
#include "sim/network/platform.h"
#include "topologies/readers/site_calibration.h"

namespace orrery {
const std::vector<EmbeddedFile>& live_page_files();
}

namespace orrery::serve {
namespace {

constexpr std::string_view kJson = "application/json", kLines = "application/x-ndjson";
constexpr std::string_view kHtml = "text/html; charset=utf-8", kStyle = "text/css; charset=utf-8",
                           kScript = "text/javascript; charset=utf-8";

std::string_view file_named(std::string_view name) {
  for (const EmbeddedFile& file : live_page_files())
    if (file.name == name) return file.content;
  throw InternalError(fmt::format("the live page lacks {}", name));
}

// The scripts in the order in which they use each other.
constexpr std::array<std::string_view, 3> kScripts = {"controls", "lessons", "live"};

std::string live_scripts() {
  std::string scripts = "'use strict';\n" + page_scripts();
  for (const std::string_view name : kScripts) scripts += file_named(name);
  return scripts;
}

// The answers that were asked for last. They say the same as long as nothing is measured anew.
class Answers {
 public:
  const std::string* find(const std::string& question) {
    const auto at = by_question_.find(question);
    if (at == by_question_.end()) return nullptr;
    used_.splice(used_.begin(), used_, at->second);
    return &at->second->second;
  }

  void keep(std::string question, std::string answer) {
    if (by_question_.contains(question) || answer.size() > kMostBytes) return;
    bytes_ += answer.size();
    used_.emplace_front(std::move(question), std::move(answer));
    by_question_[used_.front().first] = used_.begin();
    while (bytes_ > kMostBytes) {
      bytes_ -= used_.back().second.size();
      by_question_.erase(used_.back().first);
      used_.pop_back();
    }
  }

 private:
  static constexpr std::size_t kMostBytes = 64u << 20;
  using Used = std::list<std::pair<std::string, std::string>>;
  Used used_;  // the last first
  std::map<std::string, Used::iterator> by_question_;
  std::size_t bytes_ = 0;
};

using Answering = void (*)(const Query& query, const Emit& emit);

class Server {
 public:
  explicit Server(std::uint16_t port)
      : signals_(context_, SIGINT, SIGTERM),
        workers_(context_, limits()),
        http_(context_, port, [this](const HttpRequest& request, const std::shared_ptr<Reply>& reply) {
          handle(request, reply);
        }) {
    signals_.async_wait([this](const boost::system::error_code& error, int) {
      if (!error) context_.stop();
    });
    const auto serve = [this](std::string path, std::string_view type, std::string content) {
      files_[std::move(path)] = {type, std::move(content)};
    };
    serve("/", kHtml, std::string(file_named("page")));
    serve("/live.css", kStyle, std::string(page_style()) + std::string(file_named("live_style")));
    serve("/live.js", kScript, live_scripts());
    serve("/charts.js", kScript, std::string(charts_library()));
    serve("/choices", kJson, choices_json().dump());
  }

  std::uint16_t port() const { return http_.port(); }

  void run() { context_.run(); }

 private:
  struct File {
    std::string_view type;
    std::string content;
  };

  static WorkLimits limits() {
    WorkLimits limits;
    limits.running = std::max(2, processors());
    return limits;
  }

  void handle(const HttpRequest& request, const std::shared_ptr<Reply>& reply) {
    if (const auto file = files_.find(request.path); file != files_.end())
      return reply->send(200, file->second.type, file->second.content);
    const bool lesson = request.path == "/lesson";
    if (request.path != "/answer" && !lesson)
      return reply->send(404, "text/plain; charset=utf-8", "no such page\n");
    if (request.from_elsewhere)
      return reply->send(403, "text/plain; charset=utf-8", "other sites' pages are not answered\n");
    if (request.head_only) return reply->send(200, kLines, "");
    lesson ? check_lesson(request.query) : check_keys(request.query);
    compute(request, reply, lesson ? serve::lesson : answer);
  }

  void compute(const HttpRequest& request, const std::shared_ptr<Reply>& reply, Answering answering) {
    const std::string question =
        fmt::format("{}?{} {}", request.path, canonical(request.query), last_calibration());
    if (const std::string* known = answers_.find(question)) return reply->send(200, kLines, *known);
    const auto said = std::make_shared<std::string>();
    Work work;
    work.body = [query = request.query, answering](const Emit& emit) { answering(query, emit); };
    work.take = [reply, said, begun = false](std::string bytes) mutable {
      if (!std::exchange(begun, true)) reply->begin(kLines);
      *said += bytes;
      reply->write(std::move(bytes));
    };
    work.end = [this, reply, said, question](const std::string& failure) {
      if (said->empty()) reply->begin(kLines);
      if (failure.empty())
        answers_.keep(question, std::move(*said));
      else
        reply->write(Json({{"stage", "failed"}, {"text", fmt::format("no answer: {}", failure)}}).dump() +
                     "\n");
      reply->end();
    };
    std::shared_ptr<Task> task = workers_.submit(std::move(work));
    if (!task) return reply->send(503, "text/plain; charset=utf-8", "too many questions wait already\n");
    reply->when_gone([task = std::move(task)]() mutable { task.reset(); });
  }

  boost::asio::io_context context_;
  boost::asio::signal_set signals_;  // before anybody is told that it listens
  std::map<std::string, File> files_;
  Answers answers_;
  Workers workers_;
  HttpServer http_;
};

}  // namespace

void serve(const ServeRequest& request) {
  Server server(request.port);
  sim::load_simgrid();  // for all answers, which are forks
  if (request.ready) request.ready(fmt::format("http://127.0.0.1:{}/", server.port()));
  server.run();
}

}  // namespace orrery::serve
