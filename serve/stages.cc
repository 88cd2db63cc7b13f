#include "serve/stages.h"

#include "base/error.h"

namespace orrery::serve {

void Stages::add(std::string_view stage, const Json& fields) {
  Json line = {{"stage", stage},
               {"after_s", std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count()}};
  line.update(fields);
  emit_(line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

void in_stages(const std::function<void(std::string_view line)>& emit,
               const std::function<void(Stages&)>& body) {
  Stages stages(emit);
  try {
    body(stages);
  } catch (const UserError& bad) {
    stages.add("bad", {{"text", bad.what()}});
  } catch (const NoAnswer& no) {
    stages.add("no", {{"text", no.what()}});
  } catch (const std::exception& failure) {
    stages.add("failed", {{"text", failure.what()}});
  }
  stages.add("done");
}

}  // namespace orrery::serve
