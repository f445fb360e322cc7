// A loader whose worker thread is stuck reading a sample.
// symptom: one rank hangs at the beginning of an epoch, the others in all_reduce
// run: `--hang-timeout S`; `%hang` at once
// cause: storage that does not answer, a deadlock in a loader's worker
// fix: check the storage and the locks of workers on the rank in the message
// thread: pytorch/pytorch#87995
// ranks: 2
// options: --hang-timeout 1
// exit: 4
// expect: hang:hang kind=loading_data ranks=1 reference=0 op=all_reduce

// %% an epoch
#include <condition_variable>
struct Files : torch::data::datasets::Dataset<Files, int> {
  int get(size_t index) override {
    if (rank == 1 && index == 3) {
      std::mutex mutex;
      std::condition_variable never;
      std::unique_lock lock(mutex);
      never.wait(lock, [] { return false; });
    }
    return static_cast<int>(index);
  }
  torch::optional<size_t> size() const override { return 8; }
};
auto loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
    Files(), torch::data::DataLoaderOptions().batch_size(2).workers(1));
for (auto& batch : *loader) {
  auto sum = torch::full({1}, batch[0]);
  dist::all_reduce(sum);
}
