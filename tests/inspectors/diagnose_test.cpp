// diagnose: which checks apply to which object, and what comes first.
#include "inspectors/diagnose/diagnose.h"
#include "lockstep/ddp.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <sstream>

#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::spawn_ranks;

struct DiagnosedNetImpl : torch::nn::Module {
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
  DiagnosedNetImpl()
      : fc1(register_module("fc1", torch::nn::Linear(3, 4))), fc2(register_module("fc2", torch::nn::Linear(4, 2))) {}
  torch::Tensor forward(torch::Tensor x) { return fc2(torch::relu(fc1(x))); }
};
TORCH_MODULE(DiagnosedNet);

/// The same everywhere: ranks are threads here, and share the default generator.
DiagnosedNet make_net() {
  DiagnosedNet net;
  torch::NoGradGuard no_grad;
  double value = 0.1;
  for (auto& each : net->parameters()) each.copy_(torch::linspace(value += 0.1, 1, each.numel()).view_as(each));
  return net;
}

DiagnoseOptions diagnose_options() { return DiagnoseOptions().deadline(std::chrono::minutes(5)).publish(false); }

std::vector<std::string> faults(const Diagnosis& diagnosis) {
  std::vector<std::string> texts;
  for (const Finding& each : diagnosis.findings)
    if (each.severity == Severity::fault)
      texts.push_back(each.inspector + " " + each.object.value_or("") + " " + std::string(to_string(each.verdict)));
  return texts;
}

/// The diagnosis that rank 0 gets.
template <typename Function>
Diagnosis on_ranks(int ranks, const Function& function) {
  Diagnosis diagnosis;
  std::mutex mutex;
  spawn_ranks(ranks, [&](int rank, int world_size) {
    Diagnosis mine = function(rank, world_size);
    const std::lock_guard lock(mutex);
    if (rank == 0) diagnosis = std::move(mine);
  });
  return diagnosis;
}

TEST(Diagnose, AHealthyJobHasNoFault) {
  const auto diagnosis = on_ranks(2, [](int rank, int world_size) {
    DiagnosedNet net = make_net();
    ddp::DistributedDataParallel wrapped(net);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    wrapped(torch::full({2, 3}, rank + 1.0)).sum().backward();
    const std::vector<int64_t> indices = {rank, rank + world_size};
    return Examination()
        .add("wrapped", wrapped)
        .add("optimizer", optimizer)
        .add("indices", indices)
        .run(diagnose_options());
  });
  EXPECT_THAT(faults(diagnosis), IsEmpty()) << diagnosis;
  EXPECT_THAT(diagnosis.failed, IsEmpty());
  std::vector<std::string> looked_at;
  for (const Finding& each : diagnosis.findings) looked_at.push_back(each.inspector + " " + each.object.value_or(""));
  for (const char* each :
       {"ranks ", "verify wrapped", "grads wrapped", "verify optimizer", "data indices", "verify collectives"})
    EXPECT_THAT(looked_at, Contains(each)) << diagnosis;
  std::ostringstream text;
  text << diagnosis;
  EXPECT_THAT(text.str(), HasSubstr("no faults found"));
}

TEST(Diagnose, TheReductionThatIsWrongComesBeforeReplicasThatPart) {
  const auto diagnosis = on_ranks(2, [](int rank, int) {
    DiagnosedNet net = make_net();
    net->forward(torch::full({2, 3}, rank + 1.0)).sum().backward();
    // Nothing reduces the second layer's gradients; then a step.
    for (auto& each : net->fc1->parameters()) dist::all_reduce(each.mutable_grad(), dist::ReduceOp::AVG);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    optimizer.step();
    return Examination().add("net", net).run(diagnose_options());
  });
  EXPECT_THAT(faults(diagnosis), ElementsAre("grads net mismatch", "verify net mismatch")) << diagnosis;
  EXPECT_EQ(diagnosis.advice[0], "%grads net --watch on");
  EXPECT_EQ(diagnosis.advice[1], "%verify net --every 1");
  std::ostringstream text;
  text << diagnosis;
  EXPECT_THAT(text.str(), HasSubstr("2 faults, the most probable cause first"));
}

TEST(Diagnose, EachObjectGoesToItsInspector) {
  const auto diagnosis = on_ranks(2, [](int rank, int) {
    DiagnosedNet net = make_net();
    torch::optim::SGD optimizer(net->parameters(), rank == 0 ? 0.1 : 0.2);
    const std::vector<int64_t> indices = {0, 1, 2, 3};  // all ranks read the same
    const auto tensor = torch::full({2}, rank);
    return Examination()
        .add("net", net)
        .add("optimizer", optimizer)
        .add("indices", indices)
        .add("tensor", tensor)
        .run(diagnose_options());
  });
  const auto all = faults(diagnosis);
  EXPECT_THAT(all, Contains("verify optimizer mismatch")) << diagnosis;
  EXPECT_THAT(all, Contains("data indices duplicate_data")) << diagnosis;
  EXPECT_THAT(all, Contains("verify tensor mismatch")) << diagnosis;
  EXPECT_EQ(diagnosis.advice.size(), diagnosis.findings.size());
}

