#include "base/file.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"

using namespace orrery;
namespace fs = std::filesystem;

TEST_CASE("files are written whole and read back") {
  const fs::path path = fs::temp_directory_path() / ("orrery-file-" + std::to_string(::getpid()));
  const std::string content("a\0b\n", 4);
  write_file_atomically(path, content);
  CHECK(read_file(path) == content);
  write_file_atomically(path, "");
  CHECK(read_file(path).empty());
  CHECK_THROWS_WITH((write_file_atomically(path, "12345"), read_file(path, 4)), Catch::Contains("too large"));
  fs::remove(path);
  CHECK_THROWS_AS(read_file(path), UserError);
  CHECK_THROWS_WITH(read_file("/tmp"), Catch::Contains("is a folder"));
  CHECK_THROWS_WITH(write_file_atomically("/no/such/folder/x", "y"), Catch::Contains("cannot be written"));
}

TEST_CASE("a temporary folder goes with what is in it, and one that cannot be made says why") {
  std::string path;
  {
    const TemporaryFolder folder;
    path = folder.path();
    write_file_atomically(path + "/file", "x");
  }
  CHECK_FALSE(fs::exists(path));
  setenv("TMPDIR", "/no/such/folder", 1);
  CHECK_THROWS_AS(TemporaryFolder(), UserError);
  unsetenv("TMPDIR");
}

TEST_CASE("the data folder follows the environment") {
  setenv("ORRERY_DATA_DIR", "/tmp/own", 1);
  CHECK(user_data_folder() == "/tmp/own");
  unsetenv("ORRERY_DATA_DIR");
  setenv("XDG_DATA_HOME", "/tmp/xdg", 1);
  CHECK(user_data_folder() == "/tmp/xdg/orrery");
  unsetenv("XDG_DATA_HOME");
  setenv("HOME", "/tmp/home", 1);
  CHECK(user_data_folder() == "/tmp/home/.local/share/orrery");
}
