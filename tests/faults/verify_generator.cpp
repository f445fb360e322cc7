// Dropout that must be the same on every rank, after one of them has drawn a number more.
// symptom: results that should be equal on all ranks differ by dropout
// run: `%verify rng`
// cause: code in `if (rank == …)` draws from the default generator
// fix: draw on every rank, or from a separate generator
// ranks: 3
// expect: verify:diverged_seed kind=rng ranks=1 reference=0,2

// %% one draw too many
set_seed(5);
auto shared_noise = torch::randn({4});
if (rank == 1) std::cout << "a sample: " << torch::randint(100, {1}).item<int>() << '\n';
%verify rng
