// Runs the program and catches all that it says.
#pragma once

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"

namespace di {

inline const std::string kModel = std::string(" --model ") + DI_SEEDLING;

struct Outcome {
  int exit_code = 0;
  std::string output;  ///< standard output
  std::string errors;  ///< standard error
};

inline std::string read_all(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A path that no other process of these tests uses.
inline std::string temporary(const std::string& name) {
  const std::string file = "deepinfer_" + name + "_" + std::to_string(getpid());
  return (std::filesystem::temp_directory_path() / file).string();
}

/// Runs `deepinfer arguments`; shell syntax such as pipes and variables may stand before the
/// program.
inline Outcome run(const std::string& arguments, const std::string& before = "") {
  const std::string errors = temporary("program_test");
  const std::string command = before + DI_PROGRAM + " " + arguments + " 2>" + errors;
  Outcome outcome;
  std::FILE* pipe = popen(command.c_str(), "r");
  char buffer[4096];
  for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
    outcome.output.append(buffer, n);
  }
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  outcome.errors = read_all(errors);
  std::filesystem::remove(errors);
  return outcome;
}

/// The JSON values of a text, one a line.
inline std::vector<Json> json_lines(const std::string& text) {
  std::vector<Json> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(Json::parse(text.substr(begin, end - begin), "line"));
    begin = end + 1;
  }
  return lines;
}

}  // namespace di
