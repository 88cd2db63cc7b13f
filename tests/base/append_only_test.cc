#include "base/append_only.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <thread>

using namespace orrery;

TEST_CASE("a list that grows is read while it does, and keeps what is in it where it is") {
  AppendOnly<std::string, 1000> list = {"first"};
  const std::string* first = &list.items().front();
  std::atomic<bool> whole = true;
  std::thread reader([&] {
    for (std::size_t seen = 0; seen < 1000; seen = list.items().size())
      for (const std::string& item : list.items()) whole = whole && !item.empty();
  });
  for (int i = 1; i < 1000; ++i) list.append(std::to_string(i));
  reader.join();
  CHECK(whole);
  CHECK(&list.items().front() == first);
  CHECK(list.items().back() == "999");
  CHECK_THROWS_AS(list.append("more"), InternalError);
  CHECK(list.items().size() == 1000);
}
