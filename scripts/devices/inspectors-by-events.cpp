// %% [markdown]
// # What inspectors cost, by the device's clock
// A model is trained with `DistributedDataParallel`, and inspectors look at it. On a GPU two events around the call measure the time, and the
// call's place in the stream is that of the training: what is measured includes what the device waits for the host. On the CPU the host's clock
// measures. The answers have to be right, too: equal replicas are found equal, and the one that is changed is found.
//
//     lockstep run scripts/devices/inspectors-by-events.cpp -n 2

// %% a model in training
const bool on_gpu = torch::Device(device).is_cuda();
const int64_t kWidth = std::stoll(arg("width", on_gpu ? "4096" : "128"));
set_seed(3);
torch::nn::Sequential layers(torch::nn::Linear(kWidth, kWidth), torch::nn::GELU(), torch::nn::Linear(kWidth, kWidth), torch::nn::GELU(),
                             torch::nn::Linear(kWidth, 10));
layers->to(device);
auto net = ddp::DistributedDataParallel(layers);
torch::optim::AdamW optimizer(net.parameters(), torch::optim::AdamWOptions(1e-4));
set_seed(100 + rank);
auto x = torch::randn({64, kWidth}, device);
auto y = torch::randint(10, {64}, at::TensorOptions(device).dtype(torch::kLong));
void train() {
  optimizer.zero_grad();
  torch::nn::functional::cross_entropy(net(x), y).backward();
  optimizer.step();
}
for (int i = 0; i < 3; ++i) train();

// %% a stopwatch on the stream
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include <unistd.h>

double milliseconds_of(const std::function<void()>& work) {
  const torch::Device here(device);
  if (!here.is_cuda()) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }
  const c10::impl::VirtualGuardImpl guard(here.type());
  c10::Event start(here.type(), c10::EventFlag::BACKEND_DEFAULT), end(here.type(), c10::EventFlag::BACKEND_DEFAULT);
  start.record(guard.getStream(here));
  work();
  end.record(guard.getStream(here));
  end.synchronize();
  return start.elapsedTime(end);
}

void report(const std::string& name, int times, const std::function<void()>& work) {
  std::vector<double> all;
  for (int i = 0; i < times; ++i) {
    dist::barrier();  // so that no rank's lead counts
    all.push_back(milliseconds_of(work));
  }
  std::sort(all.begin(), all.end());
  if (rank == 0) std::cout << "figure " << name << ' ' << std::fixed << std::setprecision(6) << all[all.size() / 2] << " ms\n";
}

void must(bool fact, const std::string& text) {
  if (!fact) throw std::runtime_error(text);
}

// %% those that look once
report("step", 11, train);
report("inspect_verify", 11, [] { must(inspect::verify(net, inspect::VerifyOptions().publish(false)).ok(), "equal parameters were found different"); });
report("inspect_verify_optimizer", 11, [] { must(inspect::verify(optimizer, inspect::VerifyOptions().publish(false)).ok(), "equal states differ"); });
report("inspect_grads", 11, [] { must(inspect::grads(net, inspect::GradsOptions().publish(false)).ok(), "right gradients were found wrong"); });
report("inspect_ranks", 5, [] { inspect::ranks(inspect::RanksOptions().publish(false)); });
report("inspect_memory", 5, [] { inspect::memory({inspect::named_memory("net", net)}, inspect::MemoryOptions().publish(false)); });
report("inspect_buckets", 5, [] { inspect::buckets(net, inspect::BucketsOptions().publish(false)); });

// %% those that watch a step
{
  auto watching = inspect::nan_watch(net);
  report("step_with_nan_watch", 11, train);
}
{
  auto watching = inspect::watch(net, 1);
  report("step_with_watch_of_every_step", 11, train);
}

// %% those that run the step themselves
const auto sync = inspect::time_sync(inspect::TimeSyncOptions().steps(5).publish(false), [] { train(); }, net, optimizer);
must(sync.synchronised > 0 && sync.unsynchronised > 0, "a step took no time");
if (rank == 0)
  std::cout << "figure time_sync_synchronised " << std::fixed << std::setprecision(6) << 1e3 * sync.synchronised << " ms\n"
            << "figure time_sync_unsynchronised " << 1e3 * sync.unsynchronised << " ms\n";

inspect::TensorNames names;
inspect::Report traced;
report("step_with_nan_trace", 5, [] {
  inspect::begin_nan_trace();
  train();
  traced = inspect::end_nan_trace(names, inspect::NanOptions().publish(false));
});
must(traced.ok(), "finite values were found bad");
set_seed(5);  // the same batch on all ranks, so that every operator has the same results on them
x = torch::randn({64, kWidth}, torch::kCPU).to(device);
y = torch::randint(10, {64}, torch::kLong).to(device);
inspect::Report same;
report("step_with_lockstep", 3, [] { same = inspect::lockstep_ranks([] { train(); }, net, inspect::LockstepOptions().publish(false)); });
must(same.ok(), "equal steps were found different");

// %% a timeline of two steps
{
  inspect::OperatorRecording recording;
  train();
  train();
}
auto owner = torch::tensor(static_cast<int64_t>(::getpid())).to(device);
dist::broadcast(owner, 0);  // the ranks name one file
const auto path = (std::filesystem::temp_directory_path() / ("lockstep-" + std::to_string(owner.item<int64_t>()) + ".json")).string();
inspect::TimelineReport line;
report("inspect_timeline", 1, [] { line = inspect::timeline(path, inspect::TimelineOptions().publish(false)); });
must(line.operators > 0 && line.collectives > 0, "the timeline is empty");
std::filesystem::remove(path);

// %% a change on one rank is found
const bool alone = world_size == 1;
{
  torch::NoGradGuard guard;
  if (rank == world_size - 1) net.parameters()[2].view(-1)[7].add_(1e-3);
}
must(inspect::verify(net, inspect::VerifyOptions().publish(false)).ok() == alone, "the change was not found");
