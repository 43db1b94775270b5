#include "mailbox.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"

namespace di::python {
namespace {

int open_eventfd() {
  const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd < 0) {
    throw Error(ErrorCode::kIo, std::string("no event descriptor: ") + std::strerror(errno));
  }
  return fd;
}

}  // namespace

Mailbox::Mailbox(bool whole) : whole_(whole), fd_(open_eventfd()) {}

Mailbox::~Mailbox() {
  close(fd_);
}

void Mailbox::expect(const RequestOutput& empty) {
  const std::lock_guard lock(mutex_);
  entries_[empty.request_id] = {empty};
}

void Mailbox::push(const engine::Output& news) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(news.request_id);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  entry.output.append(news);
  if (entry.ready || (whole_ && !entry.output.finished)) return;
  entry.ready = true;
  ready_.push_back(news.request_id);
  // Readable means: something is ready. So only the first one needs a signal.
  if (ready_.size() == 1) eventfd_write(fd_, 1);
}

std::vector<RequestOutput> Mailbox::take() {
  const std::lock_guard lock(mutex_);
  eventfd_t ignored = 0;
  eventfd_read(fd_, &ignored);
  std::vector<RequestOutput> outputs;
  outputs.reserve(ready_.size());
  for (const std::string& id : std::exchange(ready_, {})) {
    const auto found = entries_.find(id);
    RequestOutput next = found->second.output.without_news();
    outputs.push_back(std::exchange(found->second.output, std::move(next)));
    found->second.ready = false;
    if (outputs.back().finished) entries_.erase(found);
  }
  return outputs;
}

}  // namespace di::python
