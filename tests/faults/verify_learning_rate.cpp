// One rank's scheduler has cut the learning rate by its own validation loss.
// symptom: replicas diverge from some epoch on, although gradients are equal
// run: `%verify optimizer`
// cause: ReduceLROnPlateau gets a loss that was not averaged over ranks
// fix: all-reduce the validation loss before the scheduler sees it
// thread: rmchurch/disruptcnn#3
// ranks: 3
// expect: verify:mismatch kind=hyperparameter ranks=2 reference=0-1 object=optimizer tensor=lr

// %% a plateau on one rank
set_seed(1);
torch::nn::Linear net(4, 2);
torch::optim::SGD optimizer(net->parameters(), 0.1);
double best = 1.0;
const double validation_loss = rank == 2 ? 1.2 : 0.9;
if (validation_loss > best)
  for (auto& group : optimizer.param_groups()) group.options().set_lr(group.options().get_lr() * 0.1);
%verify optimizer
