// Times training steps of one rank of a data-parallel run; compare.py starts the ranks and the Python side. Rank 0 prints a JSON line.
//
//   step_time --rank R --ranks N --init file:///path --model many|mlp|conv|transformer [--steps S] [--batch B] [--pin]
//             [--variants local,ddp,…] [--bucket-mb M] [--check 0|1] [--device cuda:0] [--backend gloo|shared_memory]
//             [--all-reduce-kb 109,11600]
//
// On a GPU the group is NCCL's by default, and a part of a step ends when the device has done it.
//
// Variants run in blocks that take turns, each on its own copy of the model:
//   local        no reduction; all ranks at work at once
//   ddp          DistributedDataParallel with its defaults
//   view         with gradient_as_bucket_view
//   reducer      the bare c10d::Reducer driven by hand: what the wrapper adds to it
//   noop         DistributedDataParallel with a hook that sends nothing: its cost without communication
//   accum        four micro-steps, three under no_sync; the time of one
//   accum_sync   four micro-steps, each synchronised; the time of one
// A step: zero_grad, forward, cross-entropy, backward, SGD with momentum.
#include <dlfcn.h>
#include <sched.h>

#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <CLI/CLI.hpp>
#include <chrono>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "benchmarks/ddp/models.h"
#include "collectives/dist.h"
#include "lockstep/ddp.h"

namespace {

using namespace lockstep;
using Clock = std::chrono::steady_clock;

struct Arguments {
  int rank = 0, ranks = 1, steps = 40, warm_up = 5, blocks = 5;
  int64_t batch = 0;
  double bucket_mb = 0;
  bool pin = false, check = true;
  std::vector<int64_t> all_reduce_kb;
  std::string init, model = "mlp", variants = "local,ddp,view", device = "cpu", backend;
};

struct Data {
  torch::Tensor x, y;
};

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * 4096;
}

void wait_for_device(const torch::Device& device) {
  if (device.is_cuda()) torch::cuda::synchronize(device.index());
}

// One variant: its own replica, optimizer and times.
struct Runner {
  std::function<torch::Tensor(const torch::Tensor&)> forward;
  std::function<void(bool)> synchronise = [](bool) {};
  std::function<void()> zero_grad;
  std::shared_ptr<torch::nn::Module> module;
  std::shared_ptr<torch::optim::SGD> optimizer;
  int micro_steps = 1;
  bool always_synchronise = false;
  std::vector<double> total, forward_ms, backward_ms, optimizer_ms;

  void step(const Data& data, bool keep) {
    const auto begin = Clock::now();
    zero_grad();
    double forward_time = 0, backward_time = 0;
    for (int micro = 0; micro < micro_steps; ++micro) {
      synchronise(always_synchronise || micro + 1 == micro_steps);
      const auto start = Clock::now();
      const auto loss = torch::nn::functional::cross_entropy(forward(data.x), data.y);
      wait_for_device(data.x.device());
      forward_time += milliseconds_since(start);
      const auto middle = Clock::now();
      loss.backward();
      wait_for_device(data.x.device());
      backward_time += milliseconds_since(middle);
    }
    const auto update = Clock::now();
    optimizer->step();
    wait_for_device(data.x.device());
    if (!keep) return;
    optimizer_ms.push_back(milliseconds_since(update));
    total.push_back(milliseconds_since(begin) / micro_steps);
    forward_ms.push_back(forward_time / micro_steps);
    backward_ms.push_back(backward_time / micro_steps);
  }
};

template <class M>
Runner make_runner(const std::string& variant, const Arguments& arguments, const dist::Group& group) {
  torch::manual_seed(0);
  auto module = std::make_shared<M>();
  module->to(torch::Device(arguments.device));
  Runner runner;
  runner.module = module;
  runner.optimizer =
      std::make_shared<torch::optim::SGD>(module->parameters(), torch::optim::SGDOptions(1e-3).momentum(0.9));
  runner.zero_grad = [module] { module->zero_grad(); };
  if (variant == "local") {
    runner.forward = [module](const torch::Tensor& x) { return module->forward(x); };
    return runner;
  }
  if (variant == "reducer") {
    // As a program without a wrapper would: one bucket, rebuilt after the first step.
    auto parameters = module->parameters();
    auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(parameters, {size_t{1} << 40}));
    std::unordered_map<size_t, std::string> names;
    for (size_t i = 0; i < parameters.size(); ++i) names[i] = std::to_string(i);
    auto reducer = std::make_shared<c10d::Reducer>(
        parameters, std::move(buckets), group, std::vector<bool>(parameters.size(), false),
        c10d::kDefaultBucketBytesCap, false, false, names, c10d::kDefaultFirstBucketBytes, false, false,
        std::vector<int64_t>{});
    runner.forward = [module, reducer](const torch::Tensor& x) {
      reducer->prepare_for_forward();
      reducer->rebuild_buckets();
      auto output = module->forward(x);
      reducer->prepare_for_backward({});
      return output;
    };
    return runner;
  }
  ddp::Options options;
  options.gradient_as_bucket_view(variant == "view");
  if (arguments.bucket_mb > 0) options.bucket_cap_mb(arguments.bucket_mb);
  auto net = ddp::DistributedDataParallel(module, options);
  if (variant == "noop") net.register_comm_hook(ddp::noop_hook());
  if (variant.rfind("accum", 0) == 0) {
    runner.micro_steps = 4;
    runner.always_synchronise = variant == "accum_sync";
    runner.synchronise = [net](bool on) { net.require_backward_grad_sync(on); };
  }
  runner.forward = [net](const torch::Tensor& x) { return net(x); };
  return runner;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

