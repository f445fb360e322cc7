// A program in C++ that watched_program_test.py starts under `lockstep run`: watched_program CASE.
#include <lockstep/dist.h>
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>

namespace dist = lockstep::dist;

namespace {

[[gnu::noinline]] void train(int steps) {
  for (int i = 0; i < steps; ++i) {
    auto gradient = torch::ones({4, 3});
    dist::all_reduce(gradient);  // step
  }
}

[[gnu::noinline]] void load(int sample) {
  throw std::runtime_error("no such sample: " + std::to_string(sample));  // threw
}

[[gnu::noinline]] void wait_for_data() {
  std::puts("waits");
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::minutes(10));  // hangs
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  torch::set_num_threads(1);
  dist::init_process_group("gloo");
  train(3);
  if (dist::get_rank() == 1 && name == "hangs") wait_for_data();
  if (dist::get_rank() == 1 && name == "threw") load(17);
  train(1);
  dist::destroy_process_group();
  return name == "exited" && argc > 2 ? std::stoi(argv[2]) : 0;
}
