// What is answered, line by line.
#pragma once

#include <chrono>
#include <functional>
#include <string_view>

#include "base/json.h"

namespace orrery::serve {

class Stages {
 public:
  explicit Stages(const std::function<void(std::string_view line)>& emit)
      : emit_(emit), start_(std::chrono::steady_clock::now()) {}
  // A line of JSON: `stage`, after_s since the first question, and `fields`.
  void add(std::string_view stage, const Json& fields = Json::object());

 private:
  const std::function<void(std::string_view)>& emit_;
  std::chrono::steady_clock::time_point start_;
};

// `body`'s lines; behind them, where it throws, one of stage no, bad or failed with its `text`; and done.
void in_stages(const std::function<void(std::string_view line)>& emit,
               const std::function<void(Stages&)>& body);

}  // namespace orrery::serve
