#include "bench/load_bench.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mapped_file.h"
#include "bench/timing.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/inventory.h"
#include "checkpoint/loader.h"
#include "config/known_models.h"
#include "ops/ops.h"

namespace di::bench {
namespace {

namespace fs = std::filesystem;

/// Writes a file and makes it `size` bytes long; the rest is a hole.
void write_file(const std::string& path, std::string_view content, int64_t size) {
  std::ofstream(path, std::ios::binary) << content;
  std::error_code failure;
  fs::resize_file(path, static_cast<uintmax_t>(size), failure);
  if (failure) throw Error(ErrorCode::kIo, fmt::format("{}: {}", path, failure.message()));
}

/// Reads [begin, end) of the file into memory.
void read_fully(int fd, std::byte* memory, int64_t begin, int64_t end) {
  while (begin < end) {
    const ssize_t got = ::pread(fd, memory + begin, static_cast<std::size_t>(end - begin), begin);
    if (got <= 0) return;
    begin += got;
  }
}

double seconds_of_read(
    const std::string& path, std::byte* memory, int64_t bytes, ThreadPool& pool
) {
  constexpr int64_t kPiece = int64_t{4} << 20;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw Error(ErrorCode::kIo, fmt::format("{}: cannot open", path));
  const double seconds = time_calls({}, [&] {
                           pool.parallel_for(bytes, kPiece, [&](int64_t begin, int64_t end) {
                             read_fully(fd, memory, begin, end);
                           });
                         }).best_s;
  ::close(fd);
  return seconds;
}

double seconds_of_load(const std::string& path, std::byte* memory, ThreadPool& pool) {
  return time_calls(
             {},
             [&] {
               const MappedFile file =
                   MappedFile::open(path);  // a fresh mapping, as at every start
               checkpoint::run_load_jobs({checkpoint::copy_job(file.bytes(), memory)}, pool);
             }
  ).best_s;
}

Json result(const std::string& name, double seconds, int64_t rows, int64_t bytes, double share) {
  Json json;
  json.set("name", name).set("backend", "cpu").set("isa", "").set("rows", rows);
  json.set("shape", fmt::format("{} bytes", bytes)).set("us", seconds * 1e6);
  json.set("gbps", static_cast<double>(bytes) / seconds / 1e9).set("gflops", 0.0);
  json.set("share", share);
  return json;
}

/// A shard with every `stride`-th tensor from `first` on: its header, and its length with data.
std::pair<std::string, int64_t> shard_of(
    const std::vector<checkpoint::ExpectedTensor>& tensors, std::size_t first, std::size_t stride
) {
  std::string header = "{";
  int64_t bytes = 0;
  for (std::size_t i = first; i < tensors.size(); i += stride) {
    const checkpoint::ExpectedTensor& t = tensors[i];
    std::string shape;
    for (const int64_t size : t.shape)
      shape += fmt::format("{}{}", shape.empty() ? "" : ",", size);
    header += fmt::format(
        R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
        i == first ? "" : ",",
        t.name,
        di::name_of(t.dtype),
        shape,
        bytes,
        bytes + t.bytes()
    );
    bytes += t.bytes();
  }
  header += '}';
  const uint64_t length = header.size();
  std::string start(sizeof(length), '\0');
  std::memcpy(start.data(), &length, sizeof(length));
  bytes += static_cast<int64_t>(start.size() + header.size());
  return {start + header, bytes};
}

}  // namespace

ScratchFolder::ScratchFolder(const std::string& parent) {
  std::string pattern = fs::path(parent) / "deepinfer-bench-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) {
    throw Error(ErrorCode::kIo, fmt::format("{}: cannot make a folder in it", parent));
  }
  path_ = pattern;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string write_weights(const ScratchFolder& scratch, int64_t bytes) {
  const std::string path = scratch.file("weights");
  const std::string piece(std::size_t{1} << 22, 'Z');
  std::ofstream file(path, std::ios::binary);
  for (int64_t left = bytes; left > 0; left -= std::ssize(piece))
    file.write(piece.data(), std::min<std::streamsize>(left, std::ssize(piece)));
  if (!file.flush()) throw Error(ErrorCode::kIo, fmt::format("{}: cannot be written", path));
  return path;
}

Json bench_load(const std::string& folder, int64_t bytes, ThreadPool& pool) {
  const ScratchFolder scratch(folder);
  const std::string path = write_weights(scratch, bytes);
  std::vector<std::byte> memory(static_cast<std::size_t>(bytes));
  const double read = seconds_of_read(path, memory.data(), bytes, pool);
  const double load = seconds_of_load(path, memory.data(), pool);
  return result("load", load, 1, bytes, read / load);
}

Json bench_pack(
    const std::string& folder, int64_t bytes, const ops::OpTable& table, ThreadPool& pool
) {
  constexpr int64_t kCols = 5120;
  const ScratchFolder scratch(folder);
  const std::string path = write_weights(scratch, bytes);
  const int64_t rows = bytes / (kCols / 2) / ops::kPackRows * ops::kPackRows;
  const std::vector<uint8_t> scales(static_cast<std::size_t>(rows * kCols / 32), 127);
  std::vector<std::byte> memory(
      static_cast<std::size_t>(table.packed_bytes(ops::WeightFormat::kFp4, rows, kCols))
  );
  const double read = seconds_of_read(path, memory.data(), bytes, pool);
  const double load =
      time_calls({}, [&] {
        const MappedFile file = MappedFile::open(path);
        const ops::Weight raw{
            ops::WeightFormat::kFp4, rows, kCols, file.bytes().data(), scales.data()};
        checkpoint::LoadJob job;
        job.sources.push_back(file.bytes());
        job.num_units = rows / ops::kPackRows;
        job.convert = [&](int64_t begin, int64_t end) {
          table.pack(raw, {begin * ops::kPackRows, end * ops::kPackRows}, memory.data());
        };
        checkpoint::run_load_jobs({job}, pool);
      }).best_s;
  return result("load_pack", load, rows, bytes, read / load);
}

Json bench_open(const std::string& folder, ThreadPool& pool) {
  constexpr std::size_t kShards = 48;
  const ScratchFolder scratch(folder);
  const auto tensors = checkpoint::expected_tensors(v41_flash_config());
  std::string index = R"({"weight_map":{)";
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    index += fmt::format(
        R"({}"{}":"model-{}.safetensors")", i == 0 ? "" : ",", tensors[i].name, i % kShards
    );
  }
  index += "}}";
  const auto write_text = [&](const std::string& name, std::string_view text) {
    write_file(scratch.file(name), text, static_cast<int64_t>(text.size()));
  };
  write_text("config.json", v41_flash_config_text());
  write_text("model.safetensors.index.json", index);
  for (std::size_t shard = 0; shard < kShards; ++shard) {
    const auto [start, size] = shard_of(tensors, shard, kShards);
    write_file(scratch.file(fmt::format("model-{}.safetensors", shard)), start, size);
  }
  const double seconds =
      time_calls({}, [&] { checkpoint::Checkpoint::open(scratch.path(), pool); }).best_s;
  int64_t bytes = 0;
  for (const auto& tensor : tensors)
    bytes += tensor.bytes();
  return result("open", seconds, static_cast<int64_t>(tensors.size()), bytes, 0.0);
}

}  // namespace di::bench