TEST(Diagnose, AnOptimizerOfAnotherModuleTrainsNothing) {
  const auto diagnosis = on_ranks(2, [](int, int) {
    DiagnosedNet net = make_net(), other = make_net();
    torch::optim::SGD right(net->parameters(), 0.1), wrong(other->parameters(), 0.1);
    const auto pointer = std::make_unique<torch::optim::SGD>(net->parameters(), 0.1);
    return Examination()
        .add("net", net)
        .add("right", right)
        .add("wrong", wrong)
        .add("pointer", pointer)
        .run(diagnose_options());
  });
  EXPECT_THAT(faults(diagnosis), ElementsAre("verify wrong missing")) << diagnosis;
  EXPECT_THAT(diagnosis.findings[0].message, HasSubstr("none of its parameters is one of the modules'"));
}

TEST(Diagnose, AnOptimizerOfWhatIsHiddenMayTrainIt) {
  const auto diagnosis = on_ranks(2, [](int, int) {
    DiagnosedNet net = make_net(), listed = make_net();
    const torch::nn::AnyModule any{make_net()};
    torch::optim::SGD of_any(any.ptr()->parameters(), 0.1), of_list(listed->parameters(), 0.1);
    const std::vector<at::Tensor> list = listed->parameters();
    const auto first = Examination().add("net", net).add("any", any).add("of_any", of_any).run(diagnose_options());
    EXPECT_THAT(faults(first), IsEmpty()) << first;
    return Examination().add("net", net).add("list", list).add("of_list", of_list).run(diagnose_options());
  });
  EXPECT_THAT(faults(diagnosis), IsEmpty()) << diagnosis;
}

TEST(Diagnose, AGroupOfSomeRanksIsNoMatterOfTheOthers) {
  const auto diagnosis = on_ranks(2, [](int rank, int) {
    auto alone = dist::new_group({0});
    if (rank == 0) dist::barrier(alone);
    return Examination().run(diagnose_options());
  });
  // The group of rank 0 alone is none of rank 1's.
  EXPECT_THAT(faults(diagnosis), IsEmpty()) << diagnosis;
  for (const Finding& each : diagnosis.findings) EXPECT_EQ(each.verdict, Verdict::ok) << diagnosis;
}

TEST(Diagnose, ObjectsHaveNoNamesInAPlainProgram) {
  const auto diagnosis = on_ranks(2, [](int, int) {
    DiagnosedNet net = make_net();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    return diagnose(net, optimizer);
  });
  EXPECT_THAT(faults(diagnosis), IsEmpty()) << diagnosis;
}

TEST(Diagnose, EndsAtTheFirstCheckThatARankDoesNotComeTo) {
  const auto diagnosis = on_ranks(2, [](int rank, int) {
    DiagnosedNet net = make_net();
    if (rank == 1) return Diagnosis();
    return Examination().add("net", net).run(DiagnoseOptions().deadline(std::chrono::milliseconds(300)).publish(false));
  });
  ASSERT_EQ(diagnosis.findings.size(), 1u) << diagnosis;
  EXPECT_EQ(diagnosis.findings[0].kind, FindingKind::call);
  EXPECT_EQ(diagnosis.findings[0].ranks, RankSet{1});
  EXPECT_EQ(diagnosis.advice[0], "%hang");
}

Finding found(Severity severity, std::string inspector, Verdict verdict, std::string object,
              std::optional<FindingKind> kind = std::nullopt) {
  Finding finding{.severity = severity, .inspector = std::move(inspector), .verdict = verdict};
  finding.object = std::move(object);
  finding.kind = kind;
  return finding;
}

TEST(Diagnose, CausesComeBeforeWhatFollows) {
  Diagnosis diagnosis;
  diagnosis.findings = {found(Severity::note, "ranks", Verdict::ok, ""),
                        found(Severity::note, "grads", Verdict::outlier, "net"),
                        found(Severity::fault, "verify", Verdict::mismatch, "net", FindingKind::parameter),
                        found(Severity::fault, "verify", Verdict::mismatch, "optimizer", FindingKind::hyperparameter),
                        found(Severity::fault, "grads", Verdict::mismatch, "net", FindingKind::gradient),
                        found(Severity::fault, "verify", Verdict::shape_mismatch, "net", FindingKind::parameter),
                        found(Severity::fault, "ranks", Verdict::mismatch, "", FindingKind::version)};
  order_by_cause(diagnosis);
  std::vector<std::string> order;
  for (const Finding& each : diagnosis.findings)
    order.push_back(each.inspector + " " + std::string(to_string(each.verdict)) + " " + each.object.value_or(""));
  EXPECT_THAT(order, ElementsAre("ranks mismatch ", "verify shape_mismatch net", "grads mismatch net",
                                 "verify mismatch optimizer", "verify mismatch net", "grads outlier net", "ranks ok "));
  EXPECT_THAT(diagnosis.advice, ElementsAre("%ranks", "net?", "%grads net --watch on", "%verify optimizer",
                                            "%verify net --every 1", "%grads net --local", ""));
}

}  // namespace
}  // namespace lockstep::inspect
