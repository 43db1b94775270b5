// How fast ggml multiplies MXFP4 weights: its repacked kernels (8 rows interleaved, activations
// rounded to int8), on the shapes and with the timing of `deepinfer bench ops`. Prints the same
// JSON lines. Built by ggml.sh against a static ggml.
//
// Quantising the activations is left out, which favours ggml a little. Only time is measured, so
// codes are random; scales are near one, because subnormal sums would slow ggml down.
//
// Usage: ggml_bench ISA THREADS ROWS...
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include <sys/mman.h>

extern "C" {
void ggml_cpu_init(void);
void ggml_gemv_mxfp4_8x8_q8_0(
    int n, float* s, size_t bs, const void* vx, const void* vy, int nr, int nc
);
void ggml_gemm_mxfp4_8x8_q8_0(
    int n, float* s, size_t bs, const void* vx, const void* vy, int nr, int nc
);
}

namespace {

constexpr int kN = 2304, kK = 5120;
constexpr int kBlocks = kK / 32;
constexpr size_t kWeightBlock = 136;     // 8 rows: 8 scales, 128 bytes of codes
constexpr size_t kActivationBlock = 34;  // fp16 scale, 32 codes
constexpr size_t kMatrixBytes = size_t{kN} / 8 * kBlocks * kWeightBlock;
constexpr int kCopies = 40;  // 256 MB, more than caches hold
constexpr double kSeconds = 0.4;

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The best of repeated samples.
double best_of(const std::function<void()>& work) {
  work();
  double best = 1e9, total = 0;
  for (int i = 0; i < 5 || total < kSeconds; ++i) {
    const double seconds = seconds_of(work);
    best = std::min(best, seconds);
    total += seconds;
  }
  return best;
}

/// Runs work(thread) on a fixed set of threads.
class Team {
 public:
  explicit Team(int count) : start_(count), end_(count) {
    for (int t = 1; t < count; ++t) {
      threads_.emplace_back([this, t] {
        for (;;) {
          start_.arrive_and_wait();
          if (!work_) return;
          work_(t);
          end_.arrive_and_wait();
        }
      });
    }
  }
  ~Team() {
    work_ = nullptr;
    start_.arrive_and_wait();
    for (std::thread& thread : threads_)
      thread.join();
  }
  void run(std::function<void(int)> work) {
    work_ = std::move(work);
    start_.arrive_and_wait();
    work_(0);
    end_.arrive_and_wait();
  }

 private:
  std::barrier<> start_, end_;
  std::function<void(int)> work_;
  std::vector<std::thread> threads_;
};

/// One thread's share of a matrix, in groups of eight weight rows.
void multiply(const uint8_t* matrix, const uint8_t* x, float* y, int rows, int first, int last) {
  const int n = (last - first) * 8;
  const uint8_t* w = matrix + size_t(first) * kBlocks * kWeightBlock;
  float* out = y + first * 8;
  const int blocked = rows / 4 * 4;
  if (blocked > 0) ggml_gemm_mxfp4_8x8_q8_0(kK, out, kN, w, x, blocked, n);
  for (int row = blocked; row < rows; ++row) {
    const uint8_t* from = x + size_t(row) * kBlocks * kActivationBlock;
    ggml_gemv_mxfp4_8x8_q8_0(kK, out + size_t(row) * kN, kN, w, from, 1, n);
  }
}

double read_gbps(Team& team, int threads, const uint8_t* memory, size_t bytes) {
  static volatile uint64_t sink;
  const size_t words = bytes / 8 / size_t(threads);
  const double seconds = best_of([&] {
    team.run([&](int t) {
      const auto* at = reinterpret_cast<const uint64_t*>(memory) + size_t(t) * words;
      uint64_t sums[8] = {};
      for (size_t i = 0; i + 8 <= words; i += 8) {
        for (size_t j = 0; j < 8; ++j)
          sums[j] ^= at[i + j];
      }
      sink = sums[0] ^ sums[1] ^ sums[2] ^ sums[3] ^ sums[4] ^ sums[5] ^ sums[6] ^ sums[7];
    });
  });
  return double(words * 8 * size_t(threads)) / seconds * 1e-9;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: ggml_bench ISA THREADS ROWS...\n");
    return 2;
  }
  const int threads = std::atoi(argv[2]);
  ggml_cpu_init();
  std::mt19937 random(1);
  const size_t bytes = kMatrixBytes * kCopies;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  madvise(memory, bytes, MADV_HUGEPAGE);
  auto* weights = static_cast<uint8_t*>(memory);
  for (size_t i = 0; i < bytes; ++i)
    weights[i] = i % kWeightBlock < 8 ? 120 : uint8_t(random());
  Team team(threads);
  const double limit = read_gbps(team, threads, weights, bytes);
  for (int i = 3; i < argc; ++i) {
    const int rows = std::atoi(argv[i]);
    std::vector<uint8_t> x(size_t(rows) * kBlocks * kActivationBlock, 0x3c);
    std::vector<float> y(size_t(rows) * kN);
    const int calls = rows <= 4 ? 4 : 1;
    int next = 0;
    const double seconds =
        best_of([&] {
          for (int c = 0; c < calls; ++c) {
            const uint8_t* matrix = weights + size_t(next++ % kCopies) * kMatrixBytes;
            team.run([&](int t) {
              const int groups = kN / 8;
              multiply(
                  matrix, x.data(), y.data(), rows, groups * t / threads, groups * (t + 1) / threads
              );
            });
          }
        }) /
        calls;
    const double gbps = double(kMatrixBytes) / seconds * 1e-9;
    std::printf(
        "{\"name\":\"linear_q8.fp4\",\"backend\":\"ggml\",\"isa\":\"%s\",\"rows\":%d,"
        "\"shape\":\"%dx%d, %d threads\",\"us\":%.1f,\"gbps\":%.2f,\"gflops\":%.2f,"
        "\"share\":%.3f}\n",
        argv[1],
        rows,
        kN,
        kK,
        threads,
        seconds * 1e6,
        gbps,
        2.0 * rows * kN * kK / seconds * 1e-9,
        gbps / limit
    );
    std::fflush(stdout);
  }
}
