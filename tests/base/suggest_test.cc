#include "base/suggest.h"

#include <catch2/catch.hpp>

using namespace orrery;

TEST_CASE("near names are suggested, nearest first") {
  const std::vector<std::string> known = {"dgx-a100", "dgx-h100", "localhost", "t4"};
  CHECK(suggestion("dgx-a10", known) == "did you mean 'dgx-a100' or 'dgx-h100'?");
  CHECK(suggestion("DGX-H100", known) == "did you mean 'dgx-h100' or 'dgx-a100'?");
  CHECK(suggestion("local", known) == "did you mean 'localhost'?");
  CHECK(suggestion("paln", {"plan", "catalog"}) == "did you mean 'plan'?");
  CHECK(suggestion("t", known) == "did you mean 't4'?");
}

TEST_CASE("another letter is no misspelling of one") {
  CHECK(suggestion("5", {"0", "1", "2", "3"}) == "expected one of 0, 1, 2, 3");
  CHECK(suggestion("p", {"tp", "ep"}) == "did you mean 'tp' or 'ep'?");
}

TEST_CASE("far names list what there is") {
  CHECK(suggestion("zebra", {"a", "bb"}) == "expected one of a, bb");
  CHECK(suggestion(std::string(100'000, 'x'), {"dgx-a100"}) == "expected one of dgx-a100");
}

TEST_CASE("edits change, add, leave out or swap letters") {
  CHECK(edits_between("overlap_comm", "overlap_comm") == 0);
  CHECK(edits_between("overlap_com", "overlap_comm") == 1);
  CHECK(edits_between("paln", "plan") == 1);
  CHECK(edits_between("", "abc") == 3);
}
