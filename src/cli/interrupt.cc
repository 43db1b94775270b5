#include "cli/interrupt.h"

#include <csignal>
#include <initializer_list>

namespace di::cli {
namespace {

// A signal handler may touch nothing but this.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): signals know no other place
volatile std::sig_atomic_t interrupt_noted = 0;

void note_interrupt(int /*signal*/) {
  interrupt_noted = 1;
}

}  // namespace

void watch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = note_interrupt;
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM})
    sigaction(signal, &action, nullptr);
}

bool interrupted() {
  return interrupt_noted != 0;
}

}  // namespace di::cli
