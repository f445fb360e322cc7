// A custom kernel that gives other results each time.
// symptom: two runs from the same seed differ
// run: `%%lockstep --self` over the step
// cause: atomic additions in an arbitrary order, uninitialised memory
// fix: a deterministic kernel (`torch::globalContext().setDeterministicAlgorithms`), or initialise the memory
// thread: pytorch/pytorch#23151
// ranks: 2
// expect: lockstep:mismatch kind=computation ranks=0-1 op=scatter_mean

// %% a kernel
int launches = 0;
torch::Tensor scatter_mean(const torch::Tensor& x) {
  at::RecordFunction record(at::RecordScope::FUNCTION);
  const std::vector<c10::IValue> inputs = {x};
  if (record.isActive()) record.before("scatter_mean", c10::ArrayRef<const c10::IValue>(inputs.data(), inputs.size()));
  const at::RecordFunctionGuard inside(false);
  auto result = x.mean(0) + 1e-6 * ++launches;
  if (record.isActive()) record.setOutputs(std::vector<c10::IValue>{result});
  return result;
}
// %% a step
%%lockstep --self
auto nodes = torch::ones({8, 4}) * 3;
auto pooled = scatter_mean(nodes);
auto loss = pooled.square().sum();
