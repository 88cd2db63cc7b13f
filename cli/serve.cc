// orrery serve: the live page, on the loopback address.
#include "serve/serve.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "cli/verbs.h"

namespace orrery::cli {
namespace {

constexpr int kPort = 8088;

struct ServeOptions {
  int port = kPort;
};

int run_serve(const ServeOptions& options) {
  serve::serve({static_cast<std::uint16_t>(options.port), [](const std::string& url) {
                  fmt::print("{} (this machine only; Ctrl-C ends it)\n", url);
                  std::fflush(stdout);
                }});
  return 0;
}

}  // namespace

Command serve_command() {
  const auto options = std::make_shared<ServeOptions>();
  Command command{"serve",
                  "serves the report as a live page: move controls, and plan, timeline and cost follow",
                  {},
                  [options] { return run_serve(*options); }};
  command.add(count_option({.key = "port",
                            .unit = "P",
                            .help = "port on the loopback address, 127.0.0.1; 0: any that is free",
                            .fallback = std::to_string(kPort)},
                           options->port, {0, 65535}));
  return command;
}

}  // namespace orrery::cli
