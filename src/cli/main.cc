// The program: parses the command line and turns errors into one sentence and an exit code.
#include <cstdio>
#include <exception>

#include "base/error.h"
#include "cli/commands.h"

namespace {

constexpr int kExitUserError = 2;  // like a wrong flag: nothing was done

void add_commands(CLI::App& app) {
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "Print the help of every command and exit");
  app.set_version_flag("--version", "deepinfer " DI_VERSION);
  app.footer(
      "Examples:\n"
      "  deepinfer generate \"What is gravity?\"\n"
      "  deepinfer chat --thinking low\n"
      "  deepinfer inspect --model /path/to/model\n"
      "Each command explains itself: deepinfer generate --help"
  );
  di::cli::add_generate(app);
  di::cli::add_batch(app);
  di::cli::add_chat(app);
  di::cli::add_inspect(app);
  di::cli::add_verify(app);
  di::cli::add_tokenize(app);
  di::cli::add_detokenize(app);
  di::cli::add_render(app);
  di::cli::add_eval(app);
  di::cli::add_calibrate(app);
  di::cli::add_replay(app);
  di::cli::add_options(app);
  di::cli::add_bench(app);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("DeepInfer: an inference engine for DeepSeek-V4.1-Flash", "deepinfer");
  add_commands(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUserError;
  } catch (const di::cli::ExitCode& exit) {
    return exit.code;
  } catch (const di::Error& error) {
    std::fprintf(stderr, "deepinfer: %s\n", error.what());
    return kExitUserError;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "deepinfer: out of memory; a shorter --context or --chunk may help\n");
    return kExitUserError;
  }
  return 0;
}
