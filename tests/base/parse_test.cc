#include "base/parse.h"

#include <catch2/catch.hpp>

namespace orrery {
namespace {

TEST_CASE("numbers are the whole text, within what their type holds") {
  CHECK(parse_whole("42") == 42);
  CHECK(parse_whole("+7") == 7);
  CHECK(parse_whole("-3") == -3);
  for (const char* bad : {"", "two", "1.5", "1e3", "4 ", " 4", "+-4", "0x10", "99999999999999999999"})
    CHECK_FALSE(parse_whole(bad));
  CHECK(parse_number("1.5e3") == 1500);
  for (const char* bad : {"", "nan", "inf", "-inf", "1e999", "3x", "."}) CHECK_FALSE(parse_number(bad));
  CHECK(parse_switch("on") == true);
  CHECK(parse_switch("off") == false);
  CHECK_FALSE(parse_switch("yes"));
}

TEST_CASE("bytes are binary, amounts are decimal") {
  CHECK(parse_bytes("1K") == 1024);
  CHECK(parse_bytes("1.5MiB") == 1.5 * 1024 * 1024);
  CHECK(parse_bytes("2gB") == 2.0 * 1024 * 1024 * 1024);
  CHECK(parse_bytes("8B") == 8);
  CHECK(parse_bytes("0") == 0);
  for (const char* bad :
       {"", "many", "-5", "nan", "inf", "12Q", "1KK", "K", "1e308T", "1e300", "1e-300", "0.5"})
    CHECK_FALSE(parse_bytes(bad));
  CHECK(parse_amount("15T") == 15e12);
  CHECK(parse_amount("3b") == 3e9);
  CHECK(parse_amount("3G") == 3e9);
  CHECK(parse_amount("300e9") == 300e9);
  CHECK(parse_count("8k", 1024) == 8192);
  CHECK(parse_count("8K", 1000) == 8000);
  CHECK(parse_count("1.5M", 1000) == 1500000);
  CHECK(parse_count("-3", 1000) == -3);
  CHECK(parse_count("1e3", 1024) == 1000);
  CHECK(parse_count("1.5e3", 1024) == 1500);
  for (const char* bad :
       {"", "k", "1.3k", "8kB", "8x", "1e300G", "nank", "1e-3", "1.5", "1e19", "nan", "inf"})
    CHECK_FALSE(parse_count(bad, 1024));
  CHECK(lower_case("1F1B") == "1f1b");
  for (const char* bad : {"", "0", "0.5", "-1k", "2kB", "1e19", "5x"}) CHECK_FALSE(parse_amount(bad));
}

TEST_CASE("any number may stand in thousands, millions, billions or trillions") {
  CHECK(parse_scaled("10k") == 10e3);
  CHECK(parse_scaled("2.5M") == 2.5e6);
  CHECK(parse_scaled("25G") == 25e9);
  CHECK(parse_scaled("1t") == 1e12);
  CHECK(parse_scaled("-3k") == -3e3);
  CHECK(parse_scaled("0.25") == 0.25);
  for (const char* bad : {"", "k", "1kk", "1x", "1 k", "1e308T"}) CHECK_FALSE(parse_scaled(bad));
}

TEST_CASE("lists keep empty parts, words keep what quotes hold together") {
  CHECK(split("a,b") == std::vector<std::string>{"a", "b"});
  CHECK(split("") == std::vector<std::string>{""});
  CHECK(split("1;;2", ';') == std::vector<std::string>{"1", "", "2"});
  CHECK(shell_words("a 'b c' \"d\\\"e\" f\\ g\\\n h") ==
        std::vector<std::string>{"a", "b c", "d\"e", "f g", "h"});
  CHECK(shell_words("''") == std::vector<std::string>{""});
  CHECK_FALSE(shell_words("a 'b"));
}

}  // namespace
}  // namespace orrery