template <class M>
void measure(const Arguments& arguments, const Data& on_cpu) {
  const torch::Device device(arguments.device);
  const Data data{on_cpu.x.to(device), on_cpu.y.to(device)};
  const auto group = dist::default_group();
  std::map<std::string, Runner> runners;
  std::vector<std::string> order;
  std::istringstream list(arguments.variants);
  nlohmann::json resident;
  for (std::string name; std::getline(list, name, ',');) {
    const int64_t before = resident_bytes();
    runners.emplace(name, make_runner<M>(name, arguments, group));
    order.push_back(name);
    for (int i = 0; i < arguments.warm_up; ++i) runners.at(name).step(data, false);
    resident[name] = resident_bytes() - before;
  }
  for (int block = 0; block < arguments.blocks; ++block) {
    for (const auto& name : order) {
      dist::barrier();
      for (int i = 0; i < std::max(1, arguments.steps / arguments.blocks); ++i) runners.at(name).step(data, true);
    }
  }
  nlohmann::json result{{"program", "lockstep"},    {"torch", TORCH_VERSION},  {"model", arguments.model},
                        {"ranks", arguments.ranks}, {"batch", data.x.size(0)}, {"resident_bytes", resident}};
  int64_t elements = 0;
  for (const auto& parameter : runners.at(order[0]).module->parameters()) elements += parameter.numel();
  result["parameters"] = elements;
  for (const auto& name : order) {
    const auto& runner = runners.at(name);
    result["variants"][name] = {{"ms", median(runner.total)},
                                {"min_ms", *std::min_element(runner.total.begin(), runner.total.end())},
                                {"forward_ms", median(runner.forward_ms)},
                                {"backward_ms", median(runner.backward_ms)},
                                {"optimizer_ms", median(runner.optimizer_ms)}};
  }
  const auto all_reduce_ms = [&](int64_t count) {
    const auto flat = torch::zeros({count}, device);
    std::vector<double> times;
    for (int i = 0; i < 15; ++i) {
      dist::barrier();
      const auto start = Clock::now();
      dist::all_reduce(flat);
      wait_for_device(device);
      if (i > 4) times.push_back(milliseconds_since(start));
    }
    return median(times);
  };
  // What the reduction costs with nothing to hide behind: one flat all_reduce of all gradients.
  result["reduction_alone_ms"] = all_reduce_ms(elements);
  for (const int64_t kilobytes : arguments.all_reduce_kb)
    result["all_reduce_ms"][std::to_string(kilobytes)] = all_reduce_ms(kilobytes * 250);
  dist::barrier();
  if (arguments.rank == 0) std::cout << result.dump() << std::endl;
  runners.clear();
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Times data-parallel training steps");
  app.add_option("--rank", arguments.rank);
  app.add_option("--ranks", arguments.ranks);
  app.add_option("--init", arguments.init)->required();
  app.add_option("--model", arguments.model)->check(CLI::IsMember({"many", "mlp", "conv", "transformer"}));
  app.add_option("--steps", arguments.steps);
  app.add_option("--blocks", arguments.blocks);
  app.add_option("--batch", arguments.batch);
  app.add_option("--bucket-mb", arguments.bucket_mb);
  app.add_option("--variants", arguments.variants);
  app.add_option("--check", arguments.check);
  app.add_option("--device", arguments.device);
  app.add_option("--backend", arguments.backend);
  app.add_option("--all-reduce-kb", arguments.all_reduce_kb, "Times an all_reduce of float32 of so many KB as well")
      ->delimiter(',');
  app.add_flag("--pin", arguments.pin);
  CLI11_PARSE(app, argc, argv);

  if (arguments.pin) {
    cpu_set_t allowed, mine;
    sched_getaffinity(0, sizeof allowed, &allowed);
    std::vector<int> cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
    }
    CPU_ZERO(&mine);
    CPU_SET(cpus[static_cast<size_t>(arguments.rank) % cpus.size()], &mine);
    sched_setaffinity(0, sizeof mine, &mine);
  }
  torch::set_num_threads(1);
  if (arguments.device != "cpu" && !::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL)) {
    std::cerr << "--device " << arguments.device << ": " << ::dlerror() << '\n';
    return 2;
  }
  dist::InitOptions init;
  init.backend = !arguments.backend.empty()  ? arguments.backend
                 : arguments.device == "cpu" ? "gloo"
                                             : "cpu:gloo,cuda:nccl";
  init.init_method = arguments.init;
  init.rank = arguments.rank;
  init.world_size = arguments.ranks;
  init.check_collectives = arguments.check;
  dist::init_process_group(init);
  torch::manual_seed(100 + arguments.rank);
  const auto batch = [&](int64_t usual) { return arguments.batch > 0 ? arguments.batch : usual; };
  if (arguments.model == "many") {
    measure<benchmark::ManyImpl>(arguments,
                                 {torch::randn({batch(32), 16}), torch::randint(16, {batch(32)}, torch::kLong)});
  } else if (arguments.model == "mlp") {
    measure<benchmark::MlpImpl>(arguments,
                                {torch::randn({batch(64), 784}), torch::randint(10, {batch(64)}, torch::kLong)});
  } else if (arguments.model == "conv") {
    measure<benchmark::ConvImpl>(arguments,
                                 {torch::randn({batch(32), 3, 32, 32}), torch::randint(10, {batch(32)}, torch::kLong)});
  } else {
    measure<benchmark::TransformerImpl>(arguments, {torch::randint(4096, {batch(8), 128}, torch::kLong),
                                                    torch::randint(4096, {batch(8) * 128}, torch::kLong)});
  }
  dist::destroy_process_group();
}
