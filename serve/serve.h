// The live page: what a report shows, of whatever its controls say, on this machine's loopback address alone.
//
//   GET /                       the page        GET /live.js /live.css /charts.js   what it is made of
//   GET /choices                what the controls choose among (question.h)
//   GET /answer?workload=…&…    the answer in stages, a line of JSON each (answer.h)
//   GET /lesson?lesson=…&…      the simulated truth of a lesson (lessons.h)
//
// One thread listens; answers are computed in forks (workers.h), which end when their client goes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace orrery::serve {

struct ServeRequest {
  std::uint16_t port = 0;                             // 0: any that is free
  std::function<void(const std::string& url)> ready;  // called once, when it listens; may be empty
};

// Until the process is interrupted (SIGINT, SIGTERM). The process must have one thread. Throws UserError
// where the port cannot be had.
void serve(const ServeRequest& request);

}  // namespace orrery::serve
