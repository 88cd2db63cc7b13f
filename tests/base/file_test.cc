#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
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

TEST_CASE("pipes are written through, and symbolic links go on pointing") {
  const TemporaryFolder folder;
  const fs::path pipe = folder.path() + "/pipe", link = folder.path() + "/link",
                 dangling = folder.path() + "/dangling";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  write_file_atomically(pipe, "through");
  std::array<char, 16> read{};
  CHECK(::read(reader, read.data(), read.size()) == 7);
  close(reader);
  CHECK(fs::is_fifo(pipe));
  CHECK(FileInMaking(pipe).in_place());
  fs::create_symlink("pipe", link);
  CHECK(FileInMaking(link).in_place());
  fs::remove(link);

  write_file_atomically(folder.path() + "/file", "old");
  fs::create_symlink("file", link);
  fs::create_symlink("new", dangling);
  write_file_atomically(link, "1");
  write_file_atomically(dangling, "2");
  CHECK(fs::is_symlink(link));
  CHECK(fs::is_symlink(dangling));
  CHECK(read_file(folder.path() + "/file") == "1");
  CHECK(read_file(folder.path() + "/new") == "2");
  CHECK_FALSE(FileInMaking(folder.path()).may_be_written());
  CHECK_FALSE(FileInMaking(folder.path() + "/none/file").may_be_written());
  CHECK(FileInMaking("file").may_be_written());
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
